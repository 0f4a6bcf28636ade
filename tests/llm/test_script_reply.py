"""Replies as people write them: what is played, and every mistake with its place."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.errors import CompositionError
from dsh.kernel import CancelToken, ValidationError
from dsh.llm.adapter import ModelInfo
from dsh.llm.failure import LlmFailure
from dsh.llm.script import pattern
from dsh.llm.script.error import ScriptError
from dsh.llm.script.script_file import given_replies, read_replies
from dsh.llm.script.scripted import ScriptedAdapter
from dsh.session.chunk import BlockEnd, BlockStart, Chunk, Finish, TextDelta, ToolCallDelta, UsageChunk
from dsh.session.message import assistant_message
from tests.aio import aio, aio_in_virtual_time
from tests.llm.script_kit import blocks_of, chunks_of, refused, request


def model(*replies: dict[str, Any], **options: Any) -> ScriptedAdapter:
    return ScriptedAdapter(given_replies(replies), (), **options)


def finish_of(chunks: list[Chunk]) -> Any:
    [finish] = [chunk for chunk in chunks if isinstance(chunk, Finish)]
    return finish.reason["kind"]


@aio
async def test_reasoning_text_and_calls_come_in_this_order() -> None:
    tools = [
        {"name": "read", "args": {"file_path": "ä"}},
        {"name": "x", "arguments": "not json", "id": "mine"},
    ]
    reply = {"tools": tools, "text": "I look.", "reasoning": "hm"}

    assert await blocks_of(model(reply)) == [
        {"type": "reasoning", "text": "hm"},
        {"type": "text", "text": "I look."},
        {"type": "tool-call", "id": "scripted-1", "name": "read", "arguments": '{"file_path":"ä"}'},
        {"type": "tool-call", "id": "mine", "name": "x", "arguments": "not json"},
    ]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ({"text": "x"}, "stop"),
        ({"tools": [{"name": "t"}]}, "tool-calls"),
        ({"text": "x", "finish": "max-tokens"}, "max-tokens"),
        ({"tools": [{"name": "t"}], "finish": "stop"}, "stop"),
        ({"finish": "stop"}, "stop"),
        ({"text": ""}, "stop"),
    ],
)
@aio
async def test_why_a_reply_ends(reply: dict[str, Any], expected: str) -> None:
    assert finish_of(await chunks_of(model(reply))) == expected


@aio
async def test_a_call_without_arguments_has_empty_ones() -> None:
    [call] = await blocks_of(model({"tools": [{"name": "t"}]}))

    assert call["arguments"] == "{}"


@aio
async def test_ids_are_counted_over_the_whole_run() -> None:
    adapter = model({"tools": [{"name": "t"}, {"name": "t"}]}, repeat_last=True)

    ids = [block["id"] for _ in range(2) for block in await blocks_of(adapter)]
    assert ids == ["scripted-1", "scripted-2", "scripted-3", "scripted-4"]


@aio
async def test_an_id_that_the_conversation_holds_is_not_given_again() -> None:
    calls = [{"type": "tool-call", "id": f"scripted-{n}", "name": "t", "arguments": "{}"} for n in (1, 3)]
    asked = request("hi", assistant_message(calls, "p", "m"))

    blocks = await blocks_of(model({"tools": [{"name": "t"}, {"name": "t"}]}), asked)
    assert [block["id"] for block in blocks] == ["scripted-2", "scripted-4"]


@aio
async def test_usage_is_reported_where_it_is_given() -> None:
    full = {"inputTokens": 3, "cacheReadTokens": 0, "reasoningTokens": 1}
    with_usage, without = model({"text": "x", "usage": full}), model({"text": "x"})

    assert UsageChunk({"inputTokens": 3, "outputTokens": 0, "cacheReadTokens": 0, "reasoningTokens": 1}) in (
        await chunks_of(with_usage)
    )
    assert not [chunk for chunk in await chunks_of(without) if isinstance(chunk, UsageChunk)]


@aio
async def test_an_error_comes_after_what_was_said_and_leaves_the_last_block_open() -> None:
    error = {"code": "RATE_LIMIT", "message": "slow", "status": 429, "retryAfterMs": 5, "requestId": "r"}
    got: list[Chunk] = []
    async with refused("RATE_LIMIT") as caught:
        reply = {"reasoning": "hm", "text": "par", "error": error, "usage": {"inputTokens": 1}}
        async for chunk in model(reply).stream(request()):
            got.append(chunk)

    assert caught[0].failure == LlmFailure("slow", "RATE_LIMIT", 429, 5, "r")
    usage = UsageChunk({"inputTokens": 1, "outputTokens": 0})
    assert got[-3:] == [BlockStart(1, "text"), TextDelta(1, "par"), usage]
    assert isinstance(got[2], BlockEnd)


@aio
async def test_a_hang_lasts_until_the_cancel(tmp_path: Path) -> None:
    signal, marker = CancelToken(), tmp_path / "ready"
    stream = model({"text": "par", "hang": True, "readyFile": str(marker)}).stream(request(signal=signal))

    got = [await anext(stream), await anext(stream)]
    signal.cancel("enough")
    async with refused("ABORTED"):
        await anext(stream)
    assert got == [BlockStart(0, "text"), TextDelta(0, "par")]


@aio_in_virtual_time
async def test_a_delay_comes_first_and_ends_with_the_cancel() -> None:
    import asyncio

    clock = asyncio.get_running_loop().time
    began = clock()
    await chunks_of(model({"text": "x", "delayMs": 1500}))
    assert clock() - began == pytest.approx(1.5)

    signal = CancelToken()
    asyncio.get_running_loop().call_later(0.2, signal.cancel, "now")
    began = clock()
    async with refused("ABORTED"):
        await chunks_of(model({"text": "x", "delayMs": 1500}), request(signal=signal))
    assert clock() - began == pytest.approx(0.2)


@aio
async def test_replies_come_in_order_and_one_too_many_fails() -> None:
    adapter = model({"text": "a"}, {"text": "b", "repeat": 2})

    assert [(await blocks_of(adapter))[0]["text"] for _ in range(3)] == ["a", "b", "b"]
    async with refused("SCRIPT_EXHAUSTED") as caught:
        await chunks_of(adapter)
    assert "has 3, 3 were played, the last of them at replies[1]" in str(caught[0])
    assert "repeatLast" in caught[0].hint
    adapter.assert_consumed()


@aio
async def test_the_last_reply_may_answer_for_ever() -> None:
    adapter = model({"text": "a"}, {"text": "b"}, repeat_last=True)

    assert [(await blocks_of(adapter))[0]["text"] for _ in range(4)] == ["a", "b", "b", "b"]


@aio
async def test_the_last_reply_answers_for_ever_what_it_is_for() -> None:
    adapter = model({"text": "Title", "purpose": "session-title"}, repeat_last=True)
    title = request(purpose="session-title")

    assert [(await blocks_of(adapter, title))[0]["text"] for _ in range(2)] == ["Title", "Title"]
    async with refused("SCRIPT_EXHAUSTED"):
        await chunks_of(adapter)


@aio
async def test_replies_that_were_not_played_are_told_with_the_place_of_the_first() -> None:
    adapter = model({"text": "a"}, {"text": "b"}, {"text": "c"})
    await chunks_of(adapter)

    with pytest.raises(ScriptError, match=r"2 of 3 replies .* replies\[1\]") as caught:
        adapter.assert_consumed()
    assert caught.value.code == "SCRIPT_UNCONSUMED"


@aio
async def test_a_reply_for_a_purpose_waits_for_it() -> None:
    adapter = model({"text": "gist", "purpose": "compaction"}, {"text": "a"}, {"text": "b"})

    assert (await blocks_of(adapter))[0]["text"] == "a"
    assert (await blocks_of(adapter, request(purpose="compaction")))[0]["text"] == "gist"
    assert (await blocks_of(adapter))[0]["text"] == "b"
    async with refused("SCRIPT_EXHAUSTED") as caught:
        await chunks_of(adapter, request(purpose="session-title"))
    assert "session-title" in str(caught[0])


@pytest.mark.parametrize("expect", ["wor.d", ["^hello", "(?m)^You are"], "You are"])
@aio
async def test_what_is_expected_may_stand_in_any_text_of_the_request(expect: Any) -> None:
    adapter = model({"text": "x", "expect": expect})

    await chunks_of(adapter, request("hello", "my world", system="hello\nYou are"))


@pytest.mark.parametrize("expect", ["nothing", ["world", "nothing"], "user"])
@aio
async def test_a_request_without_what_is_expected_fails_by_name(expect: Any) -> None:
    async with refused("SCRIPT_UNEXPECTED_REQUEST") as caught:
        await chunks_of(model({"text": "x", "expect": expect}), request("my world"))

    assert str(caught[0]).startswith("replies[0]: the request does not hold what is expected")
    assert "my world" in str(caught[0])


@aio
async def test_placeholders_are_filled_in_every_string() -> None:
    mark = "{{fromRequest:at (\\S+)}}"
    tools = [
        {"name": mark, "id": mark, "args": {"deep": [{"path": mark}]}},
        {"name": "t", "arguments": f'"{mark}"'},
    ]
    reply = {"reasoning": mark, "text": f"see {mark}", "tools": tools}

    said = 'C:\\"x"'
    asked = request(f"it is at {said}")
    thought, answer, first, second = await blocks_of(model(reply), asked)
    assert (thought["text"], answer["text"]) == (said, f"see {said}")
    assert (first["name"], first["id"]) == (said, said)
    assert json.loads(first["arguments"]) == {"deep": [{"path": said}]}
    assert second["arguments"] == f'"{said}"'
    async with refused("X") as caught:
        await chunks_of(model({"error": {"code": "X", "message": f"no {mark}"}}), asked)
    assert str(caught[0]) == f"no {said}"


@aio
async def test_an_expectation_that_never_ends_fails_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern, "SEARCH_S", 0.02)
    async with refused("SCRIPT_UNEXPECTED_REQUEST") as caught:
        await chunks_of(model({"text": "x", "expect": "(a+)+$"}), request("a" * 60 + "b"))

    assert str(caught[0]).startswith("replies[0]: expect: the search for '(a+)+$' does not end in")


@given(st.text(min_size=1), st.integers(1, 40))
def test_however_a_text_is_cut_it_is_the_same_text(text: str, size: int) -> None:
    text = text.replace("{{", "")
    [placed] = given_replies([{"text": text, "tools": [{"name": "t", "args": {"a": text}}]}])
    entry = placed.reply.entry((), lambda: "c", delta_chars=size)
    said = "".join(chunk.text for chunk in entry.chunks if isinstance(chunk, TextDelta))
    raw = "".join(chunk.arguments_delta for chunk in entry.chunks if isinstance(chunk, ToolCallDelta))

    assert said == placed.reply.text
    assert json.loads(raw) == {"a": text}


@aio
async def test_a_model_that_is_not_listed_is_known_by_its_id() -> None:
    info = ModelInfo(provider="p", id="m", name="M", context_window=5)
    adapter = ScriptedAdapter((), [info])

    assert adapter.resolve_model("p", "m") == info
    assert adapter.resolve_model("p", "n") == ModelInfo(provider="p", id="n", name="n")
    assert (adapter.list_models("p"), adapter.list_models("q")) == ((info,), ())


GOOD = """\
# a script
- expect: hello
  reasoning: |
    two
    lines
  tools:
    - {name: read, args: {file_path: a.txt, n: 3}}
- text: "1"
  usage: {inputTokens: 1, outputTokens: 2}
- error: {code: SERVER}
"""


def test_a_file_is_a_list_of_replies(tmp_path: Path) -> None:
    path = tmp_path / "r.yml"
    path.write_text(GOOD)

    placed = read_replies(path)
    assert [one.place for one in placed] == [f"{path}:2:3", f"{path}:8:3", f"{path}:10:3"]
    assert placed[0].reply.reasoning == "two\nlines\n"


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("- txt: x\n", "1:3", "unknown key 'txt' (did you mean 'text'?)"),
        ("- text: x\n- tools:\n    - {nam: t}\n", "3:8", "unknown key 'nam'"),
        ("- text: 4\n", "1:9", "expected string | null but got integer"),
        ("- text: a\n- tools: [{args: {}}]\n", "2:11", "missing required value"),
        ("- tools:\n  - name: t\n    args: [1]\n", "3:11", "expected object"),
        ("- tools: [{name: t, args: {}, arguments: x}]\n", "1:", "args or arguments, not both"),
        ("- {}\n", "1:3", "the reply is empty"),
        ("- text: x\n- [a]\n", "2:3", "expected object but got array"),
        ("- text: x\n  finish: stopp\n", "2:11", "expected stop | tool-calls | max-tokens"),
        ("- text: x\n  finish: stop\n  error: {code: X}\n", "1:3", "finish and error"),
        ("- text: x\n  readyFile: f\n", "1:3", "hang: true"),
        ("- text: x\n  expect: '('\n", "1:3", "no regular expression"),
        ("- text: '{{fromRequest:x'\n", "1:3", "has no end"),
        ("- tools: [{name: t, args: {a: ['{{fromRequest:(}}']}}]\n", "1:3", "no regular expression"),
        ("- tools: [{name: '{{fromRequest:x'}]\n", "1:3", "has no end"),
        ("- error: {code: X, message: '{{fromRequest:x'}\n", "1:3", "has no end"),
        ("- text: x\n  usage: {inputTokens: 9007199254740992}\n", "2:24", "<= 9007199254740991"),
        ("- text: x\n  delayMs: -1\n", "2:12", ">= 0"),
        ("- text: x\n  repeat: 0\n", "2:11", ">= 1"),
        ("- error: {code: X, status: 7}\n", "1:28", ">= 100"),
        ("- text: !expr 1 + 1\n", "1:9", "no expressions"),
        ("text: x\n", "1:1", "a list of replies"),
        ("", "1:1", "a list of replies"),
        ("just words\n", "1:1", "a list of replies"),
        ("- text: x\n text: y\n", "2:", ""),
        ("- text: x\n  text: y\n", "2:3", "stands twice"),
    ],
)
def test_every_mistake_is_told_with_its_place(tmp_path: Path, text: str, place: str, told: str) -> None:
    path = tmp_path / "r.yml"
    path.write_text(text)

    with pytest.raises(CompositionError) as caught:
        read_replies(path)
    message = f"{caught.value} ({caught.value.hint})"
    assert message.startswith(f"{path}:{place}"), message
    assert told.removesuffix(")").split(" (")[0] in message


def test_a_mistake_in_a_row_is_told_with_its_path() -> None:
    with pytest.raises(ValidationError, match="unknown key 'nam'") as caught:
        given_replies([{"text": "x"}, {"tools": [{"nam": 1}]}])
    assert (caught.value.path, caught.value.unknown) == ("replies.1.tools.0", "nam")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CompositionError, match=r"none\.yml"):
        read_replies(tmp_path / "none.yml")
