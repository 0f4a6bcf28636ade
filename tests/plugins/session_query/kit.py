"""A store, storage in a folder and the query row over both; and short ways to write logs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from dsh.capabilities.session_query import SESSION_QUERY, SessionQuery
from dsh.capabilities.session_query_error import Code, SessionQueryError
from dsh.kernel import Context
from dsh.persistence.service import PERSISTENCE
from dsh.plugins import session as session_row
from dsh.plugins import session_persistence_jsonl, session_query_sqlite
from dsh.session.chunk import BlockStart, Finish, TextDelta
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.session.store import SESSIONS, SessionStore
from tests.agent.kit import settled

NEVER = {"openAt": "never"}


class Corpus:
    """The rows, and sessions written through them."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.store: SessionStore = ctx.use(SESSIONS)
        self.query: SessionQuery = ctx.use(SESSION_QUERY)
        self._undo: dict[str, Any] = {}

    def live(self, session_id: str, *, created: int | None = None, **header: Any) -> Session:
        """A live session; `created` is its creation in epoch milliseconds."""
        session = self.store.prepare(session_id, **header)
        if created is not None:
            session.header = replace(session.header, created_at=created)
        self._undo[session_id] = self.store.enter(session)
        self.store.announce(session)
        return session

    async def store_away(self, session: Session) -> None:
        """End a live session; its log is stored."""
        await self.store.flush(session)
        self._undo.pop(session.id)()
        if self.ctx.has(PERSISTENCE):
            await self.ctx.use(PERSISTENCE).inspect(session.id)

    async def stored(self, session_id: str, *prompts: str, created: int | None = None, **header: Any) -> None:
        """A stored session of one turn for each prompt."""
        session = self.live(session_id, created=created, **header)
        for prompt in prompts or ("hello",):
            turn(session, prompt)
        await self.store_away(session)


@asynccontextmanager
async def corpus(
    storage: Path | tuple[ModuleType, dict[str, Any]] | None, **config: Any
) -> AsyncIterator[Corpus]:
    """Everything mounted over a folder, over another row that stores, or without storage."""
    ctx = Context()
    try:
        await settled(ctx.plugin(session_row))
        if isinstance(storage, Path):
            storage = session_persistence_jsonl, {"root": str(storage)}
        if storage is not None:
            await settled(ctx.plugin(*storage))
        await settled(ctx.plugin(session_query_sqlite, {**NEVER, **config}))
        yield Corpus(ctx)
    finally:
        await ctx.dispose()


def said(session: Session, words: str) -> int:
    """A prompt enters the open step; its seq."""
    return session.append("user/message", user_message(words), surface="append").seq


def turn(session: Session, prompt: str, answer: str = "done", *, chunks: int = 0) -> None:
    """One whole turn of one step."""
    number = session.last_turn + 1
    at = {"turn": number, "step": 1}
    session.append("turn/start", {"turn": number})
    session.append("step/start", at)
    said(session, prompt)
    first = session.length
    if chunks:
        session.append_chunk(number, 1, BlockStart(0, "text"))
        for index in range(chunks):
            session.append_chunk(number, 1, TextDelta(0, f"{index} "))
        session.append_chunk(number, 1, Finish({"kind": "stop"}))
    message = {
        "role": "assistant",
        "content": [{"type": "reasoning", "text": "secret thought"}, {"type": "text", "text": answer}],
        "source": {"kind": "model", "provider": "p", "model": "m"},
        "id": f"{session.id}-{number}",
    }
    sources = list(range(first, session.length))
    session.append("assistant/message", {**at, "message": message}, surface="append", sources=sources)
    session.append("step/end", at)
    session.append("turn/end", {"turn": number, "reason": {"kind": "completed"}})


class refused:  # noqa: N801 -- reads as a statement
    """The block raises a query error with this code, without its prefix."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._raises = pytest.raises(SessionQueryError)

    def __enter__(self) -> Any:
        self._info = self._raises.__enter__()
        return self._info

    def __exit__(self, *error: Any) -> Any:
        answer = self._raises.__exit__(*error)
        assert self._info.value.code == f"SESSION_QUERY_{self._code}"
        return answer
