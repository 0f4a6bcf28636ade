"""Replays a log in this process: the rows of `dsh replay` on a kernel of the test's own.

What a process adds (its command line, streams, signals, exit) is tested where that is the subject.
"""

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from dsh.capabilities.headless import HEADLESS_STARTUP, HeadlessOptions
from dsh.capabilities.launch import (
    APP_EXIT,
    APP_OUTPUT,
    BOOT,
    CMDLINE_ARGS,
    HOME_PATH,
    LAUNCH_ENVIRONMENT,
)
from dsh.capabilities.recorded import RECORDED
from dsh.capabilities.replay import REPLAY, ReplayReport, ReplayTask
from dsh.cli.replay import LAYER, first_prompt, task_of
from dsh.cli.replay_report import as_text
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.target import find_log
from dsh.composition.compose import Composition, compose
from dsh.composition.environment import Environment
from dsh.composition.home import HomePaths
from dsh.composition.mount.loader import Facts, Loader
from dsh.composition.profile import shipped
from dsh.errors import DshError
from dsh.kernel import Context
from dsh.session.replay.cursor import Divergence
from dsh.testing.workspace import log_rows

Rows = list[dict[str, Any]]

TIMEOUT_S = 60.0
LAST = shipped(*LAYER)
NO_HOME = Path("/nonexistent/home")


class Outcome(NamedTuple):
    """What a replay came to."""

    code: int
    report: ReplayReport | None
    """None where the log was refused or the replay failed."""
    told: str
    """The report as text, or code and reason of the refusal."""

    @property
    def divergence(self) -> Divergence | None:
        assert self.report is not None, self.told
        return self.report.divergence

    @property
    def difference(self) -> Divergence:
        """The divergence that must be there."""
        assert self.divergence is not None, self.told
        return self.divergence


class _Launcher:
    """The services of the launcher, as far as rows ask for them. State: what the app said, how it ended."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.gate = asyncio.Event()
        self.answered: list[str] = []
        self.noticed: list[str] = []

    def get(self) -> tuple[str, ...]:
        return ()

    def __call__(self, code: int) -> None:
        if not self.ended.done():
            self.ended.set_result(code)

    def answer(self, text: str) -> None:
        self.answered.append(text)

    def notice(self, text: str) -> None:
        self.noticed.append(text)

    async def ready(self) -> None:
        await self.gate.wait()


def replayed(log: Path, *patches: Path, directory: Path | None = None) -> Outcome:
    """Replay a log file, with live tools where a directory is given for them."""
    reports: list[ReplayReport] = []

    def show(report: ReplayReport) -> str:
        reports.append(report)
        return as_text(report)

    try:
        view = find_log(str(log), Place("", "")).view()
        task = task_of(view, directory=None if directory is None else str(directory), show=show)
    except DshError as error:
        return Outcome(error.exit_code, None, f"{error.code}: {error}")
    code, told = asyncio.run(_run(task, patches))
    return Outcome(code, reports[0] if reports else None, told)


@cache
def _headless() -> Composition:
    return compose("headless", [LAST], NO_HOME)


async def _run(task: ReplayTask, patches: Sequence[Path]) -> tuple[int, str]:
    root, launcher = Context(), _Launcher()
    environment = Environment({"PATH": os.environ["PATH"], "DSH_PERMISSION_MODE": "danger-full-access"}, [])
    root.provide(LAUNCH_ENVIRONMENT, environment)
    root.provide(CMDLINE_ARGS, launcher)
    root.provide(APP_EXIT, launcher)
    root.provide(APP_OUTPUT, launcher)
    root.provide(HOME_PATH, HomePaths(NO_HOME))
    root.provide(BOOT, launcher)
    root.provide(REPLAY, task)
    if task.tools == "recorded":
        root.provide(RECORDED, task.given)
    root.provide(HEADLESS_STARTUP, HeadlessOptions(first_prompt(task.recording)))
    composition = _headless() if not patches else compose("headless", [*patches, LAST], NO_HOME)
    cwd = task.directory or task.recording.header.cwd or "/"
    try:
        loader = Loader(root, Facts(NO_HOME, "headless", cwd, environment.mapping()))
        await loader.load(composition)
        loader.require_active()
        launcher.gate.set()
        code = await asyncio.wait_for(launcher.ended, TIMEOUT_S)
    finally:
        await root.dispose()
    return code, "".join(launcher.answered) + "\n".join(launcher.noticed)


def rewritten(log: Path, change: Callable[[Rows], None]) -> Path:
    """A plain copy of a log, beside it, with something changed."""
    rows = log_rows(log)
    change(rows)
    path = log.with_name("changed.jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def without_digests(rows: Rows) -> None:
    """Make the rows those of a writer that logs no digests; their places in the log stay."""
    for row in rows:
        if row["type"] == "request/digest":
            row["type"] = "acme/nothing"
