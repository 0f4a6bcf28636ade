"""The file tools in whole runs: which row is behind them, what they leave in the log, what they refuse."""

import json
from typing import Any

from dsh.testing.workspace import Workspace, log_rows
from tests.e2e.reply import text
from tests.e2e.test_compaction import AGAIN
from tests.e2e.test_kill import RESUMER
from tests.e2e.test_tools import FULL, Answering, Call, bash, calling, results, run
from tests.sandboxes import needs_walls

SWAPPED = "- {id: fs-sandbox, remove: true}\n- insert: [{id: fs-local, name: fs-local}]\n"


def call(tool: str, **arguments: Any) -> Call:
    return tool, json.dumps(arguments)


def offers_escalation(body: dict[str, Any], tool: str) -> bool:
    [found] = [one["function"] for one in body["tools"] if one["function"]["name"] == tool]
    return "sandbox_permissions" in found["parameters"]["properties"]


@needs_walls
def test_the_fence_is_one_row_of_a_patch(space: Workspace, answering: Answering) -> None:
    """With `fs-local` in its place nothing fences `write` or offers a wider sandbox; bash stays confined."""
    patch = space.root / "swap.yml"
    patch.write_text(SWAPPED)
    tools = [
        {"id": "c1", "name": "write", "args": ['{"file_path": "../out.txt", "content": "x"}']},
        {"id": "c2", "name": "bash", "args": ['{"command": "echo x > ../by-bash.txt"}']},
    ]
    model = answering({"tools": tools}, text("done"), {"tools": tools}, text("done"))
    seen = []
    for words in ([], ["--patch", str(patch)]):
        done = space.run("run", *words, "x")
        assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")
        first = model.bodies()[-2]
        seen.append(((space.root / "out.txt").exists(), offers_escalation(first, "write")))
        assert offers_escalation(first, "bash")

    assert seen == [(False, True), (True, False)]
    assert not (space.root / "by-bash.txt").exists()


def test_a_change_of_a_huge_file_leaves_a_small_log(space: Workspace, answering: Answering) -> None:
    """SL-07: what is logged with a result is bounded, however much of a file one call changes."""
    space.write("many.txt", "foo bar\n" * 2_000_000)
    space.write("line.txt", "foo " * 2_000_000)
    run(
        space,
        answering,
        call("read", file_path="many.txt", limit=1),
        call("edit", file_path="many.txt", old_string="foo", new_string="baz", replace_all=True),
        call("read", file_path="line.txt", limit=1),
        call("edit", file_path="line.txt", old_string="foo", new_string="baz", replace_all=True),
    )

    assert all(not result["isError"] for result in results(space))
    assert (space.work / "many.txt").read_text() == "baz bar\n" * 2_000_000
    [log] = space.logs()
    assert max(len(json.dumps(row)) for row in log_rows(log)) < 1_000_000


def test_a_workspace_that_was_removed_is_not_made_anew(space: Workspace, answering: Answering) -> None:
    done, seen = run(
        space,
        answering,
        bash('rm -rf "$PWD"'),
        call("read", file_path="a.txt"),
        call("write", file_path="a.txt", content="x"),
        call("edit", file_path="a.txt", old_string="x", new_string="y"),
        **FULL,
    )

    gone = f'the working directory "{space.work}" does not exist any more'
    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")
    assert seen[1:] == [f'Error: cannot resolve "a.txt": {gone}'] * 3
    assert not space.work.exists()


def test_no_file_tool_shows_the_keys_in_the_programs_own_environment(
    space: Workspace, answering: Answering
) -> None:
    """SE-01: the tools read in the process that holds the keys."""
    calling(
        answering,
        call("read", file_path="/proc/self/environ"),
        call("str_replace_editor", command="view", path="/proc/self/environ"),
        call("grep", pattern="KEY", path="/proc/self/environ", output_mode="content"),
    )
    space.env["DEEPSEEK_API_KEY"] = "sk-only-here"

    done = space.run("run", "x")

    assert done.code == 0
    [log] = space.logs()
    assert "sk-only-here" not in json.dumps(log_rows(log))


def test_a_resumed_session_may_change_what_it_has_read_and_nothing_that_changed_since(
    space: Workspace, answering: Answering
) -> None:
    space.write("same.txt", "a\n")
    other = space.write("other.txt", "a\n")
    first = [
        {"id": "c1", "name": "read", "args": ['{"file_path": "same.txt"}']},
        {"id": "c2", "name": "read", "args": ['{"file_path": "other.txt"}']},
    ]
    second = [
        {"id": f"d{at}", "name": "edit", "args": [json.dumps(change)]}
        for at, change in enumerate(
            {"file_path": name, "old_string": "a", "new_string": "b"} for name in ("same.txt", "other.txt")
        )
    ]
    answering({"tools": first}, text("one"), {"tools": second}, text("two"))
    assert space.run("run", "x").code == 0
    other.write_text("a \n")
    [log] = space.logs()
    space.write("resumer.py", RESUMER)
    space.write("again.yml", AGAIN.replace("ID", log_rows(log)[0]["id"]))

    assert space.run("run", "--patch", "again.yml", "ignored").code == 0

    assert [result["code"] for result in results(space)[2:]] == [None, "FS_NOT_OBSERVED"]
    assert (space.work / "same.txt").read_text() == "b\n"
    assert other.read_text() == "a \n"
