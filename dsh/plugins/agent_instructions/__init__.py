"""Row `agent-instructions`: the files AGENTS.md and CLAUDE.md of a project, given to the model.

At the first step of a session the model gets those of the home, of the project and of the directories down to
the working directory; later those of directories that it touches, and what has changed. All of it is in the
log, as messages of source kind `agent-instructions` (`spec/capabilities-core.md` §20).
"""

import posixpath
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated
from weakref import WeakKeyDictionary

import msgspec

from dsh.agent.contract import AGENT_PRE_STEP, PreStep, PreStepDecision
from dsh.agent.step_context import is_entered, with_context
from dsh.capabilities.bounds import Amount, NonEmpty
from dsh.capabilities.fs import FS, FsError
from dsh.capabilities.launch import HOME_PATH
from dsh.capabilities.recorded import is_given
from dsh.capabilities.sandbox import SANDBOX_POLICY
from dsh.composition.home import DEFAULT_HOME, home_path
from dsh.kernel import Context
from dsh.plugins.agent_instructions.known import KIND
from dsh.plugins.agent_instructions.place import GLOBAL_NAME, resolved, usable_names
from dsh.plugins.agent_instructions.watch import Rules, Watch
from dsh.session.log import Session
from dsh.session.value import MAX_SAFE_INT
from dsh.tools.event import TOOLS_RESULT, Settled

provide = ()

TOUCHING: Mapping[str, str] = {
    "read": "file_path",
    "write": "file_path",
    "edit": "file_path",
    "str_replace_editor": "path",
}
"""The tools whose calls touch a file, with the parameter that names it."""


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    max_bytes: Annotated[int, msgspec.Meta(ge=-MAX_SAFE_INT, le=MAX_SAFE_INT)]
    """How long a text of instructions may be, in bytes; 0 and less turn the row off."""
    max_source_bytes: Amount = 1024 * 1024
    """Files larger than this, in bytes, are not loaded."""
    project_root_markers: list[NonEmpty] = msgspec.field(default_factory=lambda: [".git"])
    """The nearest directory above the working directory that holds one of these is the project."""
    instruction_file_candidates: list[str] = msgspec.field(default_factory=lambda: ["AGENTS.md", "CLAUDE.md"])
    """Names of instruction files; of each directory all that exist are loaded, in this order."""
    local_instruction_file_candidates: list[str] = msgspec.field(
        default_factory=lambda: ["AGENTS.local.md", "CLAUDE.local.md"]
    )
    """Names of files beside them that a person keeps to themselves."""
    dsh_home: str | None = None
    """The directory whose AGENTS.md counts for all projects; unset: the home of dsh."""


class Instructions:
    """The listeners. State: what is known of each session's files, and paths that calls of a tool touched."""

    def __init__(self, ctx: Context, rules: Rules) -> None:
        self._ctx = ctx
        self._rules = rules
        self._watches: WeakKeyDictionary[Session, Watch] = WeakKeyDictionary()
        self._nested: dict[object, list[str]] = {}
        """Paths that calls made by a tool have touched, by the token of the call that made them."""

    async def before_step(
        self, step: PreStep, following: Callable[[], Awaitable[PreStepDecision]]
    ) -> PreStepDecision:
        """Let what the model has to be told enter with the step."""
        decision = await following()
        fs, watch = self._ctx.get(FS), self._watch_of(step.agent.session)
        if fs is None or watch is None or not is_entered(decision, step):
            return decision
        policies = self._ctx.get(SANDBOX_POLICY)
        policy = None if policies is None else policies.resolve(step.agent.session)
        is_touched = watch.is_touched
        try:
            message = await watch.due(fs, step, decision.messages, policy)
        except FsError:
            return decision  # cancelled: the loop ends the step
        if message is None:
            return decision
        if is_touched:
            step.agent.inbox.append("next-step", message)
            step.agent.inbox.remove(message["id"])
        return with_context(step, decision, message)

    def settled(self, settled: Settled) -> None:
        """Note which files a call has touched. What a tool's own calls touched counts with the tool's."""
        execution, result = settled.execution, settled.result
        touched = self._nested.pop(execution.token, [])
        if result.is_error or execution.session is None:
            return
        parameter, cwd = TOUCHING.get(execution.name), execution.cwd
        path = execution.arguments.get(parameter) if isinstance(execution.arguments, Mapping) else None
        if parameter is not None and cwd is not None and isinstance(path, str):
            touched.append(resolved(path, cwd))
        if not touched:
            return
        if execution.parent is not None:
            self._nested.setdefault(execution.parent, []).extend(touched)
        elif (watch := self._watch_of(execution.session)) is not None:
            for path in touched:
                watch.touch(path)

    def _watch_of(self, session: Session) -> Watch | None:
        """None where the session works in no directory."""
        watch, cwd = self._watches.get(session), session.header.cwd
        if watch is None and cwd is not None and posixpath.isabs(cwd):
            watch = self._watches[session] = Watch(
                session, posixpath.normpath(cwd), self._rules, self._ctx.logger.warning
            )
        return watch


def rules_of(ctx: Context, config: Config) -> Rules:
    """What the row looks for, here."""
    paths = ctx.get(HOME_PATH)
    home = home_path(configured=config.dsh_home) if config.dsh_home else (paths() if paths else None)
    is_default = home == home_path(configured=DEFAULT_HOME)
    return Rules(
        max_bytes=config.max_bytes,
        max_source_bytes=config.max_source_bytes,
        markers=tuple(config.project_root_markers),
        names=tuple(usable_names(config.instruction_file_candidates)),
        local_names=tuple(usable_names(config.local_instruction_file_candidates)),
        home=None if home is None else str(home),
        global_path=f"{DEFAULT_HOME if is_default else '$DSH_HOME'}/{GLOBAL_NAME}",
    )


def apply(ctx: Context, config: Config) -> None:
    if config.max_bytes <= 0 or is_given(ctx, kind=KIND):
        return
    instructions = Instructions(ctx, rules_of(ctx, config))
    ctx.on(AGENT_PRE_STEP, instructions.before_step)
    ctx.on(TOOLS_RESULT, instructions.settled)
