"""`dsh replay`: reads a session, then boots a profile whose app runs it again (`design.md` §10.16).

Nothing is written: the replayed session is held in memory only, and the rows that store, query and report
sessions are not mounted.
"""

import gc
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from dsh.agent.registry import AGENTS
from dsh.capabilities.headless import HEADLESS_STARTUP, HeadlessOptions
from dsh.capabilities.launch import APP_EXIT, LaunchEnvironment
from dsh.capabilities.recorded import RECORDED
from dsh.capabilities.replay import REPLAY, ReplayReport, ReplayTask, ReplayTools
from dsh.cli.argv import Invocation
from dsh.cli.boot import Embedding, boot
from dsh.cli.notice import unconfined_notice
from dsh.cli.process import Watchdog
from dsh.cli.replay_report import as_json, as_text
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.reading import opened
from dsh.composition.compose import Composition
from dsh.composition.profile import shipped
from dsh.errors import CompositionError, DshError, UsageError
from dsh.kernel import Context
from dsh.persistence.view import LogView
from dsh.session.chunk_run import ChunkRun, entry_start
from dsh.session.message import text_of
from dsh.session.replay.cursor import Divergence
from dsh.session.replay.recording import Recording
from dsh.session.verify.log import verify
from dsh.session.vocabulary import payload_fault

APP = "replay-runner"
LAYER = ("bundles", "replay.yml")
FAILED = 1
NOTHING = "nothing to replay"
DIGEST_DIFFERS = "DIGEST_DIFFERS"


class ReplayWish(NamedTuple):
    """The command line."""

    session: str
    tools: str
    directory: str
    profile: str
    patches: tuple[str, ...]
    root: str
    as_json: bool


def replayed(wish: ReplayWish) -> int:
    """Replay a session; answers the exit code: 0 only where nothing differs.

    Raises:
        UsageError: flags that do not fit together, or no such directory.
        CompositionError: the profile does not compose.
        DshError: the session holds nothing that could be replayed.
    """
    directory = _directory(wish)
    found = opened(wish.session, Place(wish.root, wish.profile if wish.profile != "headless" else ""))
    if found is None:
        return FAILED
    task = task_of(found.view, directory=directory, show=as_json if wish.as_json else as_text)
    here = str(Path.cwd())
    patches = tuple(str(Path(here, patch)) for patch in wish.patches)
    if directory is not None:
        os.chdir(directory)

    def provide(root: Context) -> None:
        root.provide(REPLAY, task)
        if task.tools == "recorded":
            root.provide(RECORDED, task.given)
        root.provide(HEADLESS_STARTUP, HeadlessOptions(first_prompt(task.recording)))

    def notices(root: Context, environment: LaunchEnvironment, composition: Composition) -> list[str]:
        text = None if directory is None else unconfined_notice(root, environment, composition)
        return [] if text is None else [text]

    cwd = directory or task.recording.header.cwd or here
    embedding = Embedding(shipped(*LAYER), provide, cwd, notices, _require_no_other_app)
    watchdog = Watchdog().install()
    gc.disable()
    return boot(Invocation("boot", wish.profile, patches), watchdog, embedding)


def task_of(
    view: LogView, *, directory: str | None = None, show: Callable[[ReplayReport], str]
) -> ReplayTask:
    """What is to be replayed of a log.

    Args:
        directory: where live tools work; None for recorded ones.

    Raises:
        DshError: nothing in it can be replayed.
    """
    _check_payloads(view)
    recording = Recording(view.header, view.walk())
    _check(recording)
    tools: ReplayTools = "recorded" if directory is None else "live"
    return ReplayTask(recording=recording, tools=tools, directory=directory, doubt=_doubt(view), show=show)


def _directory(wish: ReplayWish) -> str | None:
    if wish.tools not in ("recorded", "live"):
        raise UsageError(f"--tools is recorded or live, found {wish.tools!r:.60}")
    if wish.tools == "recorded":
        if wish.directory:
            raise UsageError("--in is for live tools: recorded ones touch no file", hint="add --tools live")
        return None
    if not wish.directory:
        raise UsageError(
            "--tools live needs --in DIR: the tools really run there",
            hint="give a copy of the files, for instance --in /tmp/copy",
        )
    path = Path(wish.directory).absolute()
    if not path.is_dir():
        found = "that is no directory" if path.exists() else "there is no such directory"
        raise UsageError(f"--in {wish.directory}: {found}", hint="give a copy of the files")
    return str(path.resolve())


def _check_payloads(view: LogView) -> None:
    """Refuse a log with an event that is not what its type says: it could not be taken apart."""
    for entry in view.walk():
        fault = None if isinstance(entry, ChunkRun) else payload_fault(entry.type, entry.data)
        if fault is not None:
            raise DshError(
                f"session {view.header.id} cannot be replayed: seq {entry_start(entry)}: {fault}",
                code="INVALID_EVENT",
                hint="dsh sessions verify tells all that is wrong with the log",
            )


def _check(recording: Recording) -> None:
    """Refuse a log in which nothing was done."""
    if not any(event.type == "turn/start" for event in recording.marks):
        raise DshError(
            f"session {recording.header.id} has no turn: {NOTHING}",
            code="NOTHING_TO_REPLAY",
            hint="dsh sessions show prints what it holds",
        )
    begun = itertools.takewhile(lambda event: event.type != "turn/start", recording.marks)
    if not any(event.type == "agent/inbox/spliced" for event in begun):
        raise DshError(
            f"session {recording.header.id} does not tell what came in: its log has no inbox",
            code="INPUTS_NOT_RECORDED",
            hint="its replies can be served to another run: row llm-replay",
        )
    if (seeded := recording.header.seed_length) is not None and not any(
        event.type == "turn/start" and event.seq >= seeded for event in recording.marks
    ):
        raise DshError(
            f"session {recording.header.id} has no turn of its own since it was forked: {NOTHING}",
            code="NOTHING_TO_REPLAY",
            hint=f"replay the session it came from: dsh replay {recording.header.parent_session}",
        )


def _doubt(view: LogView) -> Divergence | None:
    """The first place where the log contradicts itself: something was changed after it was written.

    A replay serves what was recorded, so by itself it would not see that a prompt or a result was changed.
    """
    for finding in verify(view).findings:
        if finding.level != "error":
            continue
        is_request = finding.code == DIGEST_DIFFERS
        why = "the log is not what the model was sent" if is_request else "the log contradicts itself"
        problem = f"{why}: {finding.code}: {finding.message}"
        if finding.seq is None:
            return Divergence(problem=problem)
        event = view.event(finding.seq)
        data: Any = event.data
        turn, step = data.get("turn"), data.get("step")
        return Divergence(problem=problem, seq=finding.seq, turn=turn, step=step, type=event.type)
    return None


def _require_no_other_app(root: Context) -> None:
    """Refuse an app that `bundles/replay.yml` does not know: it would do its own work at the same time."""
    enders = root.kernel.injectors.get(APP_EXIT.name, ())
    others = sorted(f.name for f in enders if AGENTS.name in f.inject and not f.name.startswith(APP))
    if others:
        raise CompositionError(
            f"{others[0]} is an app of its own: it makes agents and ends the process",
            hint="take its row out for the replay: --patch FILE with its id and remove: true",
        )


def first_prompt(recording: Recording) -> str:
    """What was asked first, for rows that read it from the command line of the headless app."""
    for event in recording.marks:
        if event.type == "user/message" and event.data["source"].get("kind") == "user":
            return text_of(event.data)
    return ""
