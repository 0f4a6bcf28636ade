"""Row `spill-policy`: what the model reads of a result that is too long, and what stays as it is."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.capabilities.retention import size_of
from dsh.capabilities.spill import SPILL_STORE, Spilled
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.plugins import spill_local, spill_policy
from dsh.tools.event import TOOLS_POST_EXECUTE, Accept, Block, PostDecision, Settled
from dsh.tools.registry import ToolRegistry
from tests.aio import aio
from tests.tools.kit import StandInAgent, call, new_registry, text, tool

CAP = 480
GAP = "\n\n[... the middle is left out, see below ...]\n\n"
NOTICE = re.compile(r"\n\n\((\d+) bytes left out\. The whole result: (.+?)\. (.+?)\)((?:\n\[[^\n]*\])*)\n*\Z")
MARKED = "line\n" * 500 + "[exit code: 3]"


class Store:
    """Keeps texts in a dict, under names of any length; may fail."""

    def __init__(self, locator: str = "/spill/1", failure: BaseException | None = None) -> None:
        self.locator, self.failure = locator, failure
        self.texts: dict[str, str] = {}
        self.asked: list[tuple[str, str]] = []

    def locate(self, session_id: str, suggested_name: str) -> Spilled:
        self.asked.append((session_id, suggested_name))
        return Spilled(self.locator, 0, "Open it by `read`.")

    async def save(self, place: Spilled, session_id: str, text: str) -> Spilled:
        if self.failure is not None:
            raise self.failure
        self.texts[place.locator] = text
        return msgspec.structs.replace(place, size_bytes=size_of(text))


class Bounded:
    """A registry with the policy on it, and one tool that answers what it is told to."""

    def __init__(self, ctx: Context, tools: ToolRegistry, store: Store | None) -> None:
        self.ctx, self.tools, self.store = ctx, tools, store
        self.agent = StandInAgent(ctx)
        self.warnings: list[str] = []
        ctx.export_logs(lambda entry: self.warnings.append(entry.text))

    async def run(self, content: Any, *, name: str = "t", **changes: Any) -> str:
        return text(await self.result(content, name=name, **changes))

    async def result(self, content: Any, *, name: str = "t", **changes: Any) -> Any:
        async def body(_: Any, __: Any) -> Any:
            if isinstance(content, Exception):
                raise content
            return "value"

        definition = tool(name, body)
        output = msgspec.structs.replace(definition.output, render=lambda *_: content)
        effect = self.tools.register(msgspec.structs.replace(definition, output=output))
        changes.setdefault("agent", self.agent)
        result = await self.tools.run(call(name, **changes))
        await effect()
        return result


async def bounded(
    store: Store | None, cap: int | None = CAP, *, first: Callable[[Context], None] | None = None
) -> Bounded:
    ctx, tools = new_registry()
    if first is not None:
        first(ctx)
    if store is not None:
        ctx.provide(SPILL_STORE, store)
    await ctx.plugin(spill_policy, {} if cap is None else {"maxInlineBytes": cap})
    return Bounded(ctx, tools, store)


def parts(shown: str) -> tuple[str, int, str, str]:
    """Head, omitted bytes, locator, and tail with the marks of the end, of what the model reads."""
    found = NOTICE.search(shown)
    assert found is not None, shown
    head, _, tail = shown[: found.start()].partition(GAP)
    return head, int(found[1]), found[2], tail + found[4]


@pytest.mark.parametrize("letter", ["x", "é", "漢", "🙂"])
@aio
async def test_at_the_cap_a_result_stays_and_beyond_it_its_ends_are_shown(letter: str) -> None:
    store = Store()
    it = await bounded(store)
    whole = letter * (CAP // size_of(letter))
    assert await it.run(whole) == whole
    assert store.asked == []

    longer = whole + "y"
    shown = await it.run(longer)

    head, omitted, locator, tail = parts(shown)
    assert (locator, store.texts) == ("/spill/1", {"/spill/1": longer})
    assert longer.startswith(head)
    assert longer.endswith(tail)
    assert size_of(head) + omitted + size_of(tail) == size_of(longer)
    assert CAP - 8 <= size_of(shown) <= CAP
    assert store.asked == [("a1", "t.txt")]
    assert it.warnings == []


@settings(deadline=None, max_examples=60)
@given(
    st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\né漢🙂"), max_size=30),
    st.integers(1, 60),
    st.integers(0, 600),
    st.integers(1, 300),
)
def test_a_result_is_never_longer_than_the_cap_unless_the_notice_is(
    piece: str, times: int, cap: int, locator: int
) -> None:
    @aio
    async def run() -> None:
        store = Store("/" + "p" * locator)
        it = await bounded(store, cap)
        whole = piece * times
        shown = await it.run(whole)

        if shown == whole:
            assert size_of(whole) <= cap or not store.texts
            return
        assert size_of(shown) <= cap
        assert store.texts == {store.locator: whole}
        assert "\ufffd" not in shown or "\ufffd" in whole

    run()


@pytest.mark.parametrize(
    ("end", "stays"),
    [
        ("\n[exit code: 3]", "\n[exit code: 3]"),
        ("\n[timed out after 5ms]\n[killed by signal: SIGTERM]\n", None),
        ("\n[output truncated; full output: /x]\n[exit code: 1]", None),
        ("\nplain [exit code: 3]", ""),
        ("\n[1, 2,\n3]", ""),
        ("\n[" + "x" * 1100 + "]", ""),
        ("\n[]\nlast", ""),
    ],
)
@aio
async def test_marks_of_the_end_stay_the_last_lines_and_the_gap_is_marked(
    end: str, stays: str | None
) -> None:
    it = await bounded(Store())
    whole = "line\n" * 500 + "line" + end

    shown = await it.run(whole)

    assert shown.startswith("line\nline\n")
    assert shown.endswith("by `read`.)" + (end if stays is None else stays))
    head, omitted, _, tail = parts(shown)
    assert len(head) + omitted + len(tail.rstrip("\n")) == len(whole.rstrip("\n"))


@aio
async def test_marks_for_which_there_is_no_room_are_output_like_any_other() -> None:
    it = await bounded(Store(), 300)

    shown = await it.run("line\n" * 500 + "[" + "x" * 200 + "]")

    assert NOTICE.search(shown)
    assert size_of(shown) <= 300
    assert shown.endswith("by `read`.)")


@aio
async def test_many_lines_in_brackets_cost_no_more_than_others() -> None:
    it = await bounded(Store())

    shown = await it.run("[x]\n" * 200_000 + "end")

    assert shown.endswith("by `read`.)")


@aio
async def test_the_notice_survives_when_an_old_result_loses_its_middle_again() -> None:
    it = await bounded(Store(), 50_000)

    shown = await it.run("line\n" * 20_000 + "[exit code: 3]")

    assert "/spill/1" in shown[-1024:]


@aio
async def test_where_the_notice_does_not_fit_nothing_is_written() -> None:
    store = Store("/" + "p" * CAP)
    it = await bounded(store)

    assert await it.run(MARKED) == MARKED
    assert store.texts == {}


@aio
async def test_a_store_that_fails_leaves_the_result_and_says_so() -> None:
    for failure in (OSError("disk full"), SystemExit(3)):
        it = await bounded(Store(failure=failure))
        result = await it.result(MARKED)

        assert (result.is_error, text(result)) == (False, MARKED)
        [warning] = it.warnings
        assert "a result of t reaches the model whole" in warning
        assert ("disk full" in warning) is isinstance(failure, OSError)


@aio
async def test_a_failure_that_comes_again_is_told_once() -> None:
    it = await bounded(Store(failure=OSError("disk full")))
    for _ in range(3):
        await it.run(MARKED)
    assert len(it.warnings) == 1


@aio
async def test_the_end_of_a_call_while_its_text_is_written_is_no_failure_of_the_store() -> None:
    it = await bounded(store := Store())
    writes = asyncio.Event()

    async def save(place: Spilled, session_id: str, text: str) -> Spilled:
        writes.set()
        await asyncio.Event().wait()
        return place

    store.save = save  # type: ignore[method-assign]
    running = asyncio.ensure_future(it.result(MARKED))
    await writes.wait()
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert it.warnings == []


@aio
async def test_the_smallest_cap_with_room_for_the_notice_shows_the_notice_alone() -> None:
    notice = "\n\n(9999 bytes left out. The whole result: /spill/1. Open it by `read`.)"
    for cap, is_cut in ((len(GAP + notice), True), (len(GAP + notice) - 1, False)):
        it = await bounded(Store(), cap)
        assert await it.run("x" * 9999) == (GAP + notice if is_cut else "x" * 9999)


@aio
async def test_without_a_store_or_an_owner_the_result_stays_and_that_is_told_once() -> None:
    it = await bounded(None)
    assert await it.run(MARKED) == MARKED
    assert await it.run(MARKED) == MARKED
    assert it.warnings == ["long results reach the model whole: no row provides spillStore"]

    it = await bounded(Store())
    assert await it.run(MARKED, agent=None) == MARKED
    assert it.warnings == ["long results reach the model whole: the call belongs to no session"]


@pytest.mark.parametrize("cap", [None, 0])
@aio
async def test_no_cap_bounds_nothing_and_a_cap_of_nothing_has_no_room_for_a_notice(cap: int | None) -> None:
    it = await bounded(Store(), cap)

    assert await it.run(MARKED) == MARKED


@aio
async def test_read_pages_by_itself_and_calls_of_tools_are_not_the_models() -> None:
    it = await bounded(Store())

    assert await it.run(MARKED, name="read") == MARKED
    assert await it.run(MARKED, parent=object()) == MARKED


@aio
async def test_only_results_that_are_all_text_are_bounded_and_their_blocks_are_one_text() -> None:
    store = Store()
    it = await bounded(store)
    half = {"type": "text", "text": "x" * 300}
    attachment = {"attachmentId": "a", "mediaType": "image/png", "bytes": 1, "width": 1, "height": 1}
    image = {"type": "image", "attachment": attachment}

    mixed = await it.result([half, image, half])
    assert [block["type"] for block in mixed.content] == ["text", "image", "text"]
    shown = await it.result([half, half])
    assert len(shown.content) == 1
    assert store.texts == {"/spill/1": "x" * 600}


@aio
async def test_failures_are_bounded_too_and_stay_failures() -> None:
    store = Store()
    it = await bounded(store)

    result = await it.result(ValueError("it broke: " + "x" * 1000))

    assert result.is_error
    assert size_of(text(result)) <= CAP
    assert text(result).startswith("Error: it broke: xxx")
    assert store.texts["/spill/1"].startswith("Error: it broke: xxx")


def answering(decision: PostDecision) -> Callable[..., Awaitable[PostDecision]]:
    async def listener(_: Settled, __: Callable[[], Awaitable[PostDecision]]) -> PostDecision:
        return decision

    return listener


@pytest.mark.parametrize(("is_older", "is_first"), [(False, False), (True, False), (False, True)])
@aio
async def test_what_another_review_puts_in_its_place_is_bounded(is_older: bool, is_first: bool) -> None:
    long: Sequence[Mapping[str, Any]] = [{"type": "text", "text": "other " * 200}]

    def review(ctx: Context) -> None:
        ctx.on(TOOLS_POST_EXECUTE, answering(Accept(content=long)), prepend=is_first)

    it = await bounded(Store(), first=review if is_older else None)
    if not is_older:
        review(it.ctx)

    shown = await it.run("short")

    assert (size_of(shown) <= CAP) is not is_first
    assert shown.startswith("other other")


@pytest.mark.parametrize("is_told", [True, False])
@aio
async def test_what_is_kept_already_is_not_kept_again(is_told: bool) -> None:
    note = "\n\n(a note)\n(All of it: /all)" if is_told else "\n\n(a note)"
    content = [{"type": "text", "text": "line\n" * 500 + note}]
    store = Store()
    it = await bounded(store)
    it.ctx.on(TOOLS_POST_EXECUTE, answering(Accept(content=content, whole=Spilled("/all", 1, "Look."))))

    shown = await it.run("short")

    assert size_of(shown) <= CAP
    assert (store.asked, store.texts, it.warnings) == ([], {}, [])
    end = r"\)\n\n\(a note\)\n\(All of it: /all\)" if is_told else r" The whole result: /all\. Look\.\)"
    assert re.search(rf"\n\n\(\d+ bytes left out\.{end}\Z", shown)
    assert shown.count("/all") == 1


@aio
async def test_feedback_and_values_of_other_reviews_are_theirs() -> None:
    feedback: Sequence[Mapping[str, Any]] = [{"type": "text", "text": MARKED}]
    it = await bounded(Store())
    it.ctx.on(TOOLS_POST_EXECUTE, answering(Block(feedback=feedback)))
    assert await it.run("short") == MARKED

    it = await bounded(Store())
    it.ctx.on(TOOLS_POST_EXECUTE, answering(Accept(value="v")))
    assert await it.run(MARKED) == MARKED


@aio
async def test_a_review_that_answers_no_blocks_is_told_as_without_the_policy() -> None:
    it = await bounded(Store())
    it.ctx.on(TOOLS_POST_EXECUTE, answering(Accept(content=5)))  # type: ignore[arg-type]

    result = await it.result("short")

    assert result.code == "INVALID_TOOL_OUTPUT"
    assert "content must be a text or a list of blocks, found int" in text(result)


@aio
async def test_with_the_store_in_files_the_model_gets_a_path_that_holds_everything() -> None:
    ctx, tools = new_registry()
    await ctx.plugin(spill_local, {})
    await ctx.plugin(spill_policy, {"maxInlineBytes": CAP})
    it = Bounded(ctx, tools, None)
    whole = "漢\n" * 400

    _, _, locator, _ = parts(await it.run(whole))

    assert Path(locator).read_text() == whole
    assert locator.endswith("-t.txt")
    await ctx.dispose()


@pytest.mark.parametrize("value", [-1, 1.5, "many", True])
@aio
async def test_a_cap_is_a_whole_number_from_zero(value: object) -> None:
    ctx = Context()
    with pytest.raises(CompositionError, match="maxInlineBytes"):
        await ctx.plugin(spill_policy, {"maxInlineBytes": value})
    await ctx.dispose()
