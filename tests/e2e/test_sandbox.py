"""Runs within walls, as processes: the default mode, what is refused, what may be asked for, a forced end."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dsh.testing.workspace import Workspace, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import Reply, bash, text
from tests.process import is_gone, wait_until
from tests.sandboxes import needs_walls

pytestmark = needs_walls
Answering = Callable[..., Model]
DENIED = "[sandbox: file access denied under {} mode]"
YES = """
from dsh.capabilities.approval import APPROVAL_REQUEST

def apply(ctx):
    async def yes(request, following):
        return "allowed-once"

    ctx.on(APPROVAL_REQUEST, yes)
"""


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that only full access may change, and that everybody can see."""
    folder = Path(tempfile.mkdtemp(prefix="dsh-outside-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def landlock_only(space: Workspace, tmp_path: Path) -> Workspace:
    """A workspace whose runs do not find bubblewrap."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "cat", "find", "ls", "seq", "sleep", "tail", "touch"):
        (folder / name).symlink_to(shutil.which(name) or name)
    space.env["PATH"] = str(folder)
    return space


@pytest.fixture(params=["bwrap", "landlock"])
def walls(request: pytest.FixtureRequest) -> str:
    """The backend that the runs of a test find."""
    if request.param == "landlock":
        request.getfixturevalue("landlock_only")
    elif shutil.which("bwrap") is None:
        pytest.skip("bwrap is not installed")
    return str(request.param)


def call(name: str, call_id: str = "call_1", **arguments: Any) -> Reply:
    return {"tools": [{"id": call_id, "name": name, "args": [json.dumps(arguments)]}]}


def wider(mode: str, reply_of: Callable[..., Reply], *words: str) -> Reply:
    """The same call, with the request for a wider mode."""
    reply = reply_of(*words)
    [arguments] = reply["tools"][0]["args"]
    fields = {"sandbox_permissions": mode, "justification": "the task says so"}
    reply["tools"][0]["args"] = [json.dumps(json.loads(arguments) | fields)]
    return reply


def results(model: Model) -> list[str]:
    """What the model read of its calls, in order."""
    return [message["content"] for message in model.bodies()[-1]["messages"] if message["role"] == "tool"]


def logged(space: Workspace, *types: str) -> list[Any]:
    [log] = space.logs()
    return [row["data"] for row in log_rows(log) if row.get("type") in types]


def test_the_default_is_the_workspace_and_success_says_nothing(
    space: Workspace, answering: Answering, outside: Path
) -> None:
    model = answering(bash("echo in > new && cat new"), text("done"))

    done = space.run("run", "do it")

    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")
    assert results(model) == ["in\n"]
    assert logged(space, "sandbox/mode") == [{"mode": "workspace-write"}]
    assert logged(space, "approval/policy") == [{"policy": "ask"}]
    assert not list(outside.iterdir())


@pytest.mark.parametrize("mode", ["workspace-write", "read-only"])
def test_what_the_mode_forbids_is_denied_to_commands_and_to_file_tools(
    space: Workspace, answering: Answering, outside: Path, mode: str
) -> None:
    place = outside if mode == "workspace-write" else space.work
    model = answering(
        bash(f"echo x > {place}/new"),
        call("write", file_path=f"{place}/new", content="x"),
        bash(f"ls {place} && cat /etc/hostname > /dev/null"),
        text("done"),
    )

    done = space.run("run", "do it", env={"DSH_PERMISSION_MODE": mode})

    assert done.code == 0, done.stderr
    by_bash, by_write, reading = results(model)
    for result in (by_bash, by_write):
        assert DENIED.format(mode) in result
        assert "[sandbox: escalation available — " in result
    assert "[sandbox" not in reading
    assert not (place / "new").exists()


def test_a_wider_mode_is_refused_where_nobody_is_there_and_the_run_goes_on(
    space: Workspace, answering: Answering, outside: Path
) -> None:
    model = answering(
        wider("danger-full-access", bash, f"echo x > {outside}/new"),
        wider("workspace-write", bash, "true"),
        text("done"),
    )

    done = space.run("run", "do it")

    assert done.code == 0
    refused, not_wider = results(model)
    assert "nobody is there to give it" in refused
    assert "is not wider than 'workspace-write'" in not_wider
    assert [data.get("outcome") for data in logged(space, "approval/asked", "approval/decided")] == [
        None,
        "unavailable",
    ]
    assert len([line for line in done.errors if "needed an approval and nobody is there" in line]) == 1
    assert not (outside / "new").exists()


def test_a_granted_mode_counts_for_one_call(space: Workspace, answering: Answering, outside: Path) -> None:
    space.write("yes.py", YES)
    space.write("p.yml", "- insert: [{id: yes, name: ./yes.py}]\n")
    model = answering(
        wider("danger-full-access", bash, f"echo x > {outside}/one"),
        bash(f"echo x > {outside}/two"),
        wider(
            "danger-full-access",
            lambda: call("write", file_path=f"{outside}/three", content="x"),
        ),
        call("write", file_path=f"{outside}/four", content="x"),
        text("done"),
    )

    done = space.run("run", "--patch", "p.yml", "do it")

    assert done.code == 0, done.stderr
    assert {path.name for path in outside.iterdir()} == {"one", "three"}
    marks = [DENIED.format("workspace-write") in result for result in results(model)]
    assert marks == [False, True, False, True]


def test_a_session_works_alike_within_every_kind_of_walls(
    space: Workspace, answering: Answering, outside: Path, walls: str
) -> None:
    """Commands, jobs, hooks and file tools: one temporary folder, one workspace, spilled output for all."""
    hook = f"echo hook > $TMPDIR/hook; echo x > {outside}/hook; echo $TMPDIR > hook-where"
    command = {"type": "command", "command": hook}
    space.write("hooks.json", json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [command]}]}}))
    space.write(
        "p.yml",
        "- insert: [{id: h, name: hooks-claude-code, config: {configPath: !expr here('hooks.json')}}]\n",
    )
    model = answering(
        bash("cat $TMPDIR/hook; echo kept > $TMPDIR/note; echo $TMPDIR > where"),
        bash("seq 60000"),
        call("bash", command="tail -1 $(find $TMPDIR/../shared -type f); cat $TMPDIR/note"),
        call("bash", command=f"cat $TMPDIR/note; echo x > {outside}/job", run_in_background=True),
        call("job_output", job_id="bash-1", wait=True),
        call("write", file_path=f"{outside}/write", content="x"),
        call("write", file_path="written", content="x"),
        text("done"),
    )

    done = space.run("run", "--patch", "p.yml", "do it")

    assert done.code == 0, done.stderr
    by_hook, _, spilled, _, job, denied, written = results(model)
    assert by_hook == "hook\n"
    assert spilled == "60000\nkept\n"
    assert "kept" in job and DENIED.format("workspace-write") in job
    assert DENIED.format("workspace-write") in denied and "[sandbox" not in written
    where = (space.work / "where").read_text()
    assert (space.work / "hook-where").read_text() == where
    assert not Path(where.strip()).parent.exists()
    assert not list(outside.iterdir())


def test_a_hidden_path_is_hidden_from_every_tool(
    space: Workspace, answering: Answering, outside: Path
) -> None:
    (outside / "keys").mkdir()
    (outside / "keys" / "id").write_text("hush")
    space.write("p.yml", f"- {{id: sandbox-policy, merge: {{hiddenPaths: [{outside}/keys]}}}}\n")
    model = answering(
        bash(f"cat {outside}/keys/id"),
        call("read", file_path=f"{outside}/keys/id"),
        call("grep", pattern="hush", path=str(outside)),
        call("glob", pattern="**/*", path=str(outside)),
        text("done"),
    )

    assert space.run("run", "--patch", "p.yml", "do it").code == 0

    assert len(results(model)) == 4
    assert not any("hush" in result for result in results(model)[:2])
    assert not any("keys/id" in result for result in results(model)[3:])


def test_a_killed_run_takes_its_commands_with_it(space: Workspace, answering: Answering, walls: str) -> None:
    mark = f"dsh-{os.urandom(4).hex()}"
    answering(bash(f"touch begun; exec -a {mark} sleep 300"), text("done"))

    process = space.start("run", "do it")
    wait_until((space.work / "begun").exists, process)
    wait_until(lambda: _named(mark), process)
    running = _named(mark)
    process.kill()
    process.communicate()

    assert running and all(is_gone(pid, 20) for pid in running)


def _named(mark: str) -> list[int]:
    """The processes whose first word it is."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().split(b"\0")[0] == mark.encode():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_without_bubblewrap_landlock_confines(
    landlock_only: Workspace, answering: Answering, outside: Path
) -> None:
    model = answering(bash(f"echo x > in; echo x > {outside}/new"), text("done"))

    done = landlock_only.run("run", "do it")

    assert (done.code, done.stderr) == (0, "")
    assert DENIED.format("workspace-write") in results(model)[0]
    assert (landlock_only.work / "in").exists() and not (outside / "new").exists()


def test_a_strict_deployment_refuses_partial_walls(landlock_only: Workspace, answering: Answering) -> None:
    model = answering(text("never"))
    landlock_only.write("p.yml", "- {id: sandbox, merge: {requireFull: true}}\n")

    done = landlock_only.run("run", "--patch", "p.yml", "do it")

    assert done.code == 3 and "landlock: only partial" in done.stderr
    assert "install bubblewrap" in done.stderr
    assert model.bodies() == []
