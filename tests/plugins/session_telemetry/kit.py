"""The telemetry row over a store of sessions, and short ways to write events."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dsh.kernel import Context, Fiber
from dsh.plugins import session as session_row
from dsh.plugins import session_telemetry_otel
from dsh.session.chunk import BlockStart, Finish, TextDelta
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.session.store import SESSIONS, SessionStore
from tests.agent.kit import settled
from tests.plugins.session_telemetry.receiver import Receiver

SLOW = {"scheduledDelayMillis": 60_000}
"""Nothing is sent before the end."""


def config(receiver: Receiver, mode: str = "FULL", **options: Any) -> dict[str, Any]:
    options.setdefault("processor", SLOW)
    return {"mode": mode, "exporter": {"url": receiver.url}, **options}


class Rows:
    """A store, and the row once it is mounted."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.store: SessionStore = ctx.use(SESSIONS)
        self.row: Fiber | None = None

    async def mount(self, options: dict[str, Any]) -> None:
        self.row = self.ctx.plugin(session_telemetry_otel, options)
        await settled(self.row)

    async def unmount(self) -> None:
        """The row goes; what it holds is sent."""
        assert self.row is not None
        await self.row.dispose()


@asynccontextmanager
async def rows() -> AsyncIterator[Rows]:
    ctx = Context()
    try:
        await settled(ctx.plugin(session_row))
        yield Rows(ctx)
    finally:
        await ctx.dispose()


def begin(session: Session, turn: int = 1) -> None:
    session.append("turn/start", {"turn": turn})
    session.append("step/start", {"turn": turn, "step": 1})


def prompt(session: Session, words: str) -> None:
    session.append("user/message", user_message(words), surface="append")


def stream(session: Session, count: int, turn: int = 1, step: int = 1) -> None:
    """A streamed reply: its block's start, so many pieces, the finish."""
    session.append_chunk(turn, step, BlockStart(0, "text"))
    for _ in range(count):
        session.append_chunk(turn, step, TextDelta(0, "piece "))
    session.append_chunk(turn, step, Finish({"kind": "stop"}))


def feedback(session: Session, text: str = "good") -> None:
    session.append("feedback/record", {"text": text})
