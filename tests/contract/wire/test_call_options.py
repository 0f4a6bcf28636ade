"""What a request asks for beside its messages: on the wire, or refused by name; dropped in silence never."""

from typing import Any

import pytest

from dsh.llm.failure import LlmError
from dsh.llm.registry import LLM
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.session.message import user_message
from dsh.testing.mock_server.part import Text, whole
from tests.aio import aio, aio_in_virtual_time
from tests.contract.wire.recovery import looped
from tests.contract.wire.wires import MemoryLine, Reply, Wire, in_memory, over_wires
from tests.llm.build import schema

EFFORTS = {
    "deepseek": ("off", "low", "high", "max"),
    "openai": (),
    "anthropic": ("off", "low", "medium", "high"),
}
"""What each route offers for a model that nobody has described."""


async def asked(line: MemoryLine, **config: Any) -> Reply:
    """One call with these settings; a refusal while it is prepared counts like one while it is made."""
    call = await line.llm.prepare_call(LlmCallConfig(line.wire.route, "m", **config))
    request = LlmRequest(config=call.config, messages=(user_message("hello"),), tools=(schema("read"),))
    return Reply([chunk async for chunk in call.stream(request)])


@over_wires
@pytest.mark.parametrize(
    ("option", "value", "spellings"),
    [
        ("temperature", 0.25, ("temperature",)),
        ("max_tokens", 77, ("max_tokens", "max_completion_tokens")),
        ("stop", ("END", "\n\n"), ("stop", "stop_sequences")),
    ],
)
@aio
async def test_an_option_is_on_the_wire(
    wire: Wire, option: str, value: Any, spellings: tuple[str, ...]
) -> None:
    async with in_memory(wire, wire.plan(whole(Text("x")))) as line:
        reply = await asked(line, **{option: value})

        assert reply.code == ""
        body = line.sent[0].body
        [sent] = [body[name] for name in spellings if name in body]
        assert sent == (list(value) if isinstance(value, tuple) else value)


@over_wires
@aio
async def test_an_effort_nobody_offers_is_refused_before_anything_is_sent(wire: Wire) -> None:
    async with in_memory(wire) as line:
        with pytest.raises(LlmError) as refused:
            await asked(line, reasoning_effort="enormous")

        assert refused.value.code == "UNSUPPORTED_REASONING_EFFORT"
        assert line.sent == []


@over_wires
@aio
async def test_every_effort_that_is_offered_can_be_asked_for(wire: Wire) -> None:
    plans = [wire.plan(whole(Text("x")))] * 8
    async with in_memory(wire, *plans) as line:
        reasoning = line.llm.resolve_model_info(wire.route, "m").reasoning
        offered = [] if reasoning is None else [effort.id for effort in reasoning.efforts]
        answers = {effort: (await asked(line, reasoning_effort=effort)).code for effort in offered}

        assert answers == dict.fromkeys(EFFORTS[wire.name], "")


@over_wires
@aio_in_virtual_time
async def test_what_the_adapter_fills_in_is_logged_and_marked(wire: Wire) -> None:
    async with looped(wire, [wire.plan(whole(Text("x")))], {}) as it:
        await it.prompt("go")
        [row] = it.rows("request/header")
        header, info = row["header"], it.ctx.use(LLM).resolve_model_info(wire.route, "m")

        filled = {
            "reasoningEffort": info.reasoning and info.reasoning.default_effort,
            "maxTokens": info.default_max_tokens,
        }
        filled = {key: value for key, value in filled.items() if value is not None}
        assert header["config"] == {"provider": wire.route, "model": "m", **filled}
        assert header.get("adapterDefaults", {}) == dict.fromkeys(filled, True)
        [route] = it.rows("request/context")
        assert route.get("contextWindow") == info.context_window


@over_wires
@aio
async def test_tools_the_model_and_the_stream_are_in_every_request(wire: Wire) -> None:
    async with in_memory(wire, wire.plan(whole(Text("x")))) as line:
        await asked(line)
        body = line.sent[0].body

        assert (body["model"], body["stream"]) == ("m", True)
        [tool] = body["tools"]
        assert tool.get("function", tool)["name"] == "read"
        assert line.sent[0].url.endswith(wire.dialect.path)
