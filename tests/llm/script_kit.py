"""What the tests of scripts share: logs that can be compared, and replies played from a script."""

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from dsh.kernel import CancelToken
from dsh.llm.adapter import LlmAdapter, ModelInfo
from dsh.llm.failure import LlmError
from dsh.llm.grammar import StreamGrammar
from dsh.llm.request import LlmCallConfig, LlmRequest, Purpose
from dsh.llm.script.player import Script, ScriptAdapter, Scripts
from dsh.session.assembler import BlockAssembler
from dsh.session.chunk import Chunk
from dsh.session.event import SessionEvent
from dsh.session.log import Session
from dsh.session.message import Message, user_message
from dsh.session.value import encode

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_CHANCE = re.compile(r'"(?:time|delayMs|createdAt)":[0-9.]+|"digest":"[^"]*"')


def masked(events: Iterable[SessionEvent] | Session) -> list[str]:
    """The rows of a log as text, without times and chance; ids are numbered as they come up."""
    events = events.events() if isinstance(events, Session) else events
    seen: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return seen.setdefault(found[0], f"id-{len(seen)}")

    return [_ID.sub(number, _CHANCE.sub("", encode(event.to_json()).decode())) for event in events]


def request(
    *messages: Message | str,
    signal: CancelToken | None = None,
    session_id: str | None = "s",
    purpose: Purpose | None = None,
    provider: str = "scripted",
    system: str | None = None,
) -> LlmRequest:
    made = tuple(user_message(one) if isinstance(one, str) else one for one in messages or ("hi",))
    return LlmRequest(
        config=LlmCallConfig(provider, "script"),
        messages=made,
        signal=signal,
        session_id=session_id,
        purpose=purpose,
        system=system,
    )


def adapter_of(script: Script, models: Iterable[ModelInfo] = (), **options: Any) -> ScriptAdapter:
    """A script as the adapter of every session."""
    return ScriptAdapter(Scripts([script]), models, **options)


async def chunks_of(adapter: LlmAdapter, asked: LlmRequest | None = None) -> list[Chunk]:
    """Every chunk of a reply, which keeps to the grammar."""
    grammar, out = StreamGrammar(), []
    async for chunk in adapter.stream(asked or request()):
        grammar.check(chunk)
        out.append(chunk)
    grammar.end()
    return out


async def blocks_of(adapter: LlmAdapter, asked: LlmRequest | None = None) -> list[Any]:
    """The blocks that a reply comes to."""
    reply = BlockAssembler()
    for chunk in await chunks_of(adapter, asked):
        reply.push(chunk)
    return [dict(block) for block in reply.blocks()]


@asynccontextmanager
async def refused(code: str) -> AsyncIterator[list[LlmError]]:
    """Expects an `LlmError` with this code, and gives it."""
    caught: list[LlmError] = []
    try:
        yield caught
    except LlmError as error:
        caught.append(error)
    assert [error.code for error in caught] == [code]
