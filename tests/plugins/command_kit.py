"""Plain values for tests of slash commands: the row on a real kernel, an agent, short commands."""

from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

from dsh.capabilities.commands import (
    COMMANDS,
    Command,
    CommandCall,
    CommandOutcome,
    Commands,
    CommandSuccess,
)
from dsh.kernel import Context
from dsh.plugins import commands
from tests.tools.kit import StandInAgent

ROW: tuple[ModuleType, dict[str, Any]] = (commands, {})
Handler = Callable[[CommandCall], Awaitable[CommandOutcome]]


class Agent(StandInAgent):
    """An agent that must not be told anything."""

    def inject(self, message: object) -> None:
        raise AssertionError("commands tell the model nothing")


def commands_of(ctx: Context) -> Commands:
    """The service as this context sees it."""
    found = ctx.get(COMMANDS)
    assert found is not None
    return found


async def mounted() -> tuple[Context, Commands, Agent]:
    ctx = Context()
    await ctx.plugin(commands)
    return ctx, commands_of(ctx), Agent(ctx)


def command(name: str = "c", handler: Handler | None = None, **changes: Any) -> Command:
    async def done(_: CommandCall) -> CommandOutcome:
        return CommandSuccess("done")

    return Command(name=name, description=f"command {name}", handler=handler or done, **changes)


def answering(outcome: Any) -> Handler:
    async def handler(_: CommandCall) -> CommandOutcome:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    return handler


def logged(agent: Any) -> list[tuple[str, dict[str, Any]]]:
    """The pairs, without their ids."""
    return [
        (event.type, {key: value for key, value in event.data.items() if key != "commandId"})
        for event in agent.session.events()
        if event.type.startswith("command/")
    ]


RUN = ("command/run", {"name": "c", "args": "", "source": {"kind": "user"}})
