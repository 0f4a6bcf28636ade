"""The offline stand-in: its rules, its deltas, and that it says what it is."""

import json
import logging
from typing import Any

import pytest

from dsh.kernel import CancelToken, Context
from dsh.llm.grammar import StreamGrammar
from dsh.llm.registry import LLM
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.plugins import llm, llm_offline
from dsh.plugins.llm_offline import reply
from dsh.session.assembler import BlockAssembler
from dsh.session.chunk import Chunk, Finish, TextDelta, ToolCallDelta
from dsh.session.message import Message, assistant_message, tool_result_message, user_message
from tests.aio import aio

SNAPSHOT = user_message("Current runtime context.", {"kind": "plugin", "plugin": "x", "form": "snapshot"})


def blocks(chunks: list[Chunk]) -> list[Any]:
    assembler, grammar = BlockAssembler(), StreamGrammar()
    for chunk in chunks:
        grammar.check(chunk)
        assembler.push(chunk)
    grammar.end()
    return list(assembler.blocks())


def answered(call: Any, *results: str) -> list[Message]:
    reply_message = assistant_message([call], provider="offline", model="demo")
    return [
        reply_message,
        *(tool_result_message(call["id"], [{"type": "text", "text": text}]) for text in results),
    ]


def test_run_calls_bash_with_the_command_to_the_end_of_the_text() -> None:
    (call,) = blocks(reply([user_message("Run: echo a\necho b"), SNAPSHOT]))

    assert (call["type"], call["id"], call["name"]) == ("tool-call", "demo-1", "bash")
    assert json.loads(call["arguments"]) == {"command": "echo a\necho b", "description": "demo command"}


def test_read_calls_read_with_the_path() -> None:
    (call,) = blocks(reply([user_message("Read: ä file.txt")]))

    assert (call["name"], json.loads(call["arguments"])) == ("read", {"file_path": "ä file.txt"})


def test_results_are_answered_verbatim() -> None:
    (call,) = blocks(reply([user_message("Run: x")]))
    history = [user_message("Run: x"), SNAPSHOT, *answered(call, "hello\n")]

    assert blocks(reply(history)) == [{"type": "text", "text": "hello\n"}]


@pytest.mark.parametrize("prompt", ["hi there", "please Run: x", "Run:", "run: x"])
def test_anything_else_is_echoed(prompt: str) -> None:
    assert blocks(reply([user_message(prompt), SNAPSHOT])) == [
        {"type": "text", "text": f"offline demo model: {prompt}"}
    ]


def test_a_new_prompt_after_results_is_a_new_task_with_a_new_id() -> None:
    (call,) = blocks(reply([user_message("Run: x")]))
    history = [user_message("Run: x"), *answered(call, "out"), user_message("Run: y")]

    assert blocks(reply(history))[0]["id"] == "demo-2"


def test_deltas_have_sixteen_characters_and_usage_counts_words() -> None:
    chunks = reply([user_message("one two three four five")], "sys tem")
    deltas = [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)]

    assert [len(text) for text in deltas[:-1]] == [16] * (len(deltas) - 1)
    # 2 of the system text, 5 of the prompt; the reply has 3 more in front of the 5
    assert chunks[-2].usage == {"inputTokens": 7, "outputTokens": 8}  # type: ignore[union-attr]
    pieces = [
        c.arguments_delta for c in reply([user_message("Run: " + "x" * 99)]) if isinstance(c, ToolCallDelta)
    ]
    assert all(len(piece) <= 16 for piece in pieces)


def test_nothing_asked_is_nothing_echoed() -> None:
    for history in ([], [SNAPSHOT]):
        assert blocks(reply(history)) == [{"type": "text", "text": "offline demo model: "}]


def test_an_empty_result_is_an_empty_answer() -> None:
    (call,) = blocks(reply([user_message("Run: x")]))

    assert blocks(reply([user_message("Run: x"), *answered(call, "")])) == [{"type": "text", "text": ""}]


@aio
async def test_the_row_serves_its_one_model_and_says_once_that_it_is_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ctx = Context()
    await ctx.plugin(llm, {})
    await ctx.plugin(llm_offline, {})
    registry = ctx.use(LLM)

    async def ask(model: str, signal: CancelToken | None = None) -> list[Chunk]:
        call = await registry.prepare_call(LlmCallConfig("offline", model))
        assert call.context_window == 128_000
        request = LlmRequest(config=call.config, messages=(user_message("hi"),), signal=signal)
        return [chunk async for chunk in call.stream(request)]

    with caplog.at_level(logging.WARNING, "dsh"):
        await ask("demo")
        assert blocks(await ask("demo")) == [{"type": "text", "text": "offline demo model: hi"}]
    assert [record.getMessage() for record in caplog.records] == [llm_offline.NOTICE]

    unknown = (await ask("gpt"))[-1]
    assert isinstance(unknown, Finish)
    assert unknown.reason["failure"]["code"] == "UNKNOWN_MODEL"
    signal = CancelToken()
    signal.cancel("enough")
    aborted = (await ask("demo", signal))[-1]
    assert isinstance(aborted, Finish)
    assert aborted.reason["kind"] == "aborted"
    await ctx.dispose()
