"""Keeps every request of a loop with the log as it was when it left, and proves it from that log alone."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from dsh.agent.transcript import Started, outgoing
from dsh.llm.registry import LLM_STREAM
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.session.digest import RequestDigest, canonical_json
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.message import ToolSchema
from dsh.session.value import decode_strict, encode, freeze
from tests.agent.kit import Loop
from tests.agent.provider_check import problems, wire_problems
from tests.chat_wire import deepseek_body, deepseek_history


class Dispatch(NamedTuple):
    """One request, and the log up to the moment at which it left."""

    request: LlmRequest
    prefix: Sequence[SessionEvent]
    header: SessionHeader
    body: bytes
    """The request as the DeepSeek adapter writes it, with what it remembers of the conversation."""


def record(it: Loop) -> list[Dispatch]:
    """What the loop sends from now on."""
    out: list[Dispatch] = []

    def note(request: LlmRequest, following: Any) -> Any:
        assert request.session_id is not None
        session = it.sessions.get(request.session_id)
        if session is not None and request.purpose is None:
            memo = request.memo
            assert memo is not None
            body = deepseek_body(request, memo.of(it, deepseek_history))
            out.append(Dispatch(request, tuple(session.events()), session.header, body))
        return following()

    it.ctx.on(LLM_STREAM, note)
    return out


def prove(sent: Dispatch) -> None:
    """Rebuild a request from its log, read anew from its JSON, and compare all of it, byte by byte."""
    request, log = sent.request, Session(sent.header)
    for event in sent.prefix:
        log.load(decode_strict(encode(event.to_json())))
    header, derived = log.request_header, log.derive_messages()
    assert header is not None
    messages = tuple(outgoing(derived, Started(log)))
    assert [canonical_json(m) for m in request.messages] == [canonical_json(m) for m in messages]
    assert encode(freeze(request.config.to_json(), "config")) == encode(header["config"])
    assert (request.system or "") == header.get("system", "")
    assert encode([tool.to_json() for tool in request.tools]) == encode(header.get("tools", []))

    digest = sent.prefix[-1]
    assert digest.type == "request/digest", "nothing comes between the digest and the request"
    assert digest.ignorable
    assert list(digest.data) == ["turn", "step", "attempt", "algorithm", "digest", "messages"]
    assert digest.data["digest"] == RequestDigest().of(header, derived, log.replace_generation)
    assert digest.data["messages"] == len(derived)
    assert (digest.data["turn"], digest.data["step"]) == (log.open_turn, log.open_step)

    rebuilt = LlmRequest(
        config=LlmCallConfig.from_json(header["config"]),
        messages=messages,
        system=header.get("system"),
        tools=tuple(ToolSchema(**tool) for tool in header.get("tools", ())),
    )
    assert sent.body == deepseek_body(rebuilt)
    assert problems(request.messages) == []
    assert wire_problems(sent.body) == []
