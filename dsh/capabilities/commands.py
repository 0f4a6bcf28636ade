"""Slash commands: what a person asks of the harness itself, beside the conversation (`spec/tools.md` §7).

A command is no prompt: running one makes no message to the model by itself, and its answer is for the person.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from dsh.capabilities.agent import AgentRef, TellableAgent
from dsh.errors import DshError
from dsh.kernel import CancelToken, Effect, Event, ServiceKey


class CommandError(DshError):
    """A command cannot be registered (`INVALID_COMMAND`, `DUPLICATE_COMMAND`) or run.

    `NO_COMMAND`: the line is none. `UNKNOWN_COMMAND`: nobody offers it. `CALLER_NOT_LIVE`: the agent has
    ended. In all of these cases nothing was logged.
    """


class CommandCall(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One execution as its handler sees it."""

    command_id: str
    """`cmd-<8 hex>-<n>`, also in the log."""
    agent: TellableAgent
    raw_input: str
    """What stood after the name, as it was typed, white space in front included."""
    signal: CancelToken
    """Cancelled by who runs the command, and by the end of the agent."""


class CommandSuccess(msgspec.Struct, frozen=True):
    """It was done."""

    text: str | None = None
    """What to show the person."""
    source_event_seq: int | None = None
    """The event that holds what it did; never one of a command."""


class CommandFailure(msgspec.Struct, frozen=True):
    """It was not done."""

    text: str


CommandOutcome = CommandSuccess | CommandFailure
CommandHandler = Callable[[CommandCall], Awaitable[CommandOutcome]]


class Command(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One slash command."""

    name: str
    """`[a-z][a-z0-9_-]*`, without the slash."""
    description: str
    handler: CommandHandler
    """What it raises is a failure whose text is the error's."""
    input_hint: str | None = None
    """What may follow the name, for people."""
    records_input: bool = True
    """Whether the log keeps the input."""


class Commands(Protocol):
    """The commands of one composition; those of a scope shadow global ones."""

    def register(self, command: Command) -> Effect:
        """Offer a command to the caller's scope and those inside, until the effect is undone.

        Raises:
            CommandError: a bad name, or one that this layer has already.
        """

    def list(self, agent: AgentRef | None = None) -> Sequence[Command]:
        """What an agent's person can call, by name; without an agent the global ones."""

    async def execute(
        self, agent: TellableAgent, line: str, *, signal: CancelToken | None = None
    ) -> CommandOutcome:
        """Run `/name input`, logged as `command/run` and `command/done`. What a handler raises is a failure.

        Raises:
            CommandError: no such command (code UNKNOWN_COMMAND), or no command at all; nothing is logged.
        """


class CommandsChanged(msgspec.Struct, frozen=True, eq=False):
    """Payload of `commands/change`: the scope whose commands changed, None for the global ones."""

    scope: object | None


COMMANDS: ServiceKey[Commands] = ServiceKey("commands")
COMMANDS_CHANGE: Event[CommandsChanged, None] = Event("commands/change", "emit", contained=True)
"""A command came or went."""
