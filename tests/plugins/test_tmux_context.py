"""Row `tmux-context`: told is what a real tmux says, once, and nothing where anything is amiss."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dsh.agent.contract import AGENT_PRE_STEP
from dsh.capabilities.shell import SHELL
from dsh.kernel import Context
from dsh.plugins import bash_local, shell_env, tmux_context
from dsh.plugins import subprocess as subprocess_row
from dsh.plugins.tmux_context import Panes, Terminal, described, own_terminal
from dsh.session.log import Session
from tests.agent.kit import loop, text
from tests.aio import aio
from tests.process import wait_until

ROWS: list[Any] = [(subprocess_row, {}), (shell_env, {}), (bash_local, {})]
PANES = ["0 inactive 80x12 bash", "1 active 80x11 vi"]
ANSWER = ["/dev/pts/7", "work", "2", "edit", "1", "b25d,80x24,0,0,1", *PANES]


def told(session: Session) -> list[str]:
    return [
        e.data["content"][0]["text"]
        for e in session.events()
        if e.type == "user/message" and e.data["source"].get("plugin") == "tmux-context"
    ]


def listening(terminal: Callable[[], Terminal | None], interval: int = 0) -> Callable[[Context], None]:
    def listen(ctx: Context) -> None:
        ctx.on(AGENT_PRE_STEP, Panes(lambda: ctx.get(SHELL), interval, terminal).before_step)

    return listen


def test_the_answer_is_put_into_words() -> None:
    assert described("\n".join([*ANSWER, ""]), "/dev/pts/7") == (
        "You run in tmux: session work, window 2 (edit), pane 1, layout b25d,80x24,0,0,1.\n"
        "Panes of this window (index, state, size, what runs in it):\n"
        "- 0 inactive 80x12 bash\n- 1 active 80x11 vi"
    )


@pytest.mark.parametrize(
    "output", ["", "/dev/pts/7", "\n".join(ANSWER[:6]), "\n".join(["/dev/pts/8", *ANSWER[1:]]), "no server"]
)
def test_another_terminal_or_no_answer_is_nothing(output: str) -> None:
    assert described(output, "/dev/pts/7") is None


def test_names_that_programs_chose_are_one_line_and_bounded() -> None:
    lines = list(ANSWER)
    lines[1], lines[3] = "a\x1b[31mb\u202e", "x" * 5000
    seen = described("\n".join([*lines, *["0 active 1x1 sh"] * 40]), "/dev/pts/7")

    assert seen is not None
    assert "session a\ufffd[31mb\ufffd, window" in seen
    assert "x" * 101 not in seen
    assert seen.endswith("- and 22 more")


def test_a_process_without_tmux_or_terminal_has_no_pane() -> None:
    assert own_terminal({}) is None
    assert own_terminal({"TMUX": "/tmp/s,1,0"}) is None
    assert own_terminal({"TMUX_PANE": "%1"}) is None


NOWHERE = Terminal("/dev/pts/7", "/no/such/socket", "%0")


@pytest.mark.parametrize("terminal", [None, NOWHERE, Terminal("/dev/pts/7", "$(touch x)", "'")])
@aio
async def test_whatever_fails_nothing_is_told(terminal: Terminal | None) -> None:
    async with loop(rows=ROWS, first=listening(lambda: terminal)) as run:
        agent = await run.agent()
        await run.prompt(agent, "go")

        assert told(agent.session) == []


@aio
async def test_without_a_shell_nothing_is_told() -> None:
    async with loop(first=listening(lambda: Terminal("/dev/pts/7", "s", "%0"))) as run:
        agent = await run.agent()
        await run.prompt(agent, "go")

        assert told(agent.session) == []


# -- a real tmux -----------------------------------------------------------------------------------


class Tmux:
    """A server of our own, with one pane."""

    def __init__(self, folder: Path) -> None:
        self.socket = str(folder / "socket")
        self.run("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "-s", "work", "sleep 1000")
        self.pane = self.run("display-message", "-p", "-t", "work", "#{pane_id}")
        self.tty = self.run("display-message", "-p", "-t", "work", "#{pane_tty}")

    def run(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", self.socket, *words], capture_output=True, text=True, check=True, timeout=20
        )
        return done.stdout.strip()


@pytest.fixture
def tmux() -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a socket's path is short
        server = Tmux(Path(folder))
        yield server
        server.run("kill-server")


@aio
async def test_a_pane_is_told_once_and_again_when_it_has_changed(tmux: Tmux) -> None:
    terminal = Terminal(tmux.tty, tmux.socket, tmux.pane)
    replies = [text("one"), text("two"), text("three")]
    async with loop(*replies, rows=ROWS, first=listening(lambda: terminal)) as run:
        agent = await run.agent()
        await run.prompt(agent, "go")
        await run.prompt(agent, "go on")
        [first] = told(agent.session)
        assert first.startswith("You run in tmux: session work, window 0 (")
        assert "- 0 active 80x" in first

        tmux.run("rename-window", "-t", "work", "another name")
        await run.prompt(agent, "and on")

        assert "(another name)" in told(agent.session)[1]


@aio
async def test_the_pane_of_another_terminal_is_not_told(tmux: Tmux) -> None:
    terminal = Terminal("/dev/pts/99999", tmux.socket, tmux.pane)
    async with loop(rows=ROWS, first=listening(lambda: terminal)) as run:
        agent = await run.agent()
        await run.prompt(agent, "go")

        assert told(agent.session) == []


@aio
async def test_within_the_interval_tmux_is_not_asked(tmux: Tmux) -> None:
    terminal = Terminal(tmux.tty, tmux.socket, tmux.pane)
    async with loop(text("x"), rows=ROWS, first=listening(lambda: terminal, 600_000)) as run:
        agent = await run.agent()
        await run.prompt(agent, "go")
        tmux.run("rename-window", "-t", "work", "another name")
        await run.prompt(agent, "go on")

        assert len(told(agent.session)) == 1


def test_a_process_in_a_pane_finds_its_own_terminal(tmux: Tmux, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = (
        "import os, pathlib; from dsh.plugins.tmux_context import own_terminal; "
        f"pathlib.Path({str(out)!r}).write_text(repr(tuple(own_terminal(os.environ))))"
    )
    tmux.run("new-window", "-d", "-t", "work:", "-c", str(Path.cwd()), sys.executable, "-c", code)

    wait_until(lambda: out.exists() and out.read_text())

    tty, socket, pane = eval(out.read_text())
    assert tty.startswith("/dev/pts/")
    assert (Path(socket).resolve(), pane) == (Path(tmux.socket).resolve(), "%1")


@aio
async def test_the_row_listens() -> None:
    async with loop(rows=[*ROWS, (tmux_context, {})]) as run:
        agent = await run.agent()
        await run.prompt(agent, "go")

        assert told(agent.session) == []
