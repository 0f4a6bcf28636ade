"""What a provider's prompt cache needs: the beginning of a request never changes without a reason (LS-11)."""

import json
import random
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dsh.composition.profile import shipped
from dsh.testing.workspace import PROGRAM, Workspace, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import bash, text

Answering = Callable[..., Model]


RUSHING = """
import datetime, sys, time

SHIFT_S = float(sys.argv.pop(1))
real_s, seen = time.time, 0

def now_s():
    global seen
    seen += 1
    return real_s() + SHIFT_S + 61 * seen

class Moved(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(now_s(), tz)

    @classmethod
    def utcnow(cls):
        return cls.utcfromtimestamp(now_s())

class Today(datetime.date):
    @classmethod
    def today(cls):
        return Moved.now().date()

datetime.datetime, datetime.date = Moved, Today
time.time, time.time_ns = now_s, lambda: int(now_s() * 1e9)
from dsh.cli.entry import main
sys.exit(main())
"""
"""The program with a wall clock that is off, and a minute later whenever it is read."""


def rushing(shift_s: int) -> tuple[str, ...]:
    return (sys.executable, "-P", "-c", RUSHING, str(shift_s))


def fixed(body: dict[str, Any]) -> tuple[str, str]:
    """System text and tools as they were sent, the order of their keys included."""
    system = [message for message in body["messages"] if message["role"] == "system"]
    return json.dumps(system), json.dumps(body["tools"])


@pytest.mark.parametrize("program", [PROGRAM, rushing(0)], ids=["on time", "by a clock that rushes"])
def test_each_request_of_a_session_begins_with_the_one_before(
    space: Workspace, answering: Answering, program: tuple[str, ...]
) -> None:
    space.program = program
    model = answering(*(bash(f"echo {n}", f"c{n}") for n in range(4)), text("done"))
    done = space.run("run", "count")
    assert (done.code, done.stdout) == (0, "done\n")

    bodies = model.bodies()
    assert len(bodies) == 5
    for earlier, later in pairwise(bodies):
        before, after = json.dumps(earlier["messages"]), json.dumps(later["messages"])
        assert after.startswith(before.removesuffix("]"))
        assert fixed(later) == fixed(earlier)


def test_sessions_in_one_folder_begin_alike_whatever_the_hash_seed(
    space: Workspace, answering: Answering
) -> None:
    model = answering(text("ok"))
    for seed in ("0", "1", "2"):
        assert space.run("run", "x", env={"PYTHONHASHSEED": seed}).code == 0

    first, second, third = (fixed(body) for body in model.bodies())
    assert first == second == third
    assert len(first[0]) > 1000 and len(first[1]) > 1000


def test_neither_the_day_nor_the_time_zone_shows_in_a_request(space: Workspace, answering: Answering) -> None:
    model = answering(text("ok"))
    for days, zone in ((0, "UTC"), (1, "Asia/Shanghai"), (-400, "America/St_Johns")):
        space.program = rushing(days * 86_400)
        assert space.run("run", "x", env={"TZ": zone}).code == 0

    first, second, third = (json.dumps(body) for body in model.bodies())
    assert first == second == third
    starts = sorted(log_rows(log)[0]["createdAt"] for log in space.logs())
    assert starts[0] + 86_400_000 < starts[1] < starts[2] - 80_000_000


@pytest.mark.parametrize("seed", range(3))
def test_neither_the_order_of_rows_nor_the_home_shows_in_a_request(
    space: Workspace, answering: Answering, tmp_path: Path, seed: int
) -> None:
    head, *rows = re.split(r"(?m)^(?=    - id: )", shipped("bundles", "base.yml").read_text())
    random.Random(seed).shuffle(rows)
    home = tmp_path / "another home"
    folder = home / "profiles" / "mixed"
    folder.mkdir(parents=True)
    (folder / "profile.yml").write_text("bundles: []\n")
    patch = head + "".join(rows) + shipped("bundles", "headless.yml").read_text()
    (folder / "dsh.patch.yml").write_text(patch)

    model = answering(text("ok"))
    assert space.run("run", "x").code == 0
    elsewhere = {"DSH_HOME": str(home), "HOME": str(home)}
    assert space.run("--profile", "mixed", "x", env=elsewhere).code == 0
    shipped_order, mixed_order = model.bodies()
    assert fixed(shipped_order) == fixed(mixed_order)


def test_the_first_header_is_complete_so_that_no_later_step_changes_it(
    space: Workspace, answering: Answering
) -> None:
    answering(bash("echo 1", "c1"), bash("echo 2", "c2"), text("done"))
    assert space.run("run", "x").code == 0
    [log] = space.logs()
    headers = [row["data"] for row in log_rows(log) if row["type"] == "request/header"]
    assert [header["reason"] for header in headers] == ["initial"]
    assert all(f"`{tool}`" in headers[0]["header"]["system"] for tool in ("bash", "read", "edit", "write"))
