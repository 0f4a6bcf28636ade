"""Logs that went through something: from each that opens, a request is made that a provider accepts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dsh.agent.invariant import check_request, mark
from dsh.agent.transcript import Started, Transcript, outgoing
from dsh.errors import DshError
from dsh.llm.boundary import without_images
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.view import build_view
from dsh.session.digest import digest_payload
from dsh.session.log import Session
from dsh.session.message import user_message
from tests.agent.provider_check import problems, wire_problems
from tests.chat_wire import deepseek_body
from tests.corpus import CORPUS, needs_corpus
from tests.session.build import header
from tests.session.sound import body

LOGS = sorted(path for kind in ("fixtures", "runs", "variants") for path in CORPUS.glob(f"{kind}/*.jsonl*"))
CONFIG = LlmCallConfig("p", "m")


def opened(path: Path) -> Session | None:
    """A live session over the log as a resume makes it, repaired; None where it does not open."""
    try:
        view = build_view(read_log(path))
    except DshError:
        return None
    return Session.seeded(view.header, view.walk())


def next_request(session: Session) -> LlmRequest:
    """The request of a new turn in that session, held against its log as the loop does it."""
    if session.open_step is None:
        if session.open_turn is not None:
            session.append("turn/end", {"turn": session.open_turn, "reason": {"kind": "completed"}})
        session.append("turn/start", {"turn": session.last_turn + 1})
        session.append("step/start", {"turn": session.last_turn, "step": 1})
    session.append("user/message", user_message("go on"), surface="append")
    session.append("request/header", {"header": {"config": CONFIG.to_json()}, "reason": "resume"})
    assert session.open_turn is not None and session.open_step is not None
    digest = digest_payload(session.open_turn, session.open_step, 1, "0" * 64, 0)
    session.append("request/digest", digest, ignorable=True)
    messages = Transcript(session).messages()
    request = mark(LlmRequest(config=CONFIG, messages=messages, session_id=session.id))
    check_request(request, session)
    return request


def check(session: Session) -> None:
    request = next_request(session)
    assert problems(request.messages) == []
    shown = msgspec.structs.replace(request, messages=tuple(map(without_images, request.messages)))
    assert wire_problems(deepseek_body(shown)) == []
    assert list(request.messages) == outgoing(session.derive_messages(), Started(session))


@needs_corpus
@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_recorded_log_that_opens_goes_on_with_a_sound_request(path: Path) -> None:
    expected = json.loads(path.with_name(f"{path.name.partition('.jsonl')[0]}.expected.json").read_text())
    session = opened(path)
    assert (session is None) == ("error" in expected)
    if session is not None:
        check(session)


def cuts(events: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The log up to each of its events."""
    for length in range(1, len(events) + 1):
        yield events[:length]


@pytest.mark.parametrize("dropped", ["nothing", "tool/result", "assistant/message", "user/message"])
def test_a_log_cut_anywhere_and_one_that_lost_a_kind_of_message(dropped: str) -> None:
    """The surface of a foreign writer may lack anything; what is left of it still makes a sound request."""
    for events in cuts(body()):
        session = Session(header())
        for event in events:
            if event["type"] == dropped:
                event = {**event, "type": "feedback/record", "data": {"text": "lost"}}
                event = {k: v for k, v in event.items() if k not in ("surfaceOp", "sourceEventSeqs")}
            session.load(event)
        check(session)
