"""Every request is held against its log: what is caught, and that nothing remembered is believed."""

import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from dsh.agent.contract import AGENT_REQUEST_ERROR, Agent, RequestFailed, RetryRequest
from dsh.agent.failure import InvariantError
from dsh.agent.invariant import check_request, mark
from dsh.kernel import Context
from dsh.llm.registry import LLM_STREAM
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.session.chunk import Chunk, Finish
from dsh.session.log import Session
from dsh.session.message import Message, ToolSchema, user_message
from dsh.session.value import freeze
from tests.agent.kit import Loop, calls, ends, failed, loop, text
from tests.aio import aio


class Held:
    """The check as the loop makes it, and once more with a changed request; keeps what that one says."""

    def __init__(self, it: Loop, agent: Agent, change: Callable[[LlmRequest], LlmRequest]) -> None:
        self.said: list[str] = []
        self._agent, self._change = agent, change
        it.ctx.on(LLM_STREAM, self._look)

    def _look(self, request: LlmRequest, following: Any) -> Any:
        try:
            check_request(self._change(request), self._agent.session)
        except InvariantError as error:
            self.said.append(error.message)
        return following()


def with_messages(request: LlmRequest, messages: Any) -> LlmRequest:
    return msgspec.structs.replace(request, messages=messages)


def changed(message: Message) -> Message:
    """The same message in other words."""
    other: Message = freeze({**message, "content": [{"type": "text", "text": "other"}]}, "other")
    return other


def thawed(message: Message) -> Any:
    return {**message}


def twin(message: Message) -> Any:
    """An equal message that is another object."""
    return freeze(copy.deepcopy(dict(message)), "twin")


CHANGES: list[tuple[str, Callable[[tuple[Message, ...]], Any], str]] = [
    ("none", lambda m: (), "0 messages, its log makes"),
    ("one less", lambda m: m[:-1], "messages, its log makes"),
    ("one more", lambda m: (*m, user_message("x")), "messages, its log makes"),
    ("another last one", lambda m: (*m[:-1], changed(m[-1])), "is not what its log makes there"),
    ("another order", lambda m: (*m[:-2], m[-1], m[-2]), "is not what its log makes there"),
    ("not frozen inside", lambda m: (*m[:-1], thawed(m[-1])), "is not frozen"),
    ("a list", list, "not frozen"),
]


@pytest.mark.parametrize(("change", "said"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES])
@aio
async def test_messages_that_differ_from_the_log_are_told(change: Any, said: str) -> None:
    async with loop(calls(("c1", "look", "{}")), text("done")) as it:
        it.tool("look", look)
        agent = await it.agent()
        agent.inject(user_message("a note"))
        held = Held(it, agent, lambda request: with_messages(request, change(request.messages)))
        await it.prompt(agent, "go")
        assert len(held.said) == 2
        assert all(said in line for line in held.said)


@pytest.mark.parametrize("other", [changed, twin])
@aio
async def test_what_was_sent_before_must_be_the_same_objects(other: Callable[[Message], Any]) -> None:
    """From the third request on the first reply is settled, and a twin of what was sent is refused too."""
    async with loop(calls(("c1", "look", "{}")), calls(("c2", "look", "{}")), text("done")) as it:
        it.tool("look", look)
        agent = await it.agent()
        held = Held(
            it,
            agent,
            lambda r: with_messages(r, (other(r.messages[0]), *r.messages[1:])) if r.messages else r,
        )
        await it.prompt(agent, "go")
        assert held.said[-1].endswith("are not those that were sent before")


@aio
async def test_an_equal_message_that_was_not_sent_yet_is_as_good() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        held = Held(it, agent, lambda r: with_messages(r, tuple(map(twin, r.messages))))
        await it.prompt(agent, "go")
        assert held.said == []


@aio
async def test_a_memory_of_the_builder_that_is_wrong_ends_the_turn_before_anything_is_sent() -> None:
    async with loop(text("one"), text("two")) as it:
        agent: Any = await it.agent()
        await it.prompt(agent, "go")
        agent.session._derived._messages[0] = changed(agent.session._derived._messages[0])
        agent.session._derived._tuple = ()
        await it.prompt(agent, "again")
        assert ends(agent.session)[-1]["error"]["code"] == "INVARIANT"
        assert len(it.model.requests) == 1


@aio
async def test_a_listener_that_answers_in_the_place_of_the_adapter_hides_no_request() -> None:
    """Whoever was there first, and whatever agent it was registered for: the check comes before it."""
    played: list[LlmRequest] = []

    def replay(request: LlmRequest, following: Any) -> AsyncIterator[Chunk]:
        played.append(request)
        return chunks()

    async def chunks() -> AsyncIterator[Chunk]:
        yield Finish({"kind": "stop"})

    def first(ctx: Context) -> None:
        ctx.on(LLM_STREAM, replay)

    async with loop(text("never"), first=first) as it:
        agent: Any = await it.agent()
        await it.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "completed"}]
        agent.session._derived._messages[0] = changed(agent.session._derived._messages[0])
        agent.session._derived._tuple = ()
        await it.prompt(agent, "again")
        assert ends(agent.session)[-1]["error"]["code"] == "INVARIANT"
        assert len(played) == 1
        assert it.model.requests == []


HEADS: list[tuple[dict[str, Any], str]] = [
    ({"system": "another"}, "system"),
    ({"system": None}, "system"),
    ({"tools": ()}, "tools"),
    ({"tools": (ToolSchema("look", "look", {}),)}, "tools"),
    ({"config": LlmCallConfig("other", "m", max_tokens=100)}, "provider"),
    ({"config": LlmCallConfig("p", "other", max_tokens=100)}, "model"),
    ({"config": LlmCallConfig("p", "m", reasoning_effort="low", max_tokens=100)}, "reasoningEffort"),
    ({"config": LlmCallConfig("p", "m", temperature=0.5, max_tokens=100)}, "temperature"),
    ({"config": LlmCallConfig("p", "m", max_tokens=99)}, "maxTokens"),
    ({"config": LlmCallConfig("p", "m", max_tokens=100, stop=())}, "stop"),
]


@pytest.mark.parametrize(("change", "named"), HEADS)
@aio
async def test_every_field_of_the_head_is_compared_at_every_request(
    change: dict[str, Any], named: str
) -> None:
    async with loop(calls(("c1", "look", "{}")), text("done"), prompt={"persona": "x"}) as it:
        it.tool("look", look)
        agent = await it.agent()
        held = Held(it, agent, lambda request: msgspec.structs.replace(request, **change))
        await it.prompt(agent, "go")
        assert len(held.said) == 2
        assert all(line.startswith(f"{named} of a request differs") for line in held.said)


NULL = freeze({"type": "null"}, "schema")


@pytest.mark.parametrize("change", [{"name": "other"}, {"description": "other"}, {"parameters": NULL}])
@aio
async def test_every_field_of_a_tool_is_compared_at_every_request(change: dict[str, Any]) -> None:
    def with_another_tool(request: LlmRequest) -> LlmRequest:
        [tool] = request.tools
        return msgspec.structs.replace(request, tools=(msgspec.structs.replace(tool, **change),))

    async with loop(calls(("c1", "look", "{}")), text("done")) as it:
        it.tool("look", look)
        agent = await it.agent()
        held = Held(it, agent, with_another_tool)
        await it.prompt(agent, "go")
        assert [line.partition(" differs")[0] for line in held.said] == ["tools of a request"] * 2


@aio
async def test_tools_in_another_order_are_told() -> None:
    async with loop(calls(("c1", "look", "{}")), text("done")) as it:
        it.tool("look", look)
        it.tool("glance", look)
        agent = await it.agent()
        held = Held(it, agent, lambda request: msgspec.structs.replace(request, tools=request.tools[::-1]))
        await it.prompt(agent, "go")
        assert [line.partition(" differs")[0] for line in held.said] == ["tools of a request"] * 2


class Odd(LlmCallConfig, frozen=True, rename="camel", omit_defaults=True):
    """A config with a field that no header has."""

    top_p: float | None = None


@aio
async def test_a_field_that_nobody_knows_is_refused() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        odd = Odd("p", "m", max_tokens=100, top_p=0.5)
        held = Held(it, agent, lambda request: msgspec.structs.replace(request, config=odd))
        await it.prompt(agent, "go")
        assert held.said == ["the request's config has unknown fields: topP"]


@aio
async def test_a_request_needs_a_step_and_a_digest_of_its_own() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        await it.prompt(agent, "go")
        sent = it.model.requests[0]
        with pytest.raises(InvariantError, match="outside any step"):
            check_request(sent, agent.session)
        agent.session.append("turn/start", {"turn": 2})
        agent.session.append("step/start", {"turn": 2, "step": 1})
        with pytest.raises(InvariantError, match="without a request/digest of its own"):
            check_request(sent, agent.session)


@aio
async def test_a_request_before_any_header_is_refused() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        await it.prompt(agent, "go")
        bare = Session(agent.session.header)
        bare.append("turn/start", {"turn": 1})
        bare.append("step/start", {"turn": 1, "step": 1})
        place = {"turn": 1, "step": 1}
        bare.append("request/digest", place, ignorable=True)
        with pytest.raises(InvariantError, match="messages, its log makes 0"):
            check_request(it.model.requests[0], bare)
        with pytest.raises(InvariantError, match="before any request/header"):
            check_request(with_messages(it.model.requests[0], ()), bare)


@aio
async def test_requests_that_the_loop_did_not_build_are_not_checked() -> None:
    async with loop(text("done")) as it:
        request = LlmRequest(config=LlmCallConfig("p", "m"), messages=(), session_id="nobody")
        assert [chunk async for chunk in it.llm.stream(request)]
        with pytest.raises(InvariantError, match="not live"):
            it.llm.stream(mark(request))


@aio
async def test_after_a_replacement_everything_is_looked_at_anew() -> None:
    async with loop(text("one"), text("two"), failed("SERVER"), text("three")) as it:
        agent = await it.agent()
        replaced: list[int] = []

        async def compact(failure: RequestFailed, following: Any) -> RetryRequest:
            nodes = agent.session.surface_nodes
            surface = {"op": "replace", "start": nodes[0], "end": nodes[-2]}
            agent.session.append(
                "user/message", user_message("in short"), surface=surface, sources=list(nodes[:-1])
            )
            replaced.append(len(nodes))
            return {"kind": "retry"}

        it.ctx.on(AGENT_REQUEST_ERROR, compact)
        for words in ("a", "b", "c"):
            await it.prompt(agent, words)
        assert [end["kind"] for end in ends(agent.session)] == ["completed"] * 3
        assert replaced == [5]
        assert [len(request.messages) for request in it.model.requests] == [1, 3, 5, 2]


@aio
async def test_sessions_are_held_apart_and_forgotten_with_their_agents() -> None:
    async with loop(text("one")) as it:
        first, second = await it.create(), await it.create()
        await it.prompt(first.agent, "a")
        await it.prompt(second.agent, "b")
        await first.dispose()
        await it.prompt(second.agent, "c")
        assert [end["kind"] for end in ends(second.agent.session)] == ["completed", "completed"]


async def look(args: Any, exec: Any) -> str:  # noqa: A002
    return "looked"
