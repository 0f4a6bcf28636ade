"""A process that stays: its patch files are edited, and its rows follow."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from dsh.testing.workspace import PROGRAM, Workspace, finish, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import bash, text
from tests.process import wait_until

ROW = """
def apply(ctx, config):
    say(f"up {config}")
    return lambda: say("down")
"""
SAY = """
import os
def say(text):
    with open(os.environ["TRACE"], "a") as trace:
        trace.write(text + "\\n")
"""


class Alive:
    """A running dsh with an app that does nothing and a row that writes down when it starts and ends."""

    def __init__(self, space: Workspace, process: "subprocess.Popen[bytes]", trace: Path) -> None:
        self.space, self.process, self.trace = space, process, trace
        self.patch = space.home / "dsh.patch.yml"

    def lines(self) -> list[str]:
        return self.trace.read_text().splitlines() if self.trace.exists() else []

    def await_lines(self, wanted: Callable[[list[str]], bool]) -> list[str]:
        """Wait until the trace is as wanted; a run that is too slow fails the test."""
        wait_until(lambda: wanted(self.lines()), self.process)
        return self.lines()

    def end(self) -> list[str]:
        """Stop it; the lines it has said on standard error."""
        self.process.send_signal(signal.SIGTERM)
        done = finish(self.process)
        assert (done.code, done.stdout) == (143, "")
        return done.errors


def write(path: Path, text: str) -> None:
    """Replace a file in one step, as editors do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(path.name + ".new")
    made.write_text(text)
    made.replace(path)


WITHOUT_WATCHFILES = (
    sys.executable,
    "-P",
    "-c",
    "import sys; sys.modules['watchfiles'] = None\nfrom dsh.cli.main import main\nsys.exit(main())",
)
LISTING = (
    sys.executable,
    "-P",
    "-c",
    "import atexit, sys; atexit.register(lambda: sys.stderr.write(' '.join(sys.modules)))\n"
    "from dsh.cli.main import main\nsys.exit(main())",
)


@contextlib.contextmanager
def staying(space: Workspace, *words: str, env: Mapping[str, str] = {}) -> Iterator[Alive]:
    """A profile `stay` of its own, started and up."""
    folder = space.home / "profiles/stay"
    write(folder / "profile.yml", "bundles: []\n")
    write(folder / "app.py", SAY + "inject = ['appExit']\ndef apply(ctx): say('app')\n")
    write(folder / "row.py", SAY + ROW)
    write(
        folder / "dsh.patch.yml",
        "- insert:\n    - {id: app, name: ./app.py}\n    - {id: row, name: ./row.py, config: {n: 0}}\n",
    )
    trace = space.root / "trace"
    process = space.start("--profile", "stay", *words, env={"TRACE": str(trace), **env})
    try:
        running = Alive(space, process, trace)
        running.await_lines(lambda lines: len(lines) == 2)
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.mark.parametrize("program", [PROGRAM, WITHOUT_WATCHFILES], ids=["watchfiles", "by looking"])
def test_an_edit_of_a_file_that_was_not_there_restarts_the_row_it_changes_and_no_other(
    tmp_path: Path, program: tuple[str, ...]
) -> None:
    with staying(Workspace(tmp_path, program=program)) as alive:
        write(alive.patch, "- {id: row, config: {n: 1}}\n")
        lines = alive.await_lines(lambda lines: lines[-1] == "up {'n': 1}")
        assert sorted(lines[:2]) == ["app", "up {'n': 0}"]
        assert lines[2:] == ["down", "up {'n': 1}"]
        assert alive.end() == [f"dsh: {alive.patch}: applied; changed rows: row"]


def test_a_broken_file_changes_nothing_and_the_next_good_one_counts_until_it_is_deleted(
    space: Workspace,
) -> None:
    with staying(space) as alive:
        write(alive.patch, "- {id: row, config: {n: 1}}\n")
        alive.await_lines(lambda lines: lines[-1] == "up {'n': 1}")
        write(alive.patch, "- {id: row, config: {n: 2}\n")
        time.sleep(1.5)  # the file is looked at every second
        write(alive.patch, "- {id: row, config: {n: 3}}\n")
        alive.await_lines(lambda lines: lines[-1] == "up {'n': 3}")
        alive.patch.unlink()
        alive.await_lines(lambda lines: lines[-1] == "up {'n': 0}")
        assert not any("2" in line for line in alive.lines())
        said = alive.end()
        assert [line for line in said if ": not applied, the rows run on as before: " in line]
        assert sum(": applied; changed rows: row" in line for line in said) == 3


def test_an_edit_whose_row_fails_puts_the_old_one_back(space: Workspace) -> None:
    with staying(space) as alive:
        write(
            space.home / "bad.py",
            "def apply(ctx):\n    raise RuntimeError('it broke')\n",
        )
        write(alive.patch, "- {id: row, config: {n: 1}}\n- insert: [{id: bad, name: ./bad.py}]\n")
        lines = alive.await_lines(lambda lines: len(lines) > 4 and lines[-1] == "up {'n': 0}")
        assert lines[2:] == ["down", "up {'n': 1}", "down", "up {'n': 0}"]
        first, second = alive.end()
        assert first.endswith(
            "not applied, the rows are as before, but restarted: row: 1 entry did not activate:"
        )
        assert second.startswith("bad (./bad.py): RuntimeError: it broke (")


def test_an_edit_that_takes_the_app_away_is_refused_like_a_start_without_one(space: Workspace) -> None:
    with staying(space) as alive:
        write(alive.patch, "- {id: app, disabled: true}\n- {id: row, config: {n: 1}}\n")
        lines = alive.await_lines(lambda lines: len(lines) > 2 and lines[-1] == "up {'n': 0}")
        assert "up {'n': 1}" in lines
        [said] = alive.end()
        told = "not applied, the rows are as before, but restarted: app, row: profile 'stay' has no app"
        assert told in said


def test_an_edit_whose_code_blocks_everything_ends_the_process_by_the_name_of_its_row(
    space: Workspace,
) -> None:
    write(space.home / "odd.py", "import time\ntime.sleep(1000)\n")
    with staying(space, env={"DSH_START_TIMEOUT": "1"}) as alive:
        write(alive.patch, "- insert: [{id: odd, name: ./odd.py}]\n")
        done = finish(alive.process)
        at = f"{space.home}/odd.py:2"
        assert (done.code, done.errors) == (
            3,
            [f"dsh: odd (./odd.py): still importing after 1 s, blocked at {at}"],
        )


@pytest.mark.parametrize("wait_s", [0.0, 0.1])
def test_a_signal_in_the_middle_of_an_edit_undoes_what_has_started(space: Workspace, wait_s: float) -> None:
    slow = (
        "import asyncio\nasync def apply(ctx):\n    say('slow')\n"
        "    ctx.effect(lambda: lambda: say('slow down'))\n    await asyncio.sleep(60)\n"
    )
    write(space.home / "slow.py", SAY + slow)
    with staying(space) as alive:
        write(alive.patch, "- {id: row, config: {n: 1}}\n- insert: [{id: slow, name: ./slow.py}]\n")
        alive.await_lines(lambda lines: "slow" in lines and "up {'n': 1}" in lines)
        time.sleep(wait_s)
        assert alive.end() == []
        assert sorted(alive.lines()[2:]) == sorted(["down", "slow", "up {'n': 1}", "slow down", "down"])


def test_what_stands_in_the_place_of_a_file_is_named_and_changes_nothing(space: Workspace) -> None:
    with staying(space) as alive:
        write(alive.patch, "- {id: row, config: {n: 1}}\n")
        alive.await_lines(lambda lines: lines[-1] == "up {'n': 1}")
        for spoil in (os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path)):
            alive.patch.unlink()
            spoil(alive.patch)
            time.sleep(1.5)
            if alive.patch.is_dir():
                alive.patch.rmdir()
                alive.patch.touch()
        target = space.write("real.yml", "- {id: row, config: {n: 2}}\n")
        link = space.home / "link"
        link.symlink_to(target)
        link.replace(alive.patch)
        alive.await_lines(lambda lines: lines[-1] == "up {'n': 2}")
        target.write_text("- {id: row, config: {n: 3}}\n")
        lines = alive.await_lines(lambda lines: lines[-1] == "up {'n': 3}")
        said = alive.end()
        for problem in ("a pipe that nobody has written to", "Is a directory", "Too many levels"):
            assert sum(f"failed to read {alive.patch}: {problem}" in line for line in said) == 1, said
        assert [line for line in lines if "up" in line] == [f"up {{'n': {n}}}" for n in (0, 1, 2, 3)]


def test_many_edits_in_a_row_end_at_the_last_one(space: Workspace) -> None:
    with staying(space) as alive:
        time.sleep(1.5)  # the files are watched from the first second on
        for n in range(50):
            write(alive.patch, f"- {{id: row, config: {{n: {n}}}}}\n")
        lines = alive.await_lines(lambda lines: lines[-1] == "up {'n': 49}")
        assert lines.count("down") == lines.count("app") + sum(line.startswith("up") for line in lines) - 2
        alive.end()


def test_what_is_fixed_at_the_start_is_only_mentioned(space: Workspace) -> None:
    overlay = space.write("over.yml", "- {id: row, config: {n: 5}}\n")
    with staying(space, "--patch", str(overlay)) as alive:
        time.sleep(1.5)
        write(overlay, "- {id: row, config: {n: 6}}\n")
        manifest = space.home / "profiles/stay/profile.yml"
        write(manifest, "bundles: [headless]\n")
        time.sleep(1.5)
        write(alive.patch, "- {id: row, disabled: true}\n")
        lines = alive.await_lines(lambda lines: lines[-1] == "down")
        assert sorted(lines[:2]) == ["app", "up {'n': 5}"]
        said = alive.end()
        for path in (overlay, manifest):
            assert f"dsh: {path} has changed; it takes effect with the next start" in said


def test_a_locked_run_follows_no_file(space: Workspace) -> None:
    with staying(space) as alive:
        dumped = space.run("--profile", "stay", "--dump-config", "--lock")
        alive.end()
    lock = space.write("lock.yml", dumped.stdout)
    (space.root / "trace").unlink()
    with staying(space, "--locked", str(lock)) as alive:
        time.sleep(1.5)
        write(alive.patch, "- {id: row, config: {n: 1}}\n")
        time.sleep(2.5)
        assert len(alive.lines()) == 2
        assert alive.end() == []


def test_a_task_that_is_being_done_is_not_torn_from_what_it_uses(space: Workspace) -> None:
    process = space.start(
        "--profile", "demo", "Run: touch started; while [ ! -e done ]; do sleep 0.1; done; echo over"
    )
    try:
        wait_until((space.work / "started").exists, process)
        time.sleep(1.2)
        patch = space.home / "dsh.patch.yml"
        write(patch, "- {id: agent-loop, merge: {maxParallelToolCalls: 3}}\n")
        time.sleep(1.5)
        write(patch, "- {id: bash-sandbox, merge: {graceMs: 100}}\n")
        time.sleep(1.5)
        write(patch, "- {id: session-title, merge: {maxTitleBytes: 70}}\n")
        time.sleep(1.5)
        space.write("done", "")
        done = finish(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert (done.code, done.stdout) == (0, "over\n\n"), done.stderr
    said = [line for line in done.errors if line.startswith(f"dsh: {patch}")]
    assert said[0] == (
        f"dsh: {patch}: not applied: agent-loop (agent-loop) cannot change now: headless-runner is doing its "
        "task; it takes effect with the next start"
    )
    assert said[1] == (
        f"dsh: {patch}: not applied: bash-sandbox (bash-sandbox) cannot change now: tool bash is running; "
        "it takes effect with the next start"
    )
    assert said[2:] == [f"dsh: {patch}: applied; changed rows: session-title"]


@pytest.mark.parametrize("change", ["disabled: true", "merge: {maxTokens: 777}"])
def test_an_edit_of_the_model_s_adapter_is_refused_while_a_turn_uses_its_route(
    space: Workspace, answering: Callable[..., Model], change: str
) -> None:
    """Between two steps no request is under way, yet the turn is not done with its model."""
    wait = bash("touch started; while [ ! -e done ]; do sleep 0.1; done; echo one")
    model = answering(wait, text("over"))
    process = space.start("--profile", "headless", "go")
    try:
        wait_until((space.work / "started").exists, process)
        time.sleep(1.2)
        write(space.home / "dsh.patch.yml", f"- {{id: llm-deepseek, {change}}}\n")
        time.sleep(1.5)
        space.write("done", "")
        done = finish(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert (done.code, done.stdout) == (0, "over\n"), done.stderr
    assert done.errors == [
        f"dsh: {space.home}/dsh.patch.yml: not applied: llm-deepseek (llm-deepseek) cannot change now: "
        "a turn that uses model route deepseek-official is running; it takes effect with the next start"
    ]
    assert [body["max_tokens"] for body in model.bodies()] == [256_000, 256_000]
    kinds = [row.get("type") for row in log_rows(space.logs()[0])]
    assert (kinds.count("assistant/message"), kinds.count("turn/end"), "llm/retry" in kinds) == (2, 1, False)
    assert json.loads(space.run("sessions", "inspect", str(space.logs()[0]), "--json").stdout)["lastType"]


def test_a_short_run_loads_nothing_for_live_reload(tmp_path: Path) -> None:
    done = Workspace(tmp_path, program=LISTING).run("--profile", "demo", "hello")
    assert done.code == 0
    loaded = set(done.errors[-1].split())
    later = ("reload", "watch", "transaction", "changes", "graph", "overlay", "editing", "write_back")
    assert "dsh.composition.mount.loader" in loaded
    assert (
        loaded
        & {
            "watchfiles",
            "anyio.to_thread",
            "dsh.composition.text.edit",
            *(f"dsh.composition.mount.{name}" for name in later),
        }
        == set()
    )
