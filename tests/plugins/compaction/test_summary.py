"""The request for a summary: which model, which effort, how many tokens; and what the log then says."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from dsh.agent.contract import AGENT_REQUEST, AgentOptions
from dsh.llm.request import LlmCallConfig
from dsh.session.message import user_message
from dsh.session.value import encode
from tests.agent.kit import data_of, text, texts_of
from tests.aio import aio
from tests.corpus import CORPUS, needs_corpus
from tests.plugins.compaction.kit import ROUTE, Compacting, compacting, long, surface, used


async def summarised(c: Compacting) -> LlmCallConfig:
    """The config of a request for a summary."""
    agent = await c.agent()
    await c.talk(agent, long(200), "go on")
    assert await c.service.compact_now(agent) is not None
    return c.model.asked[0].config


@aio
async def test_the_working_model_summarises_with_the_sessions_own_effort() -> None:
    async with compacting(text(long(100)), window=100_000, effort=True) as c:
        config = await summarised(c)

        assert (config.provider, config.model, config.reasoning_effort) == (ROUTE, "m", "high")
        assert config.max_tokens == 8192 + 16_384


@aio
async def test_an_effort_of_its_own_sizes_the_reply() -> None:
    async with compacting(
        text(long(100)), window=100_000, effort=True, config={"summaryEffort": "off", "maxTokens": 500}
    ) as c:
        config = await summarised(c)

        assert (config.reasoning_effort, config.max_tokens) == ("off", 500)


def with_call(c: Compacting, **changes: Any) -> None:
    """Every request of a turn is made with these settings."""

    async def changed(seed: object, following: Callable[[], Awaitable[LlmCallConfig]]) -> LlmCallConfig:
        return msgspec.structs.replace(await following(), **changes)

    c.loop.ctx.on(AGENT_REQUEST, changed)


@aio
async def test_the_sessions_effort_is_no_other_models() -> None:
    names = {"summarizationProvider": ROUTE, "summarizationModel": "small"}
    async with compacting(text(long(100)), window=100_000, effort=True, config=names) as c:
        with_call(c, reasoning_effort="off")
        config = await summarised(c)

        assert (config.model, config.reasoning_effort) == ("small", "high")  # its own default


@aio
async def test_a_session_that_does_not_think_has_summaries_that_do_not_either() -> None:
    async with compacting(text(long(100)), window=100_000, effort=True) as c:
        with_call(c, reasoning_effort="off")
        config = await summarised(c)

        assert (config.reasoning_effort, config.max_tokens) == ("off", 8192)


@aio
async def test_what_only_concerns_turns_is_not_passed_on() -> None:
    async with compacting(text(long(100)), window=100_000) as c:
        with_call(c, temperature=0.5, stop=("x",))
        config = await summarised(c)

        assert c.model.requests[0].config.temperature == 0.5
        assert (config.temperature, config.stop) == (None, None)


@aio
async def test_the_log_says_who_wrote_it_and_what_it_took() -> None:
    async with compacting(text(long(100)), window=100_000) as c:
        c.model.summaries = [used("the gist", 700)]
        agent = await c.agent()
        await c.talk(agent, long(200), "go on")
        await c.service.compact_now(agent)

        [told] = data_of(agent.session, "compaction/summary")
        assert told["summary"] == told["rawOutput"] == ({"type": "text", "text": "the gist"},)
        assert (told["provider"], told["model"], told["maxTokens"]) == (ROUTE, "m", 8192)
        assert told["usage"]["inputTokens"] == 700


@aio
async def test_the_instruction_asks_for_text_in_sections_and_for_a_merge() -> None:
    async with compacting(text(long(100)), window=100_000) as c:
        await summarised(c)
        asked = texts_of(c.model.asked[0])[-1]

        for heading in ("Goal", "Files and code", "Errors and fixes", "Pending work", "Next step"):
            assert f"\n## {heading}\n" in asked
        assert "call no tool" in asked
        assert "merge it into yours" in asked


@aio
async def test_the_checkpoint_frames_the_summary_on_lines_of_its_own() -> None:
    """A wire that joins blocks without anything between them must not glue the tags to the text."""
    async with compacting(text(long(100)), window=100_000) as c:
        agent = await c.agent()
        await c.talk(agent, long(200), "go on")
        await c.service.compact_now(agent)

        blocks = agent.session.derive_messages()[0]["content"]
        shown = "".join(block["text"] for block in blocks if block["type"] == "text")
        assert shown.endswith("\n\n<compacted-summary>\nthe gist\n</compacted-summary>")
        assert len(blocks) == 3


@aio
async def test_without_a_request_so_far_the_agents_own_model_is_asked() -> None:
    async with compacting(text("a"), window=100_000) as c:
        agent = await c.agent(options=AgentOptions(provider=ROUTE, model="m"))
        for word in ("x", "y"):
            agent.session.append("user/message", user_message(long(300, word)), surface="append")

        assert await c.service.compact_now(agent) is not None
        assert surface(agent.session)[0] == "checkpoint"
        assert c.model.asked[0].system is None


def shape(value: object) -> object:
    """Keys in their order and types of values; texts, ids and numbers masked, lists by their first member."""
    if isinstance(value, Mapping):
        return {key: shape(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [shape(value[0])] if value else []
    return type(value).__name__


@needs_corpus
@aio
async def test_the_rows_have_the_shape_of_the_recorded_ones() -> None:
    path = CORPUS / "fixtures" / "headless-agent-compaction-recovery-session.jsonl"
    recorded = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    async with compacting(text(long(900)), text("two"), text("three")) as c:
        c.model.summaries = [used("the gist", 700)]
        agent = await c.agent()
        await c.talk(agent, long(900), "go on")
        rows = [json.loads(encode(event.to_json())) for event in agent.session.events()]

    def last(log: list[Any], kind: str) -> Any:
        found = [row for row in log if row["type"] == kind]
        if kind == "user/message":
            found = [row for row in found if row["data"]["source"].get("plugin") == "compact"]
        return shape(found[-1])

    for kind in ("compaction/start", "compaction/summary", "user/message", "compaction/end"):
        ours, theirs = last(rows, kind), last(recorded, kind)
        assert json.dumps(ours["data"]) == json.dumps(theirs["data"])
        assert ours.get("surfaceOp") == theirs.get("surfaceOp")
        assert ours.get("sourceEventSeqs") == theirs.get("sourceEventSeqs")
