"""The log of a real job: killed at many points, on a disk that fails, changed by somebody else.

Nothing that was flushed is lost, what remains opens with the right tail, and trouble is one line and exit 8.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.view import LogView, build_view
from dsh.testing.workspace import Finished, Workspace, finish
from tests.e2e.model import Model
from tests.e2e.reply import bash, text
from tests.process import wait_until

Answering = Callable[..., Model]

BOUND_S = 30.0


def job() -> list[dict[str, Any]]:
    """115 rows: three steps, each tool leaves a file, every reply comes in pieces."""
    return [
        bash("sleep 0.05; touch one; sleep 0.05; echo done one", "c1")
        | {"text": ["first "] * 5, "delay_ms": 5},
        bash("sleep 0.05; touch two; sleep 0.05; echo done two", "c2")
        | {"text": ["second "] * 5, "delay_ms": 5},
        text(*["last "] * 60, delay_ms=10),
    ]


def view_of(log: Path) -> LogView:
    return build_view(read_log(log))


def rows_of(space: Workspace) -> int:
    """How many events another process finds stored now."""
    for log in space.logs():
        return view_of(log).stored_length
    return 0


def inspected(space: Workspace, log: Path) -> dict[str, Any]:
    done = space.run("sessions", "inspect", str(log), "--json")
    assert (done.code, done.stderr) == (0, "")
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def sent(body: dict[str, Any]) -> Iterator[str]:
    """The texts and call ids that a request carries, in order, without the system text."""
    for message in body["messages"]:
        if message["role"] != "system" and message.get("content"):
            yield message["content"]
        for call in message.get("tool_calls", ()):
            yield call["id"]


def logged(messages: list[dict[str, Any]]) -> list[str]:
    """The same of the messages that a log derives."""
    out: list[str] = []
    for message in messages:
        calls: list[str] = []
        said = ""
        for block in message["content"]:
            if block["type"] == "tool-call":
                calls.append(block["id"])
            elif block["type"] == "tool-result":
                said += "".join(part["text"] for part in block["content"])
            else:
                said += block["text"]
        out += [said, *calls] if said else calls
    return out


def check_killed(space: Workspace, model: Model, before: int) -> None:
    """What a kill may leave, whenever it came."""
    if not space.logs():
        assert (before, model.bodies()) == (0, [])
        return
    (log,) = space.logs()
    data = log.read_bytes()
    view = view_of(log)
    assert view.stored_length >= before
    assert [event.seq for event in view.events()] == list(range(view.length))
    seen = inspected(space, log)
    assert log.read_bytes() == data

    if view.closers:
        assert seen["last"]["data"]["reason"] == {"kind": "interrupted"}
    if model.bodies():  # the request was durable before it was sent
        request = list(sent(model.bodies()[-1]))
        assert logged(seen["messages"])[: len(request)] == request
    types = [event.type for event in view.events(0, view.stored_length)]
    stored_calls = {event.data["callId"] for event in view.events() if event.type == "tool/call"}
    results = {e.data["message"]["source"]["callId"]: e for e in view.events() if e.type == "tool/result"}
    for made, call_id in (("one", "c1"), ("two", "c2")):
        if (space.work / made).exists():  # the call was durable before it was carried out
            assert call_id in stored_calls
            unknown = results[call_id].data.get("error", {}).get("code") == "TOOL_OUTCOME_UNKNOWN"
            assert unknown != (results[call_id].seq < view.stored_length)
    assert types.count("turn/start") <= 1


@pytest.mark.parametrize("rows", [1, 13, 28, 31, 46, 49, 70, 90])
def test_a_job_killed_after_so_many_rows_leaves_a_log_that_opens(
    space: Workspace, answering: Answering, rows: int
) -> None:
    model = answering(*job())
    process = space.start("run", "do it")
    wait_until(lambda: rows_of(space) >= rows or process.poll() is not None)
    before = rows_of(space)
    process.kill()

    assert finish(process).code in (-9, 0)
    check_killed(space, model, before)


@pytest.mark.slow
@pytest.mark.parametrize("after_ms", range(100, 1300, 120))
def test_a_job_killed_at_any_time_leaves_a_log_that_opens(
    space: Workspace, answering: Answering, after_ms: int
) -> None:
    model = answering(*job())
    process = space.start("run", "do it")
    time.sleep(after_ms / 1000)
    before = rows_of(space)
    process.kill()

    finish(process)
    check_killed(space, model, before)


# -- a disk that fails -----------------------------------------------------------------------------


def in_one_line(done: Finished, code: str) -> str:
    """The one line that says what is wrong, and its hint."""
    assert (done.code, done.stdout) == (8, "")
    line, hint = done.errors
    assert line.startswith(f"dsh: {code}: ") and hint.startswith("hint: ")
    return line


def limited(space: Workspace, kib: int) -> None:
    """From now on no file may grow beyond `kib`, as on a disk that is full.

    Python would leave torn byte code of modules that it compiles.
    """
    space.env["PYTHONDONTWRITEBYTECODE"] = "1"
    space.program = ("/bin/bash", "-c", f'ulimit -f {kib}; exec "$@"', "limited", *space.program)


def test_a_first_write_that_fails_ends_the_run_before_any_request(
    space: Workspace, answering: Answering
) -> None:
    model = answering(text("hi"))
    limited(space, 0)

    done = space.run("run", "do it")

    assert "could not be stored" in in_one_line(done, "SESSION_NOT_DURABLE")
    assert model.bodies() == []
    assert space.logs() == []


def test_a_disk_that_fills_up_ends_the_run_and_keeps_what_was_stored(
    space: Workspace, answering: Answering
) -> None:
    noise = [os.urandom(300).hex() for _ in range(120)]
    model = answering(bash("touch one"), text(*noise, delay_ms=10), bash("touch two"))
    limited(space, 16)

    done = space.run("run", "do it")

    assert "File too large" in in_one_line(done, "SESSION_NOT_DURABLE")
    assert len(model.bodies()) == 2
    (log,) = space.logs()
    view = view_of(log)
    assert view.torn is None
    assert "tool/result" in [event.type for event in view.events(0, view.stored_length)]
    assert inspected(space, log)["lastType"] == "turn/end"


@pytest.mark.parametrize("is_file", [True, False])
def test_a_root_that_cannot_hold_sessions_is_named(
    space: Workspace, answering: Answering, is_file: bool
) -> None:
    model = answering(text("hi"))
    root = space.home / "sessions"
    if is_file:
        root.write_text("mine")
    else:
        root.symlink_to(space.root / "nowhere" / "at all")

    done = space.run("run", "do it")

    assert (done.code, done.stdout, model.bodies()) == (3, "", [])
    assert str(root) in done.stderr and "Traceback" not in done.stderr
    assert root.is_symlink() or root.read_text() == "mine"


# -- a log that somebody else changes --------------------------------------------------------------


def replace(log: Path) -> None:
    data = log.read_bytes()
    log.rename(log.with_name("moved"))
    log.write_bytes(data)


def grow(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b"not ours")


@pytest.mark.parametrize("change", [replace, Path.unlink, grow], ids=["replaced", "removed", "grown"])
def test_a_log_that_is_changed_under_a_run_is_not_written_any_more(
    space: Workspace, answering: Answering, change: Callable[[Path], None]
) -> None:
    answering(text(*["word "] * 40, delay_ms=25))
    process = space.start("run", "do it")
    wait_until(space.logs)
    (log,) = space.logs()
    change(log)
    left = log.read_bytes() if log.exists() else None

    done = finish(process)

    assert str(log) in in_one_line(done, "SESSION_FILE_CHANGED")
    assert (log.read_bytes() if log.exists() else None) == left
