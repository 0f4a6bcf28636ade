"""Row `commands`: the slash commands that rows offer, and the way to run one.

Which agent sees which command goes by scope, as with tools. What was asked and what came of it is in the
session's log as a pair, whatever the handler does (`spec/tools.md` §7, `spec/front-ends.md` §9).
"""

import asyncio
import inspect
import itertools
import os
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec

from dsh.agent.grace import Grace, NoOutcome
from dsh.agent.liveness import is_live
from dsh.capabilities.agent import AgentRef, TellableAgent
from dsh.capabilities.commands import (
    COMMANDS,
    COMMANDS_CHANGE,
    Command,
    CommandCall,
    CommandError,
    CommandFailure,
    CommandOutcome,
    CommandsChanged,
    CommandSuccess,
)
from dsh.composition.grammar import closest
from dsh.kernel import Cancelled, CancelToken, Context, Effect, Fiber, Service
from dsh.kernel.foreign import told
from dsh.kernel.layer import Layers
from dsh.session.log import Session
from dsh.tools.leftover import leave_with
from dsh.unicode import valid

provide = [COMMANDS]

NAME = re.compile(r"[a-z][a-z0-9_-]*")
LINE = re.compile(r"/(\S+)(.*)", re.DOTALL)
CANCELLED = "the command was cancelled"
AGENT_ENDED = "the agent ended before the command did"


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The row has no options."""


class _Offer(msgspec.Struct, frozen=True, eq=False):
    """A command and the fiber that registered it."""

    command: Command
    owner: Fiber


class CommandRegistry(Service):
    """Implements `dsh.capabilities.commands.Commands`. State: the layers of commands, a count of calls."""

    provide = COMMANDS

    def __init__(self, ctx: Context) -> None:
        self._layers: Layers[_Offer] = Layers(_duplicate)
        token = os.urandom(4).hex()
        self._ids = (f"cmd-{token}-{number}" for number in itertools.count(1))
        super().__init__(ctx)

    def register(self, command: Command) -> Effect:
        checked, scope = _checked(command), self.ctx.scope
        offer = _Offer(checked, self.ctx.fiber)

        def tell() -> None:
            self.owner_ctx.emit(COMMANDS_CHANGE, CommandsChanged(scope))

        def setup() -> Callable[[], None]:
            remove = self._layers.insert(scope, checked.name, offer)

            def undo() -> None:
                remove()
                tell()

            tell()
            return undo

        return self.ctx.effect(setup, f"command /{checked.name}")

    def list(self, agent: AgentRef | None = None) -> Sequence[Command]:
        offers = self._layers.view(agent)
        return tuple(offers[name].command for name in sorted(offers))

    async def execute(
        self, agent: TellableAgent, line: str, *, signal: CancelToken | None = None
    ) -> CommandOutcome:
        name, raw_input = _parts(line)
        offers = self._layers.view(agent)
        offer = offers.get(name)
        if offer is None:
            raise _unknown(name, offers)
        if not (is_live(self.owner_ctx, agent) and agent.ctx.fiber.accepts_effects):
            raise CommandError(
                f"agent {agent.id} has ended, /{name} cannot run on it", code="CALLER_NOT_LIVE"
            )
        token = CancelToken.any_of(signal)
        call = CommandCall(command_id=next(self._ids), agent=agent, raw_input=raw_input, signal=token)
        pair = _Pair(agent.session, call.command_id)

        def agent_ends() -> None:
            """The log is about to be closed: the pair is completed now, the handler is told to stop."""
            pair.close(CommandFailure(AGENT_ENDED))
            token.cancel({"kind": "disposed"})

        with ExitStack() as undo:
            undo.callback(token.detach)
            undo.callback(agent.ctx.effect(lambda: agent_ends, f"command /{name} under way").release)
            undo.callback(offer.owner.hold(f"command /{name} is running"))
            pair.open(offer.command, raw_input)
            outcome: CommandOutcome = CommandFailure(CANCELLED)  # unless the handler comes to an end
            try:
                outcome = self._sound(agent.session, name, await self._outcome(offer.command, call))
            finally:
                pair.close(outcome)
            return outcome

    async def _outcome(self, command: Command, call: CommandCall) -> object:
        """What the handler answers. What it raises is a failure, and so is not coming back once cancelled."""
        who = f"command /{command.name}"
        try:
            call.signal.raise_if_cancelled()
            return await Grace(call.signal, self._give_up).wait(_answer(command, call), who)
        except (Cancelled, NoOutcome) as error:
            return CommandFailure(CANCELLED if call.signal.cancelled else told(error))
        except Exception as error:
            text = told(error)
            self.owner_ctx.logger.debug("%s failed: %s", who, text, exc_info=error)
            hint = getattr(error, "hint", "")
            return CommandFailure(f"{text}; {hint}" if hint else text)

    def _sound(self, session: Session, name: str, answer: object) -> CommandOutcome:
        """The outcome as it can be logged and shown."""
        if isinstance(answer, CommandFailure) and isinstance(answer.text, str):
            return CommandFailure(valid(answer.text) or f"/{name} failed")
        if isinstance(answer, CommandSuccess) and isinstance(answer.text, str | None):
            seq = answer.source_event_seq
            if seq is not None and not _is_source(session, seq):
                self.owner_ctx.logger.error(
                    "command /%s names event %r as what it did, which is none of the session's", name, seq
                )
                seq = None
            return CommandSuccess(None if answer.text is None else valid(answer.text), seq)
        return CommandFailure(
            f"/{name} answered {type(answer).__name__}, expected CommandSuccess or CommandFailure with a text"
        )

    def _give_up(self, task: "asyncio.Task[Any]", who: str) -> None:
        """A handler that does not end goes with this row, at the latest."""
        self.owner_ctx.logger.warning("%s did not end after it was cancelled; it was given up", who)
        leave_with(self.owner_ctx, task, who)


class _Pair:
    """`command/run` and its one `command/done`. State: whether it is open."""

    def __init__(self, session: Session, command_id: str) -> None:
        self._session, self._id, self._is_open = session, command_id, False

    def open(self, command: Command, raw_input: str) -> None:
        data: dict[str, Any] = {"commandId": self._id, "name": command.name}
        if command.records_input:
            data["args"] = raw_input
        self._session.append("command/run", {**data, "source": {"kind": "user"}})
        self._is_open = True

    def close(self, outcome: CommandOutcome) -> None:
        """Log the outcome, unless one is logged."""
        if not self._is_open:
            return
        self._is_open = False
        is_done = isinstance(outcome, CommandSuccess)
        data: dict[str, Any] = {"commandId": self._id, "kind": "success" if is_done else "error"}
        if outcome.text is not None:
            data["text"] = outcome.text
        if isinstance(outcome, CommandSuccess) and outcome.source_event_seq is not None:
            data["sourceEventSeq"] = outcome.source_event_seq
        self._session.append("command/done", data)


async def _answer(command: Command, call: CommandCall) -> object:
    answer: object = command.handler(call)
    return await answer if inspect.isawaitable(answer) else answer


def _parts(line: str) -> tuple[str, str]:
    """Name and raw input of a line.

    Raises:
        CommandError: it is none (`NO_COMMAND`).
    """
    found = LINE.fullmatch(line)
    if found is None:
        raise CommandError(
            "this is no command", code="NO_COMMAND", hint="a command is a line such as /permission read-only"
        )
    return valid(found[1]), valid(found[2])


def _unknown(name: str, offers: dict[str, _Offer]) -> CommandError:
    known = sorted(offers)
    meant = closest(name, known)
    hint = f"did you mean /{meant[0]}?" if meant else f"commands: {', '.join(f'/{one}' for one in known)}"
    return CommandError(
        f"there is no command /{name:.60}",
        code="UNKNOWN_COMMAND",
        hint=hint if known else "none is offered here",
    )


def _is_source(session: Session, seq: object) -> bool:
    """Whether this is the seq of an event that can stand for what a command did."""
    if type(seq) is not int or not 0 <= seq < session.length:
        return False
    return not session.event(seq).type.startswith("command/")


def _checked(found: Any) -> Command:
    if not isinstance(found, Command):
        raise CommandError(f"register takes a Command, found {type(found).__name__}", code="INVALID_COMMAND")
    texts: tuple[Any, Any] = (found.name, found.description)
    name, description = texts
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise CommandError(
            f"{name!r:.60} cannot name a command: a small letter, then small letters, digits, _ and -",
            code="INVALID_COMMAND",
        )
    if not isinstance(description, str) or not description or not callable(found.handler):
        raise CommandError(f"/{name} needs a description and a handler", code="INVALID_COMMAND")
    return found


def _duplicate(name: str) -> CommandError:
    return CommandError(f"/{name} is already registered in this scope", code="DUPLICATE_COMMAND")


def apply(ctx: Context, config: Config) -> None:
    CommandRegistry(ctx)
