"""Long results and repeated calls in the real program: what the model reads, and what is left afterwards."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.testing.workspace import Workspace, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import bash, text

Answering = Callable[..., Model]
GAP = "\n\n[... the middle is left out, see below ...]\n\n"
NOTICE = re.compile(r"\n\n\((\d+) bytes left out\. The whole result: (/\S+)\. [^)]+\)")
CAP = 50_000


@pytest.fixture
def temporary(space: Workspace, tmp_path: Path) -> Path:
    """Where the program's temporary files lie."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    space.env["TMPDIR"] = str(folder)
    return folder


def result_in(body: dict[str, Any]) -> str:
    """The last tool result that a request carries."""
    found: str = [message["content"] for message in body["messages"] if message["role"] == "tool"][-1]
    return found


def test_a_result_beyond_the_cap_is_shown_by_its_ends_and_lies_in_a_file_until_the_end(
    space: Workspace, answering: Answering, temporary: Path
) -> None:
    file = f"$(find {temporary} -name '*-bash.txt' 2>/dev/null)"
    look = f"sha256sum < {file}; stat -c %a $(dirname {file})"
    model = answering(bash("seq 1 11000; exit 3", "c1"), bash(look, "c2"), text("done"))

    done = space.run("run", "count")

    assert (done.code, done.stderr) == (0, "")
    shown = result_in(model.bodies()[1])
    found = NOTICE.search(shown)
    assert found is not None
    whole = "".join(f"{n}\n" for n in range(1, 11_001)) + "[exit code: 3]"
    assert len(shown) == CAP - (len(str(len(whole))) - len(found[1]))
    head, _, tail = shown[: found.start()].partition(GAP)
    assert whole.startswith(head)
    assert whole.endswith(tail + "\n[exit code: 3]")
    assert shown.endswith(")\n[exit code: 3]")
    assert len(head) + int(found[1]) + len(tail + "\n[exit code: 3]") == len(whole)
    assert result_in(model.bodies()[2]) == f"{hashlib.sha256(whole.encode()).hexdigest()}  -\n700\n"
    assert list(temporary.iterdir()) == []


def test_output_up_to_the_cap_is_shown_whole_and_a_cut_stream_has_one_file(
    space: Workspace, answering: Answering, temporary: Path
) -> None:
    model = answering(bash("seq 1 9000", "c1"), bash("seq 1 60000; exit 1", "c2"), text("done"))

    assert space.run("run", "count").code == 0

    _, first, second = model.bodies()
    assert result_in(first) == "".join(f"{n}\n" for n in range(1, 9001))
    shown = result_in(second)
    assert NOTICE.search(shown) is None
    assert shown.count("full output: /") == 1
    assert shown.endswith("]\n[exit code: 1]")
    assert list(temporary.iterdir()) == []


def test_a_root_keeps_the_files(space: Workspace, answering: Answering, tmp_path: Path) -> None:
    space.write("keep.yml", f"- {{id: spill-local, config: {{root: {tmp_path}/kept}}}}\n")
    model = answering(bash("seq 1 11000", "c1"), text("done"))

    assert space.run("run", "--patch", "keep.yml", "count").code == 0

    found = NOTICE.search(result_in(model.bodies()[1]))
    assert found is not None
    assert Path(found[2]).read_text() == "".join(f"{n}\n" for n in range(1, 11_001))


def test_a_model_that_repeats_one_call_for_ever_ends_with_a_logged_reason(
    space: Workspace, answering: Answering
) -> None:
    model = answering(bash("echo again >> ran.txt", "c1"))

    done = space.run("run", "go")

    assert done.code == 5
    assert "repeat-tool-reminder.endTurnAt" in done.stderr
    assert (space.work / "ran.txt").read_text() == "again\n" * 19
    assert len(model.bodies()) == 30
    [log] = space.logs()
    rows = log_rows(log)
    [end] = [row["data"]["reason"] for row in rows if row["type"] == "turn/end"]
    assert end == {"kind": "aborted", "reason": {"kind": "hook", "reason": "limit:repeat"}}
    told = [row["data"]["source"].get("summary") for row in rows if row["type"] == "user/message"]
    assert [summary for summary in told if summary] == ["bash × 3", "bash × 5", "bash × 8"]


def test_a_model_that_says_one_call_many_times_at_once_is_refused_and_may_go_on(
    space: Workspace, answering: Answering
) -> None:
    [call] = bash("echo again >> ran.txt")["tools"]
    model = answering({"tools": [{**call, "id": f"c{n}"} for n in range(40)]}, text("enough"))

    done = space.run("run", "go")

    assert (done.code, done.stdout, done.stderr) == (0, "enough\n", "")
    assert (space.work / "ran.txt").read_text() == "again\n" * 19
    assert len(model.bodies()) == 2
