"""`dsh replay`: reads a session, then boots a profile whose app runs it again (`design.md` §10.16).

Nothing is written: the replayed session is held in memory only, and the rows that store, query and report
sessions are not mounted.
"""

import gc
import os
from pathlib import Path
from typing import Any, NamedTuple

from dsh.agent.registry import AGENTS
from dsh.capabilities.headless import HEADLESS_STARTUP, HeadlessOptions
from dsh.capabilities.launch import APP_EXIT, LaunchEnvironment
from dsh.capabilities.replay import REPLAY, ReplayTask, ReplayTools
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
from dsh.session.message import text_of
from dsh.session.replay.cursor import Divergence
from dsh.session.replay.recording import Recording
from dsh.session.verify.log import verify

APP = "replay-runner"
LAYER = ("bundles", "replay.yml")
FAILED = 1
NOTHING = "nothing to replay"
_OF_REQUESTS = frozenset({"DIGEST_DIFFERS"})


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
    recording = Recording(found.view.header, found.view.walk())
    _check(recording)
    show = as_json if wish.as_json else as_text
    tools: ReplayTools = "live" if wish.tools == "live" else "recorded"
    task = ReplayTask(
        recording=recording, tools=tools, directory=directory, doubt=_doubt(found.view), show=show
    )
    here = str(Path.cwd())
    patches = tuple(str(Path(here, patch)) for patch in wish.patches)
    if directory is not None:
        os.chdir(directory)

    def provide(root: Context) -> None:
        root.provide(REPLAY, task)
        root.provide(HEADLESS_STARTUP, HeadlessOptions(_task(recording)))

    def notices(root: Context, environment: LaunchEnvironment, composition: Composition) -> list[str]:
        text = None if directory is None else unconfined_notice(root, environment, composition)
        return [] if text is None else [text]

    cwd = directory or recording.header.cwd or here
    embedding = Embedding(shipped(*LAYER), provide, cwd, notices, _require_no_other_app)
    watchdog = Watchdog().install()
    gc.disable()
    return boot(Invocation("boot", wish.profile, patches), watchdog, embedding)


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
        raise UsageError(f"--in {wish.directory}: there is no such directory")
    return str(path.resolve())


def _check(recording: Recording) -> None:
    """Refuse a log in which nothing was done."""
    if not any(event.type == "turn/start" for event in recording.marks):
        raise DshError(
            f"session {recording.header.id} has no turn: {NOTHING}",
            code="NOTHING_TO_REPLAY",
            hint="dsh sessions show prints what it holds",
        )
    if not any(event.type == "agent/inbox/spliced" for event in recording.marks):
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
    """A request whose recorded digest is not that of the log: something was changed after it was written."""
    for finding in verify(view).findings:
        if finding.code in _OF_REQUESTS and finding.level == "error" and finding.seq is not None:
            data: Any = view.event(finding.seq).data
            return Divergence(
                problem=f"the log is not what the model was sent: {finding.message}",
                seq=finding.seq,
                turn=data.get("turn"),
                step=data.get("step"),
                type=view.event(finding.seq).type,
            )
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


def _task(recording: Recording) -> str:
    """The first prompt, for rows that read it from the command line of the headless app."""
    for event in recording.marks:
        if event.type == "user/message" and event.data["source"].get("kind") == "user":
            return text_of(event.data)
    return ""
