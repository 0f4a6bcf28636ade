"""Cancellation in every window of a turn, the inbox dropped or kept: the rows, what waits, what follows.

A window is a way to be called in the middle of a turn. A second cancel comes right behind the first and
changes nothing (`spec/agent-loop.md` §10).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from dsh.agent.contract import (
    AGENT_ERROR,
    AGENT_INBOX_CLAIMED,
    AGENT_INBOX_INSERTED,
    AGENT_PRE_STEP,
    AGENT_REQUEST,
    AGENT_REQUEST_ERROR,
    AGENT_STATUS,
    AGENT_TURN_STOPPING,
    Agent,
    CancelCause,
)
from dsh.agent.prompt import SYSTEM_PROMPT
from dsh.agent.registry import AGENTS
from dsh.agent.transcript import sound_prefix
from dsh.kernel import Event
from dsh.llm.adapter import ModelInfo
from dsh.llm.registry import LLM_STREAM
from dsh.session.chunk import BlockEnd, BlockStart, Finish, TextDelta, UsageChunk
from dsh.session.message import user_message
from dsh.session.store import SESSION_EVENT, Appended
from dsh.tools.event import TOOLS_POST_EXECUTE, TOOLS_PRE_EXECUTE, TOOLS_RESULT
from tests.agent.kit import Item, Loop, Reply, calls, data_of, ends, failed, loop, short, text, thought
from tests.aio import aio

OPENED = "spliced turn/start spliced"
ENTERED = f"{OPENED} step/start user/message"
HEADED = f"{ENTERED} request/header"
ROUTED = f"{HEADED} request/context"
REQUESTED = f"{ROUTED} request/digest"
ANSWERED = f"{REQUESTED} chunks assistant/message"
CLOSED = "step/end turn/end"
PAIR = "tool/call tool/result"

Cancel = Callable[[], None]
Install = Callable[[Loop, Agent, Cancel], None]


class Window(NamedTuple):
    """A place in a turn."""

    name: str
    install: Install
    rows: str
    """The log after a prompt that was cancelled there."""
    kept: str | None = None
    """The same where the inbox is kept, if it differs: the claimed prompt waits again."""
    kind: str = "aborted"
    requests: int = 0
    replies: tuple[Reply, ...] = (text("done"),)
    calls: tuple[str, ...] = ()
    """Codes of the results, of two calls."""


def once(cancel: Cancel) -> Cancel:
    left = [cancel]
    return lambda: left.pop()() if left else None


def around(event: Event[Any, Any], *, after: bool = False) -> Install:
    """In a listener of a waterfall, before it asks the others or after."""

    def install(it: Loop, agent: Agent, cancel: Cancel) -> None:
        async def listen(payload: Any, following: Callable[[], Awaitable[Any]]) -> Any:
            if after:
                answer = await following()
                cancel()
                return answer
            cancel()
            return await following()

        it.ctx.on(event, listen)

    return install


def told(event: Event[Any, Any], *, where: Callable[[Any], bool] = lambda payload: True) -> Install:
    """In a listener that is only told."""

    def install(it: Loop, agent: Agent, cancel: Cancel) -> None:
        it.ctx.on(event, lambda payload: cancel() if where(payload) else None)

    return install


def logged(kind: str, *, time: int = 1) -> Install:
    """In an observer of the log, inside the append of the `time`-th row of a type."""

    def install(it: Loop, agent: Agent, cancel: Cancel) -> None:
        it.when(kind, lambda session: cancel(), time=time)

    return install


def finished(it: Loop, agent: Agent, cancel: Cancel) -> None:
    """The reply is complete and in the log, and not yet a message."""

    def observe(appended: Appended) -> None:
        if appended.event.type == "assistant/chunk" and appended.event.data["chunk"]["type"] == "finish":
            cancel()

    it.ctx.on(SESSION_EVENT, observe)


def streaming(*script: Item | None) -> Install:
    """Where None stands in what the adapter streams."""

    def install(it: Loop, agent: Agent, cancel: Cancel) -> None:
        it.model.replies[0] = [cancel if item is None else item for item in script]

    return install


def in_section(it: Loop, agent: Agent, cancel: Cancel) -> None:
    def told(at: Any) -> None:
        cancel()

    it.ctx.use(SYSTEM_PROMPT).section("x", 1, told)


def in_prepare(it: Loop, agent: Agent, cancel: Cancel) -> None:
    def resolve_model(provider: str, model: str) -> ModelInfo:
        cancel()
        return ModelInfo(provider=provider, id=model, name=model, context_window=1000, default_max_tokens=100)

    it.model.resolve_model = resolve_model  # type: ignore[method-assign]


def in_stream_listener(it: Loop, agent: Agent, cancel: Cancel) -> None:
    def listen(request: Any, following: Callable[[], Any]) -> Any:
        cancel()
        return following()

    it.ctx.on(LLM_STREAM, listen)


def in_body(it: Loop, agent: Agent, cancel: Cancel) -> None:
    async def body(args: Any, execution: Any) -> str:
        cancel()
        return "finished all the same"

    it.tools_body = body  # type: ignore[attr-defined]


def failing(install: Install) -> Install:
    """The same in a turn that fails."""

    def failing_install(it: Loop, agent: Agent, cancel: Cancel) -> None:
        def fail(*_: object) -> None:
            raise RuntimeError("boom")

        it.ctx.on(AGENT_PRE_STEP, fail)
        install(it, agent, cancel)

    return failing_install


TWO = calls(("c1", "echo", "{}"), ("c2", "echo", "{}"))
BEFORE, CUT = "ABORTED_BEFORE_DISPATCH", "ABORTED"
TEXT = text("done")
VISIBLE = f"{ANSWERED} {CLOSED}"
UNSEEN = f"{REQUESTED} chunks {CLOSED}"
LOST = f"{OPENED} turn/end"
BACK = f"{OPENED} spliced turn/end"
STATUS_RUNNING = told(AGENT_STATUS, where=lambda changed: changed.status == "running")


def with_calls(name: str, install: Install, *codes: str) -> Window:
    """A window behind a reply that calls two tools, and the codes of their results."""
    rows = f"{ANSWERED} {PAIR} {PAIR} {CLOSED}"
    return Window(name, install, rows, requests=1, replies=(TWO, TEXT), calls=codes)


WINDOWS = [
    Window("status running", STATUS_RUNNING, "spliced spliced", "spliced", kind="none"),
    Window("claimed", told(AGENT_INBOX_CLAIMED), LOST, BACK),
    Window("claim logged", logged("agent/inbox/spliced", time=2), LOST, BACK),
    Window("assembly", in_section, LOST, BACK),
    Window("pre-step", around(AGENT_PRE_STEP), LOST, BACK),
    Window("pre-step answered", around(AGENT_PRE_STEP, after=True), LOST, BACK),
    Window("step/start logged", logged("step/start"), f"{ENTERED} {CLOSED}"),
    Window("user/message logged", logged("user/message"), f"{ENTERED} {CLOSED}"),
    Window("request", around(AGENT_REQUEST), f"{ENTERED} {CLOSED}"),
    Window("request answered", around(AGENT_REQUEST, after=True), f"{ENTERED} {CLOSED}"),
    Window("call prepared", in_prepare, f"{ENTERED} {CLOSED}"),
    Window("request/header logged", logged("request/header"), f"{ROUTED} {CLOSED}"),
    Window("request/context logged", logged("request/context"), f"{ROUTED} {CLOSED}"),
    Window("request/digest logged", logged("request/digest"), f"{REQUESTED} {CLOSED}"),
    Window("stream asked for", in_stream_listener, f"{REQUESTED} {CLOSED}", requests=1),
    Window("before the first chunk", streaming(None, *TEXT), f"{REQUESTED} {CLOSED}", requests=1),
    Window("block-start", streaming(BlockStart(0, "text"), None, TextDelta(0, "x")), UNSEEN, requests=1),
    Window("block-start logged", logged("assistant/chunk"), UNSEEN, requests=1),
    Window("text-delta", streaming(*TEXT[:2], None, *TEXT[2:]), VISIBLE, requests=1),
    Window("blank text", streaming(BlockStart(0, "text"), TextDelta(0, " \n"), None), UNSEEN, requests=1),
    Window("reasoning-delta", streaming(*thought("hm"), None, TextDelta(0, "x")), VISIBLE, requests=1),
    Window("tool-call-delta", streaming(*TWO[:2], None, *TWO[2:]), UNSEEN, requests=1),
    Window("block-end", streaming(*TEXT[:3], None, *TEXT[3:]), VISIBLE, requests=1),
    Window("block-end of a call", streaming(*TWO[:3], None, *TWO[3:]), UNSEEN, requests=1),
    Window(
        "usage",
        streaming(UsageChunk({"inputTokens": 1, "outputTokens": 1}), None, *TEXT),
        f"{REQUESTED} chunks request/usage {CLOSED}",
        requests=1,
    ),
    Window("finish logged", finished, VISIBLE, requests=1),
    Window("finish of calls logged", finished, UNSEEN, requests=1, replies=(TWO, TEXT)),
    Window(
        "request-error", around(AGENT_REQUEST_ERROR), UNSEEN, requests=1, replies=(failed("SERVER"), TEXT)
    ),
    Window("assistant/message logged", logged("assistant/message"), VISIBLE, requests=1),
    with_calls("assistant/message of calls logged", logged("assistant/message"), BEFORE, BEFORE),
    with_calls("tool/call logged", logged("tool/call"), BEFORE, BEFORE),
    with_calls("policies asked", around(TOOLS_PRE_EXECUTE), BEFORE, BEFORE),
    with_calls("tool body", in_body, CUT, BEFORE),
    with_calls("outcome reviewed", around(TOOLS_POST_EXECUTE), CUT, BEFORE),
    with_calls("tool/result logged", logged("tool/result"), "", BEFORE),
    with_calls("result told", told(TOOLS_RESULT), "", BEFORE),
    Window("step/end logged", logged("step/end"), VISIBLE, requests=1),
    Window("turn-stopping", told(AGENT_TURN_STOPPING), VISIBLE, requests=1),
    Window("turn/end logged", logged("turn/end"), VISIBLE, requests=1, kind="completed"),
    Window("agent/error", failing(told(AGENT_ERROR)), LOST, BACK, kind="error"),
]
NAMES = [window.name for window in WINDOWS]


async def in_window(it: Loop, window: Window, agent: Agent, cancel: Cancel) -> None:
    """Give a prompt and let it be cancelled in the window."""
    it.tools_body = echo  # type: ignore[attr-defined]
    cancelling = once(cancel)
    window.install(it, agent, cancelling)
    it.tool("echo", lambda args, execution: it.tools_body(args, execution))  # type: ignore[attr-defined]
    await it.prompt(agent, "go")


async def echo(args: Any, execution: Any) -> str:
    return "echoed"


def waiting(agent: Agent) -> list[str]:
    return [m["content"][0]["text"] for m in agent.inbox.next_turn]  # type: ignore[typeddict-item]


@pytest.mark.parametrize("keeps", [False, True], ids=["dropped", "kept"])
@pytest.mark.parametrize("window", WINDOWS, ids=NAMES)
@aio
async def test_a_cancel_leaves_exactly_these_rows_and_the_agent_goes_on(window: Window, keeps: bool) -> None:
    cause: CancelCause = {"kind": "hook", "reason": "first"}
    async with loop(*window.replies) as it:
        agent = await it.agent()

        def cancel() -> None:
            agent.cancel(cause, keep_inbox=keeps)
            agent.cancel({"kind": "user"}, keep_inbox=True)

        errors, stopping = list[Any](), list[Any]()
        it.ctx.on(AGENT_ERROR, errors.append)
        it.ctx.on(AGENT_TURN_STOPPING, stopping.append)
        await in_window(it, window, agent, cancel)
        assert len(errors) == (window.kind == "error"), "a cancel is no error"
        assert bool(stopping) == (window.name in ("turn-stopping", "turn/end logged"))
        assert short(agent.session) == ((keeps and window.kept) or window.rows)
        reasons = ends(agent.session)
        if window.kind == "none":
            assert reasons == []
        elif window.kind == "aborted":
            assert reasons == [{"kind": "aborted", "reason": cause}], "the first cause wins"
        else:
            assert [reason["kind"] for reason in reasons] == [window.kind]
        assert len(it.model.requests) == window.requests
        assert waiting(agent) == (["go"] if keeps and window.kept else [])
        codes = [result.get("error", {}).get("code", "") for result in data_of(agent.session, "tool/result")]
        assert tuple(codes) == window.calls
        assert it.statuses == ["running", "idle"]

        it.model.replies = [text("done")]
        if window.name != "agent/error":
            await it.prompt(agent, "again")
            assert ends(agent.session)[-1] == {"kind": "completed"}
            assert sound_prefix(it.model.requests[-1].messages) == len(it.model.requests[-1].messages)
            assert waiting(agent) == []


@pytest.mark.parametrize("with_loop", [False, True], ids=["by itself", "with the loop"])
@pytest.mark.parametrize("window", WINDOWS, ids=NAMES)
@aio
async def test_an_agent_that_is_ended_in_any_window_leaves_a_closed_log_and_nothing_else(
    window: Window, with_loop: bool
) -> None:
    async with loop(*window.replies) as it:
        handle = await it.create()
        agent, ending = handle.agent, list[asyncio.Future[None]]()
        row = agent.ctx.fiber.parent.fiber  # type: ignore[union-attr]
        dispose = row.dispose if with_loop else handle.dispose
        await in_window(it, window, agent, lambda: ending.append(asyncio.ensure_future(dispose())))
        await asyncio.gather(*ending)
        assert ending
        assert agent.session.open_turn is None
        for end in ends(agent.session):
            assert end["kind"] in ("completed", "error") or end["reason"] == {"kind": "disposed"}
        assert it.ctx.use(AGENTS).list() == ()
        assert it.sessions.get(agent.id) is None
        entered = [data["content"][0]["text"] for data in data_of(agent.session, "user/message")]
        if with_loop:
            assert [*entered, *waiting(agent)] == ["go"], "what has not entered waits for a resume"
        else:
            assert waiting(agent) == []
        length = agent.session.length
        agent.followup(user_message("to nobody"))
        await agent.when_idle()
        assert agent.session.length == length + 1, "a message may still be put down; nothing runs"
        assert agent.status == "idle"


CAUSES: list[CancelCause] = [
    {"kind": "user"},
    {"kind": "parent"},
    {"kind": "hook", "reason": "signal:SIGTERM"},
    {"kind": "disposed"},
]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause["kind"])
@pytest.mark.parametrize("name", ["pre-step", "text-delta", "tool body", "turn-stopping"])
@aio
async def test_every_cause_is_written_as_it_was_given(name: str, cause: CancelCause) -> None:
    window = WINDOWS[NAMES.index(name)]
    async with loop(*window.replies) as it:
        agent = await it.agent()
        await in_window(it, window, agent, lambda: agent.cancel(cause))
        assert ends(agent.session) == [{"kind": "aborted", "reason": cause}]
        assert short(agent.session) == window.rows


# -- where an observer may not append -----------------------------------------------------------------


@pytest.mark.parametrize("keeps", [False, True], ids=["dropped", "kept"])
@aio
async def test_cancelled_by_an_observer_of_turn_start_nothing_is_claimed(keeps: bool) -> None:
    """An observer may not append, so it drops nothing either: what was queued waits on."""
    async with loop(text("done")) as it:
        agent = await it.agent()
        it.when("turn/start", lambda s: agent.cancel({"kind": "user"}, keep_inbox=keeps))
        await it.prompt(agent, "go")
        assert short(agent.session) == "spliced turn/start turn/end"
        assert ends(agent.session) == [{"kind": "aborted", "reason": {"kind": "user"}}]
        assert waiting(agent) == ["go"]
        await it.prompt(agent, "again")
        assert [data["content"][0]["text"] for data in data_of(agent.session, "user/message")] == [
            "go",
            "again",
        ]


@aio
async def test_prompts_that_were_queued_before_a_cancel_at_the_end_of_a_turn_stay_parked() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        it.when("turn/end", lambda s: agent.cancel({"kind": "user"}, keep_inbox=True))
        agent.followup(user_message("a"))
        agent.followup(user_message("b"))
        await agent.when_idle()
        assert ends(agent.session) == [{"kind": "completed"}]
        assert waiting(agent) == ["b"]
        assert it.statuses == ["running", "idle"]
        assert agent.continue_pending()
        await agent.when_idle()
        assert waiting(agent) == []


@aio
async def test_what_arrives_with_the_end_of_a_turn_gets_the_next_one() -> None:
    """No gap between the last look at the inbox and the end of the driver (weak spot 8)."""
    async with loop(text("done")) as it:
        agent = await it.agent()
        it.when("turn/end", lambda s: it.soon(lambda: agent.followup(user_message("b"))))
        agent.followup(user_message("a"))
        await agent.when_idle()
        await it.breath()
        await agent.when_idle()
        assert [end["kind"] for end in ends(agent.session)] == ["completed", "completed"]
        assert waiting(agent) == []


@aio
async def test_a_listener_of_idle_that_sends_starts_the_next_driver_at_once() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        more = iter([True])

        def send(changed: Any) -> None:
            if changed.status == "idle" and next(more, False):
                agent.followup(user_message("b"))

        it.ctx.on(AGENT_STATUS, send)
        await it.prompt(agent, "a")
        assert it.statuses == ["running", "idle", "running", "idle"]
        assert len(ends(agent.session)) == 2


@aio
async def test_a_prompt_dropped_by_its_own_insertion_listener_is_not_put_back() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        it.ctx.on(AGENT_INBOX_INSERTED, lambda changed: agent.cancel({"kind": "user"}))
        await it.prompt(agent, "go")
        assert short(agent.session) == "spliced spliced turn/start turn/end"
        assert waiting(agent) == []


def test_the_table_knows_every_kind_of_chunk() -> None:
    named = " ".join(NAMES)
    for kind in (BlockStart, BlockEnd, TextDelta, UsageChunk, Finish):
        tag = kind.__struct_config__.tag
        assert isinstance(tag, str) and tag in named
