"""A start and an end are bounded, whatever the code of a row does: waits, blocks the event loop, or both."""

from pathlib import Path

import pytest

from dsh.testing.workspace import Finished, Workspace

STUCK = "import asyncio\nasync def apply(ctx): await asyncio.Event().wait()\n"


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def start(space: Workspace, code: str, *, bound_s: str = "0.3", fields: str = "") -> Finished:
    """A run of the demo profile with one more row `odd`, whose plugin is this code."""
    space.write("odd.py", code)
    space.write("p.yml", f"- insert: [{{id: odd, name: ./odd.py{fields}}}]\n")
    return space.run(
        "--profile", "demo", "--patch", "p.yml", "hello", env={"DSH_START_TIMEOUT": bound_s}, timeout_s=30
    )


def test_a_row_that_never_comes_up_fails_the_start_by_its_name(space: Workspace) -> None:
    done = start(space, STUCK)
    assert (done.code, done.stdout) == (3, "")
    assert done.errors == ["dsh: 1 entry did not activate:", "odd (./odd.py): still loading after 0.3 s"]


@pytest.mark.parametrize(
    ("code", "doing", "line"),
    [
        ("import time\ntime.sleep(1000)\n", "importing", 2),
        ("import time\ndef apply(ctx):\n    time.sleep(1000)\n", "loading", 3),
        (
            "import asyncio\nasync def apply(ctx):\n    await asyncio.sleep(0)\n    while True: ...\n",
            "loading",
            4,
        ),
        ("import time\ndef inner(ctx): time.sleep(1000)\ndef apply(ctx): ctx.plugin(inner)\n", "loading", 2),
    ],
    ids=["import", "apply", "later in apply", "what it mounts"],
)
def test_code_that_blocks_everything_ends_the_start_with_its_row_and_its_line(
    space: Workspace, code: str, doing: str, line: int
) -> None:
    done = start(space, code, fields=", optional: true")
    assert (done.code, done.stdout) == (3, "")
    at = f"{space.work}/odd.py:{line}"
    assert done.errors == [f"dsh: odd (./odd.py): still {doing} after 0.3 s, blocked at {at}"]


def test_an_optional_row_that_never_comes_up_is_only_mentioned(space: Workspace) -> None:
    done = start(space, STUCK, bound_s="1", fields=", optional: true")
    assert (done.code, done.stdout) == (0, "offline demo model: hello\n")
    assert done.errors[0] == "dsh: optional row odd (./odd.py): still loading after 1 s"
    assert not [line for line in done.errors[1:] if "odd" in line]


def test_an_end_that_is_blocked_keeps_its_code_and_names_the_row(space: Workspace) -> None:
    code = "import time\ndef apply(ctx):\n    return lambda: time.sleep(1000)\n"
    done = start(space, code, bound_s="60")
    assert (done.code, done.stdout) == (0, "offline demo model: hello\n")
    assert done.errors[-1] == (
        f"dsh: odd (./odd.py): still unloading after 5 s, blocked at {space.work}/odd.py:3"
    )


def test_the_bound_is_a_number_of_seconds(space: Workspace) -> None:
    for wrong in ("soon", "0", "-1", "inf", "nan"):
        done = start(space, STUCK, bound_s=wrong)
        assert (done.code, done.errors[0]) == (
            3,
            f"dsh: DSH_START_TIMEOUT is {wrong!r}, not a number of seconds above 0",
        )
