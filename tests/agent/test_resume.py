"""Resuming: the same log goes on, repaired where it was cut, and every request over it is complete."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.agent.contract import AGENT_REQUEST, AGENT_SESSION_START, Agent, AgentOptions, ResumeAgent
from dsh.agent.default_model import ModelSelection
from dsh.agent.failure import AgentError
from dsh.agent.model_selection import SelectedModel
from dsh.agent.registry import AGENTS
from dsh.agent.transcript import answered, sound_prefix
from dsh.llm.adapter import EffortInfo, ModelInfo, ReasoningInfo
from dsh.persistence.error import SessionNotFound
from dsh.plugins import session_checkpoint_policy, session_persistence_jsonl
from dsh.session.message import Message, assistant_message, tool_result_message, user_message
from tests.agent.kit import Loop, data_of, loop, text, texts_of
from tests.aio import aio

OPTIONS = AgentOptions(provider="p", model="m")


@asynccontextmanager
async def stored(tmp_path: Path, *replies: Any) -> AsyncIterator[Loop]:
    rows = [
        (session_persistence_jsonl, {"root": str(tmp_path / "sessions")}),
        (session_checkpoint_policy, {}),
    ]
    async with loop(*replies, rows=rows) as it:
        yield it


async def resumed(it: Loop, session_id: str, options: AgentOptions = OPTIONS) -> Agent:
    handle = await it.ctx.use(AGENTS).resume(ResumeAgent(session_id=session_id, options=options))
    return handle.agent


@aio
async def test_a_resumed_session_goes_on_with_its_numbers_its_inbox_and_a_resume_header(
    tmp_path: Path,
) -> None:
    async with stored(tmp_path, text("one")) as it:
        handle = await it.create(session_id="s", cwd=str(tmp_path))
        await it.prompt(handle.agent, "first")
        handle.agent.inject(user_message("waiting"))
    async with stored(tmp_path, text("two")) as it:
        sources: list[str] = []
        it.ctx.on(AGENT_SESSION_START, lambda started: sources.append(started.source))
        agent = await resumed(it, "s")
        assert sources == ["resume"]
        assert it.statuses == [], "nothing runs until somebody wakes it"
        await it.prompt(agent, "second")
        assert [d["turn"] for d in data_of(agent.session, "turn/start")] == [1, 2]
        assert [d["reason"] for d in data_of(agent.session, "request/header")] == ["initial", "resume"]
        assert texts_of(it.model.requests[0])[-2:] == ["user: waiting", "user: second"]


@pytest.mark.parametrize(
    ("chosen", "model", "sent"),
    [("low", "m", "low"), ("low", "other", "medium"), (None, "m", "medium")],
    ids=["the same route", "another model", "never chosen"],
)
@aio
async def test_an_effort_that_was_chosen_is_that_of_the_resumed_route(
    tmp_path: Path, chosen: str | None, model: str, sent: str
) -> None:
    async with stored(tmp_path, text("one")) as it:
        it.model.resolve_model = thinking("high")  # type: ignore[method-assign, assignment]
        agent = await it.agent(session_id="s", cwd=str(tmp_path))
        it.ctx.on(AGENT_REQUEST, SelectedModel(ModelSelection("p", "m", chosen)).on_request)
        await it.prompt(agent, "first")
    async with stored(tmp_path, text("two")) as it:
        it.model.resolve_model = thinking("medium")  # type: ignore[method-assign, assignment]
        agent = await resumed(it, "s", AgentOptions(provider="p", model=model))
        await it.prompt(agent, "second")
        assert it.model.requests[0].config.reasoning_effort == sent


def thinking(default: str) -> Callable[[str, str], ModelInfo]:
    """What an adapter says of a model that takes any of three efforts, and this one unless asked."""
    efforts = tuple(EffortInfo(name, name) for name in ("low", "medium", "high"))
    info = ReasoningInfo(efforts, default)
    return lambda provider, model: ModelInfo(provider=provider, id=model, name=model, reasoning=info)


@aio
async def test_an_unknown_session_and_a_live_one_cannot_be_resumed(tmp_path: Path) -> None:
    async with stored(tmp_path) as it:
        with pytest.raises(SessionNotFound):
            await resumed(it, "nobody")
        await it.create(session_id="s")
        with pytest.raises(AgentError, match="live"):
            await resumed(it, "s")


@aio
async def test_without_persistence_resume_names_the_row() -> None:
    async with loop() as it:
        with pytest.raises(AgentError) as caught:
            await resumed(it, "s")
        assert "session-persistence" in caught.value.hint


async def write_log(it: Loop, tmp_path: Path, tail: list[tuple[str, Any]]) -> None:
    """A stored session `s` whose log ends with these rows."""
    handle = await it.create(session_id="s", cwd=str(tmp_path))
    session = handle.agent.session
    for kind, data in tail:
        surface = "append" if kind in ("user/message", "assistant/message", "tool/result") else None
        session.append(kind, data, surface=surface, sources=[] if kind == "assistant/message" else None)
    await it.sessions.flush(session)


def asking(*call_ids: str) -> dict[str, Any]:
    blocks = [{"type": "tool-call", "id": name, "name": "x", "arguments": "{}"} for name in call_ids]
    return {"turn": 1, "step": 1, "message": assistant_message(blocks, provider="p", model="m")}


def called(call_id: str) -> tuple[str, Any]:
    return "tool/call", {"turn": 1, "step": 1, "callId": call_id, "name": "x", "arguments": "{}"}


def result(call_id: str) -> tuple[str, Any]:
    message = tool_result_message(call_id, [{"type": "text", "text": f"value of {call_id}"}])
    return "tool/result", {"turn": 1, "step": 1, "message": message}


STARTED = [("turn/start", {"turn": 1}), ("step/start", {"turn": 1, "step": 1})]
CLOSED = [
    ("step/end", {"turn": 1, "step": 1}),
    ("turn/end", {"turn": 1, "reason": {"kind": "completed"}}),
]


@pytest.mark.parametrize(
    ("tail", "answers"),
    [
        ([("assistant/message", asking("c1", "c2"))], ["recorded as started", "recorded as started"]),
        (
            [("assistant/message", asking("c1", "c2")), called("c1"), called("c2"), result("c1")],
            ["value", "unknown"],
        ),
        (
            [("assistant/message", asking("c1", "c2")), called("c1"), *CLOSED],
            ["unknown", "recorded as started"],
        ),
        (
            [
                ("assistant/message", asking("c1", "c2", "c3")),
                *(called(n) for n in ("c1", "c2", "c3")),
                result("c1"),
                result("c3"),
                *CLOSED,
            ],
            ["value", "unknown", "value"],
        ),
    ],
)
@aio
async def test_after_a_kill_each_call_has_one_answer_behind_its_message_in_order(
    tmp_path: Path, tail: list[tuple[str, Any]], answers: list[str]
) -> None:
    async with stored(tmp_path) as it:
        await write_log(it, tmp_path, [*STARTED, *tail])
    lengths = []
    for _ in range(2):
        async with stored(tmp_path, text("done")) as it:
            agent = await resumed(it, "s")
            lengths.append(agent.session.length)
            await it.prompt(agent, "go on")
            lines = texts_of(it.model.requests[0])
            assert lines[0].startswith("assistant: call c1")
            for number, wanted in enumerate(answers, 1):
                assert lines[number].startswith(f"user: result c{number}: ")
                assert wanted in lines[number]
            assert not any("result" in line for line in lines[len(answers) + 1 :])
            lengths.append(agent.session.length)
    assert lengths[2] in (lengths[1], lengths[1] + 1), "a second resume repairs nothing"


# -- the mending itself ----------------------------------------------------------------------------


def say(words: str) -> Message:
    return user_message(words)


def ask(*call_ids: str) -> Message:
    return asking(*call_ids)["message"]  # type: ignore[no-any-return]


def answer(call_id: str) -> Message:
    return result(call_id)[1]["message"]  # type: ignore[no-any-return]


def ids(messages: Sequence[Message]) -> list[str]:
    out = []
    for message in messages:
        block: Any = message["content"][0]
        if block["type"] == "tool-call":
            out.append("ask " + " ".join(b["id"] for b in message["content"]))  # type: ignore[typeddict-item]
        else:
            out.append(block.get("text") or f"answer {block['toolCallId']}")
    return out


def test_a_history_in_order_passes_as_the_same_tuple() -> None:
    messages = (say("a"), ask("c1", "c2"), answer("c1"), answer("c2"), say("b"), ask("c1"), answer("c1"))
    assert answered(messages, lambda _: True) is messages
    assert sound_prefix(messages) == len(messages)
    assert sound_prefix(messages[:3]) == 1, "a message whose calls are not all answered is no sound end"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((ask("c1"), say("b")), ["ask c1", "answer c1", "b"]),
        ((answer("c9"), say("b")), ["b"]),
        ((ask("c1"), say("b"), answer("c1")), ["ask c1", "answer c1", "b"]),
        ((ask("c1", "c2"), answer("c2"), answer("c1")), ["ask c1 c2", "answer c1", "answer c2"]),
        ((ask("c1"), answer("c1"), answer("c1"), say("b")), ["ask c1", "answer c1", "b"]),
        ((ask("c1"), ask("c1"), answer("c1")), ["ask c1", "answer c1", "ask c1", "answer c1"]),
        ((ask("c1", "c1"), answer("c1"), answer("c1")), ["ask c1 c1", "answer c1", "answer c1"]),
    ],
)
def test_what_a_history_lacks_is_made_up_and_what_is_out_of_place_is_moved_or_dropped(
    before: tuple[Message, ...], after: list[str]
) -> None:
    mended = answered(before, lambda _: False)
    assert ids(mended) == after
    assert sound_prefix(mended) == len(mended)
    again = answered(before, lambda _: False)
    assert [m["id"] for m in again] == [m["id"] for m in mended], "made-up results keep their ids"
