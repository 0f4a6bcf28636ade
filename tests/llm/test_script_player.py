"""Scripts played: order, purposes, throwing, hanging, pace, cancellation, and which session gets which."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.kernel import CancelToken
from dsh.llm.adapter import ModelInfo
from dsh.llm.failure import LlmError, LlmFailure
from dsh.llm.registry import contained_stream
from dsh.llm.script.call import Call
from dsh.llm.script.entry import PARTIAL, Chunks, Hang, Throw, play
from dsh.llm.script.error import ScriptError
from dsh.llm.script.player import Script, ScriptAdapter, Scripts
from dsh.llm.script.recording import Recording, scripts_of
from dsh.llm.stream import close_stream
from dsh.session.chunk import BlockEnd, BlockStart, Chunk, Finish, TextDelta
from dsh.session.message import user_message
from tests.aio import aio, aio_in_virtual_time
from tests.llm.script_kit import adapter_of, chunks_of, refused, request

STOP = Finish({"kind": "stop"})
SNAPSHOT = {"kind": "plugin", "plugin": "x", "form": "snapshot", "sections": []}


def reply(words: str) -> Chunks:
    return Chunks(
        (BlockStart(0, "text"), TextDelta(0, words), BlockEnd(0, {"type": "text", "text": words}), STOP)
    )


def words(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


async def said(adapter: ScriptAdapter, **asked: Any) -> str:
    return words([chunk async for chunk in adapter.stream(request(**asked))])


def recording(name: str, created_at: int, *texts: str, opening: str | None = None) -> Recording:
    return Recording(name, name, created_at, tuple(Call(entry=reply(t)) for t in texts), (), {}, opening)


@aio
async def test_each_call_gets_the_next_entry_and_one_too_many_fails() -> None:
    script = Script([Call(entry=reply("a")), Call(entry=reply("b"))], name="x.jsonl")
    adapter = adapter_of(script)

    assert [await said(adapter), await said(adapter)] == ["a", "b"]
    async with refused("SCRIPT_EXHAUSTED") as caught:
        await said(adapter)
    assert "x.jsonl holds no more than 2" in str(caught[0])
    script.assert_consumed()


@aio
async def test_a_failure_of_the_script_is_not_one_that_is_retried() -> None:
    codes = adapter_of(Script([])).retry_policy("p").retryable_codes

    assert not [code for code in codes if code.startswith("SCRIPT_")]


@aio
async def test_fewer_calls_than_recorded_are_told() -> None:
    script = Script([Call(entry=reply("a"), seq=3), Call(entry=reply("b"), seq=9)], name="x")
    await said(adapter_of(script))

    with pytest.raises(ScriptError, match=r"1 of the calls of x .* at seq 9") as caught:
        script.assert_consumed()
    assert caught.value.code == "SCRIPT_UNCONSUMED"


@aio
async def test_a_call_for_another_purpose_than_recorded_fails() -> None:
    adapter = adapter_of(Script([Call(entry=reply("gist"), purpose="compaction", seq=7)]))

    async with refused("SCRIPT_EXHAUSTED") as caught:
        await said(adapter)
    assert "seq 7" in str(caught[0])
    assert await said(adapter, purpose="compaction") == "gist"


@aio
async def test_a_call_that_has_to_come_first_is_not_passed_over() -> None:
    calls = [Call(entry=reply("gist"), purpose="compaction"), Call(entry=reply("a"), purpose="turn")]
    adapter = adapter_of(Script(calls))

    async with refused("SCRIPT_EXHAUSTED"):
        await said(adapter)
    assert [await said(adapter, purpose="compaction"), await said(adapter)] == ["gist", "a"]


@aio
async def test_what_need_not_be_called_is_passed_over() -> None:
    failed = Throw((), LlmFailure("no summary", "NOT_RECORDED"))
    calls = [
        Call(entry=failed, purpose="compaction", is_needed=False),
        Call(entry=reply("b"), purpose="turn"),
    ]

    script = Script(calls)
    assert await said(adapter_of(script)) == "b"
    script.assert_consumed()
    async with refused("NOT_RECORDED"):
        await said(adapter_of(Script(calls)), purpose="compaction")


@aio
async def test_titles_have_an_order_of_their_own() -> None:
    calls = [
        Call(entry=reply("a"), purpose="turn"),
        Call(entry=reply("Title"), purpose="session-title"),
        Call(entry=reply("b"), purpose="turn"),
    ]
    adapter = adapter_of(Script(calls))

    assert await said(adapter, purpose="session-title") == "Title"
    async with refused("SCRIPT_EXHAUSTED") as caught:
        await said(adapter, purpose="session-title")
    assert "asked for a title, but the script holds no more than 1" in str(caught[0])
    assert [await said(adapter), await said(adapter)] == ["a", "b"]


@aio
async def test_a_throw_comes_after_its_prefix_with_all_its_facts() -> None:
    failure = LlmFailure("slow down", "RATE_LIMIT", 429, 1500.0, "r1")
    got = []
    async with refused("RATE_LIMIT") as caught:
        async for chunk in play(Throw(PARTIAL, failure), None):
            got.append(chunk)

    assert tuple(got) == PARTIAL
    assert caught[0].failure == failure


@aio
async def test_a_hang_says_something_writes_its_file_and_waits_for_the_cancel(tmp_path: Path) -> None:
    marker, signal, got = tmp_path / "ready", CancelToken(), []

    async def watch() -> None:
        async with asyncio.timeout(20):
            while not marker.exists():
                await asyncio.sleep(0.001)
        signal.cancel({"kind": "user"})

    watcher = asyncio.ensure_future(watch())
    async with refused("ABORTED"):
        async for chunk in play(Hang(ready_file=str(marker)), signal):
            got.append(chunk)
    await watcher

    assert tuple(got) == PARTIAL


@pytest.mark.parametrize("name", ["none/ready", "a\0b"])
@aio
async def test_a_file_that_cannot_tell_of_a_hang_is_named(tmp_path: Path, name: str) -> None:
    async with refused("SCRIPT_INVALID") as caught:
        async for _ in play(Hang(ready_file=str(tmp_path / name)), CancelToken()):
            pass

    assert "readyFile" in str(caught[0])
    assert "cannot be written: " in str(caught[0])


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("entry", [reply("x"), Throw(PARTIAL, LlmFailure("no", "X"))])
@aio
async def test_a_cancel_is_seen_between_chunks_and_before_a_throw(entry: Chunks | Throw, at: int) -> None:
    signal, got = CancelToken(), []
    async with refused("ABORTED"):
        if at == 0:
            signal.cancel("now")
        async for chunk in play(entry, signal):
            got.append(chunk)
            if len(got) == at:
                signal.cancel("now")

    assert len(got) == at


@aio_in_virtual_time
async def test_pace_is_waited_for_before_every_chunk_and_ends_with_the_cancel() -> None:
    clock = asyncio.get_running_loop().time
    began = clock()
    chunks = [chunk async for chunk in play(reply("x"), None, pace_ms=250)]
    assert clock() - began == pytest.approx(0.250 * len(chunks))

    signal = CancelToken()
    asyncio.get_running_loop().call_later(0.1, signal.cancel, "now")
    began = clock()
    async with refused("ABORTED"):
        async for _ in play(reply("x"), signal, pace_ms=250):
            pass
    assert clock() - began == pytest.approx(0.1)


@aio
async def test_a_stream_that_is_left_early_ends() -> None:
    stream = play(Hang(), CancelToken())
    await anext(stream)

    await close_stream(stream)

    with pytest.raises(StopAsyncIteration):
        await anext(stream)


class Counting(CancelToken):
    """A token that counts who listens."""

    listeners = 0

    def on_cancel(self, callback: Callable[[Any], None]) -> Callable[[], None]:
        self.listeners += 1
        undo = super().on_cancel(callback)

        def counted() -> None:
            self.listeners -= 1
            undo()

        return counted


@aio
async def test_a_hang_that_is_left_listens_no_longer() -> None:
    signal = Counting()
    waiting = asyncio.ensure_future(anext(play(Hang(()), signal)))
    await asyncio.sleep(0)
    assert signal.listeners == 1

    waiting.cancel()
    await asyncio.wait([waiting])
    assert signal.listeners == 0


@aio
async def test_in_front_of_the_adapters_a_throw_is_a_finish() -> None:
    failure = LlmFailure("no", "SERVER", 500)
    adapter = adapter_of(Script([Call(entry=Throw((), failure)), Call(entry=Hang(()))]))
    first = [chunk async for chunk in contained_stream(request(), adapter.stream)]
    signal = CancelToken()
    signal.cancel("now")
    second = [chunk async for chunk in contained_stream(request(signal=signal), adapter.stream)]

    assert first == [Finish({"kind": "error", "failure": failure.to_json()})]
    assert isinstance(second[0], Finish)
    assert (second[0].reason["kind"], second[0].reason["failure"]["code"]) == ("aborted", "ABORTED")


@aio
async def test_live_sessions_claim_the_recorded_ones_in_order_of_their_first_call() -> None:
    """The parent's comes first, then the children's by time, ids deciding between equals."""
    children = [recording("z", 5, "z1"), recording("b", 3, "b1"), recording("a", 5, "a1")]
    scripts = scripts_of(recording("parent", 9, "p1", "p2"), children)
    adapter = ScriptAdapter(scripts)

    heard = [await said(adapter, session_id=name) for name in ("live", "c1", "c2", "live", "c3")]
    assert heard == ["p1", "b1", "a1", "p2", "z1"]
    scripts.assert_consumed()
    async with refused("SCRIPT_UNRECORDED_SESSION"):
        await said(adapter, session_id="c4")


@pytest.mark.parametrize("order", sorted(set(itertools.permutations(("left", "right", "left")))))
@aio
async def test_children_side_by_side_claim_what_opens_as_they_do(order: tuple[str, ...]) -> None:
    """Those that open alike come in the order of their recordings; others get what is left."""
    children = [
        recording("a", 1, "left 1", opening="left"),
        recording("b", 2, "right 1", opening="right"),
        recording("c", 3, "left 2", opening="left"),
        recording("d", 4, "of another machine", opening="/its/path"),
    ]
    scripts = scripts_of(recording("parent", 9, "p", opening="left"), children)
    adapter = ScriptAdapter(scripts)

    async def first_call(task: str) -> str:
        asked = request("seed", task, user_message("now", SNAPSHOT), session_id=f"live {len(heard)}")
        return words(await chunks_of(adapter, asked))

    heard: list[str] = []
    for task in ("right", *order, "/my/path"):
        heard.append(await first_call(task))
    numbers = {"left": iter(("left 1", "left 2")), "right": iter(("right 1",))}
    assert heard == ["p", *(next(numbers[task]) for task in order), "of another machine"]
    scripts.assert_consumed()


@aio
async def test_calls_without_a_session_share_one_script() -> None:
    scripts = scripts_of(recording("parent", 0, "p1", "p2"), [])
    adapter = ScriptAdapter(scripts)

    assert [await said(adapter, session_id=None) for _ in range(2)] == ["p1", "p2"]


def test_a_session_that_never_called_is_missed() -> None:
    scripts = scripts_of(recording("parent", 0), [recording("child", 1, "c1")])

    with pytest.raises(ScriptError, match="child"):
        scripts.assert_consumed()


@aio
async def test_a_model_is_known_as_it_was_at_the_next_call() -> None:
    def info(limit: int) -> ModelInfo:
        return ModelInfo(provider="p", id="m", name="m", default_max_tokens=limit)

    script = Script([Call(entry=reply("a"), model=info(1)), Call(entry=reply("b"), model=info(2))])
    adapter = adapter_of(script, [info(2)], names={"p": "Shown"})

    assert adapter.resolve_model("p", "m").default_max_tokens == 1
    await said(adapter)
    assert adapter.resolve_model("p", "m").default_max_tokens == 2
    assert adapter.resolve_model("p", "other") == ModelInfo(provider="p", id="other", name="other")
    assert [model.id for model in adapter.list_models("p")] == ["m"]
    assert adapter.list_models("q") == ()
    several = ScriptAdapter(Scripts([Script([Call(entry=reply("a"), model=info(1))]), Script([])]), [info(2)])
    assert several.resolve_model("p", "m").default_max_tokens == 2  # nobody knows whose call is prepared
    assert (adapter.provider_info("p").display_name, adapter.provider_info("q").display_name) == (
        "Shown",
        "q",
    )


@given(st.lists(st.sampled_from(["turn", "compaction"]), max_size=8), st.data())
def test_in_a_script_every_needed_call_is_taken_in_order_or_missed(purposes: list[str], data: Any) -> None:
    """However many of the calls are made: taken and missed ones together are the script."""
    calls = [Call(entry=reply(str(i)), purpose=p, seq=i) for i, p in enumerate(purposes)]  # type: ignore[arg-type]
    script, taken = Script(calls), []
    for purpose in purposes[: data.draw(st.integers(0, len(purposes)))]:
        asked = request(purpose="compaction" if purpose == "compaction" else None)
        taken.append(script.take(asked))

    assert list(itertools.chain(taken, script.unconsumed)) == calls


@aio
async def test_the_chunks_keep_to_the_grammar() -> None:
    assert await chunks_of(adapter_of(Script([Call(entry=reply("a"))]))) == list(reply("a").chunks)
    assert issubclass(ScriptError, LlmError)
