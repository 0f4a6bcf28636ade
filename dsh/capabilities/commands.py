"""Slash commands: what a person asks of the harness itself, beside the conversation (`spec/tools.md` §7)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from dsh.capabilities.agent import AgentRef
from dsh.errors import DshError
from dsh.kernel import CancelToken, Effect, ServiceKey


class CommandError(DshError):
    """A command cannot be registered or found."""


class CommandCall(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One execution as its handler sees it."""

    command_id: str
    """`cmd-<8 hex>-<n>`, also in the log."""
    agent: AgentRef
    raw_input: str
    """What stood after the name, as it was typed."""
    signal: CancelToken


class CommandSuccess(msgspec.Struct, frozen=True):
    """It was done."""

    text: str | None = None
    """What to show the person."""
    source_event_seq: int | None = None
    """The event that holds what it did."""


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
    input_hint: str | None = None
    """What may follow the name, for people."""
    records_input: bool = True
    """Whether the log keeps the input."""


class Commands(Protocol):
    """The commands of one composition; those of a scope shadow global ones."""

    def register(self, command: Command) -> Effect:
        """Offer a command until the effect is undone.

        Raises:
            CommandError: a bad name, or one that this layer has already.
        """

    def list(self, agent: AgentRef | None = None) -> Sequence[Command]:
        """What an agent's person can call, by name."""

    async def execute(
        self, agent: AgentRef, line: str, *, signal: CancelToken | None = None
    ) -> CommandOutcome:
        """Run `/name input`, logged as `command/run` and `command/done`. What a handler raises is a failure.

        Raises:
            CommandError: no such command (code UNKNOWN_COMMAND), or no command at all; nothing is logged.
        """


COMMANDS: ServiceKey[Commands] = ServiceKey("commands")
