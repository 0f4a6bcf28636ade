"""The runtime-context snapshot: sent when it says something new, at the tail, and never twice."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.agent.contract import AGENT_PRE_STEP, AGENT_REQUEST_ERROR, EnterStep, PreStep
from dsh.agent.prompt import RUNTIME_CONTEXT_OWNER, SYSTEM_PROMPT, PromptSection
from dsh.agent.runtime_context import CLEARED, PREAMBLE, RuntimeContext
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.message import Message, user_message
from tests.agent.kit import calls, data_of, failed, loop, text, texts_of
from tests.aio import aio
from tests.session.build import IMAGE


def section(words: str, name: str = "a") -> PromptSection:
    return PromptSection(name, words)


class Told:
    """A session and its projection, without a loop around them."""

    def __init__(self) -> None:
        self.session = Session(SessionHeader(id="s", created_at=0))
        self.context = RuntimeContext(self.session)

    def send(self, *sections: PromptSection) -> str | None:
        """Project and, where something is to be said, log it."""
        message = self.context.project(sections)
        if message is None:
            return None
        self.enter(message)
        return str(message["content"][0]["text"])  # type: ignore[typeddict-item]

    def enter(self, message: Message) -> int:
        event = self.session.append("user/message", message, surface="append")
        self.context.entered(event.seq, event.data)
        return event.seq

    def replace(self, start: int, end: int) -> None:
        replace(self.session, start, end)


def replace(session: Session, start: int, end: int) -> None:
    """Put a summary in the place of these nodes of the surface."""
    shadowed = [seq for seq in session.surface_nodes if start <= seq <= end]
    session.append(
        "compaction/prune",
        {"shadowedRange": {"start": start, "end": end}, "shadowedSeqs": shadowed, "shadowedTokenCount": 1},
    )
    session.append(
        "user/message",
        user_message("summary", {"kind": "plugin", "plugin": "compact"}),
        surface={"op": "replace", "start": start, "end": end},
        sources=shadowed,
    )


def test_a_snapshot_holds_the_sections_in_order_below_a_fixed_line() -> None:
    it = Told()
    message = it.context.project([section("one", "x:1"), section("", "x:2"), section("two", "x:3")])
    assert message is not None
    assert message["content"][0]["text"] == f"{PREAMBLE}\n\none\n\ntwo"  # type: ignore[typeddict-item]
    assert message["source"] == {
        "kind": "plugin",
        "plugin": RUNTIME_CONTEXT_OWNER,
        "form": "snapshot",
        "sections": ({"name": "x:1", "text": "one"}, {"name": "x:3", "text": "two"}),
    }
    assert RUNTIME_CONTEXT_OWNER == "@deepseek-ai/dsh-system-prompt"


def test_it_is_sent_once_again_when_changed_and_never_for_nothing() -> None:
    it = Told()
    assert it.send() is None
    assert it.send(section("one")) is not None
    assert it.send(section("one")) is None
    assert it.send(section("two")) is not None
    assert it.send() == CLEARED
    assert it.send() is None
    assert it.send(section("two")) is not None


def test_a_projection_that_did_not_enter_is_offered_again() -> None:
    it = Told()
    assert it.context.project([section("one")]) is not None
    assert it.context.project([section("one")]) is not None


def test_it_is_sent_again_after_a_compaction_replaced_it_and_not_after_another() -> None:
    it = Told()
    first = it.enter(user_message("hello"))
    it.send(section("one"))
    it.replace(first, first)
    assert it.send(section("one")) is None
    snapshot = it.session.surface_nodes[-1]
    it.replace(snapshot, snapshot)
    assert it.send(section("one")) is not None


def test_a_restored_session_remembers_what_was_sent() -> None:
    it = Told()
    it.send(section("one"))
    it.context = RuntimeContext(it.session)
    assert it.send(section("one")) is None


@pytest.mark.parametrize("blocks", [[], [{"type": "text", "text": "x"}] * 2, [IMAGE]])
def test_a_malformed_snapshot_is_replaced(blocks: list[dict[str, object]]) -> None:
    it = Told()
    it.enter(user_message(blocks, {"kind": "plugin", "plugin": RUNTIME_CONTEXT_OWNER}))
    sent = it.send(section("one"))
    assert sent is not None
    it.enter(user_message(text_blocks(sent, "more"), {"kind": "plugin", "plugin": RUNTIME_CONTEXT_OWNER}))
    assert it.send(section("one")) == sent, "the snapshot and something else is not the snapshot"


def text_blocks(*words: str) -> list[dict[str, object]]:
    return [{"type": "text", "text": text} for text in words]


@aio
async def test_in_a_run_it_follows_the_prompt_and_changes_nothing_at_the_head() -> None:
    async with loop(text("done")) as it:
        mode = {"text": "read-only"}
        it.ctx.use(SYSTEM_PROMPT).context("sandbox:policy", 110, lambda at: mode["text"])
        it.ctx.use(SYSTEM_PROMPT).context("approval:policy", 115, lambda at: "ask")
        agent = await it.agent()
        await it.prompt(agent, "a")
        await it.prompt(agent, "b")
        mode["text"] = "workspace-write"
        await it.prompt(agent, "c")
        lines = texts_of(it.model.requests[-1])
        assert lines == [
            "user: a",
            f"user: {PREAMBLE}\n\nread-only\n\nask",
            "assistant: done",
            "user: b",
            "assistant: done",
            "user: c",
            f"user: {PREAMBLE}\n\nworkspace-write\n\nask",
        ]
        assert len(data_of(agent.session, "request/header")) == 1


@aio
async def test_the_row_can_leave_runtime_context_out() -> None:
    async with loop(text("done"), prompt={"includeRuntimeContext": False}) as it:
        it.ctx.use(SYSTEM_PROMPT).context("a:fact", 1, lambda at: "fact")
        await it.prompt(await it.agent(), "a")
        assert texts_of(it.model.requests[0]) == ["user: a"]


@aio
async def test_a_scope_can_leave_runtime_context_out_for_itself() -> None:
    async with loop(text("done")) as it:
        it.ctx.use(SYSTEM_PROMPT).context("a:fact", 1, lambda at: "fact")
        quiet, other = await it.agent(), await it.agent()
        quiet.ctx.use(SYSTEM_PROMPT).suppress_runtime_context()
        await it.prompt(quiet, "a")
        await it.prompt(other, "a")
        assert [len(request.messages) for request in it.model.requests] == [1, 2]


@pytest.mark.parametrize("calls_next", [True, False])
@aio
async def test_a_listener_that_does_not_go_on_drops_the_snapshot_until_the_next_step(
    calls_next: bool,
) -> None:
    async with loop(text("done")) as it:
        it.ctx.use(SYSTEM_PROMPT).context("a:fact", 1, lambda at: "fact")
        agent = await it.agent()

        async def enter(step: PreStep, following: Any) -> Any:
            undo()
            return await following() if calls_next else EnterStep(step.messages)

        undo = agent.ctx.on(AGENT_PRE_STEP, enter)
        await it.prompt(agent, "a")
        await it.prompt(agent, "b")
        lines = [texts_of(request) for request in it.model.requests]
        snapshot = f"user: {PREAMBLE}\n\nfact"
        assert lines[0] == ["user: a", *([snapshot] if calls_next else [])]
        assert lines[1][-1] == ("user: b" if calls_next else snapshot)
        assert lines[1].count(snapshot) == 1


@aio
async def test_the_request_of_the_step_that_a_compaction_precedes_has_its_snapshot() -> None:
    """Decided after the listeners of the pre-step, so what they replaced is known to be gone."""
    async with loop(text("done")) as it:
        it.ctx.use(SYSTEM_PROMPT).context("a:fact", 1, lambda at: "fact")
        agent = await it.agent()
        await it.prompt(agent, "a")

        async def compact(step: PreStep, following: Any) -> Any:
            undo()
            nodes = agent.session.surface_nodes
            replace(agent.session, nodes[0], nodes[-1])
            return await following()

        undo = agent.ctx.on(AGENT_PRE_STEP, compact)
        await it.prompt(agent, "b")
        assert texts_of(it.model.requests[1]) == ["user: summary", "user: b", f"user: {PREAMBLE}\n\nfact"]


@aio
async def test_after_an_overflow_the_repeated_request_lacks_it_and_the_next_step_has_it() -> None:
    """The step has its messages already: a snapshot that its recovery replaced comes one step later."""
    async with loop(failed("CONTEXT_OVERFLOW"), text("done")) as it:
        it.ctx.use(SYSTEM_PROMPT).context("a:fact", 1, lambda at: "fact")
        agent = await it.agent()

        async def recover(failure: Any, following: Any) -> Any:
            nodes = agent.session.surface_nodes
            replace(agent.session, nodes[0], nodes[-1])
            return {"kind": "retry"}

        agent.ctx.on(AGENT_REQUEST_ERROR, recover)
        await it.prompt(agent, "a")
        await it.prompt(agent, "b")
        assert texts_of(it.model.requests[1]) == ["user: summary"]
        assert texts_of(it.model.requests[2])[-2:] == ["user: b", f"user: {PREAMBLE}\n\nfact"]


@aio
async def test_it_is_read_anew_at_every_step_and_told_when_no_fact_is_left() -> None:
    facts = iter(["one", "one", "", ""])
    async with loop(calls(("c1", "look", "{}")), calls(("c2", "look", "{}")), text("done")) as it:

        async def look(args: Any, exec: Any) -> str:  # noqa: A002
            return "seen"

        it.tool("look", look)
        it.ctx.use(SYSTEM_PROMPT).context("a:fact", 1, lambda at: next(facts))
        await it.prompt(await it.agent(), "a")
        lines = [texts_of(request) for request in it.model.requests]
        assert lines[1][-1] == "user: result c1: seen"
        assert lines[2][-1] == f"user: {CLEARED}"


@given(st.lists(st.sampled_from(["", "one", "two", "replace", "restore"]), max_size=25))
def test_the_model_always_has_the_present_snapshot_before_it_and_never_one_too_many(steps: list[str]) -> None:
    """The law: after each projection the newest snapshot on the surface says what applies, once."""
    it = Told()
    for step in steps:
        match step:
            case "restore":
                it.context = RuntimeContext(it.session)
            case "replace":
                if nodes := it.session.surface_nodes:
                    it.replace(nodes[0], nodes[-1])
            case _:
                before = snapshots(it.session)
                said = it.send(section(step))
                after = snapshots(it.session)
                wanted = f"{PREAMBLE}\n\n{step}" if step else CLEARED
                if said is None:
                    assert after == before
                    assert after[-1:] == [wanted] if step or before else after == []
                else:
                    assert said == wanted != (before or [None])[-1]


def snapshots(session: Session) -> list[str | None]:
    found = []
    for seq in session.surface_nodes:
        message = session.event(seq).data
        if message["source"].get("plugin") == RUNTIME_CONTEXT_OWNER:
            found.append(message["content"][0]["text"])
    return found
