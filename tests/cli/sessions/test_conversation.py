"""A log as a conversation: what belongs together is together, nothing is lost, nothing upsets it."""

import json
import tracemalloc
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.cli.sessions.conversation.drawing import drawn
from dsh.cli.sessions.conversation.html import page
from dsh.cli.sessions.conversation.item import (
    Call,
    Item,
    Lost,
    Note,
    Pieces,
    Reply,
    Result,
    Said,
    TurnEnd,
    TurnStart,
    Words,
)
from dsh.cli.sessions.conversation.markdown import markdown
from dsh.cli.sessions.conversation.reader import conversation
from dsh.cli.sessions.terminal import Look
from dsh.persistence.error import LogRefusal
from dsh.persistence.view import LogView
from dsh.session.chunk import ReasoningDelta, TextDelta, ToolCallDelta
from dsh.session.event import SessionEvent
from dsh.session.log import Session
from dsh.session.value import freeze
from dsh.session.vocabulary import KNOWN
from tests.cli.sessions.talk import ROUTE, Talk, answered
from tests.corpus import CORPUS, needs_corpus
from tests.persistence.golden import TEXT, view_of
from tests.session.build import T0, Ticks, header

T = TypeVar("T", bound=Item)


def only(kind: type[T], items: list[Item]) -> T:
    (found,) = (item for item in items if isinstance(item, kind))
    return found


def test_a_turn_is_told_in_the_order_of_the_log() -> None:
    start, said, reply, end = answered().items()

    assert start == TurnStart(T0 + 1, 1)
    assert isinstance(said, Said) and (said.who, said.is_users, said.texts) == (
        "user",
        True,
        ("say hi",),
    )
    assert isinstance(reply, Reply) and (reply.route, reply.parts) == (ROUTE, (Words("hi!"),))
    assert isinstance(end, TurnEnd) and (end.reason, end.steps, end.duration_ms) == ("completed", 1, 5)


def test_each_call_has_its_own_result_also_when_they_come_in_another_order() -> None:
    talk = Talk().turn().step()
    talk.ask(("c-1", "bash", "{}"), ("c-2", "read", "{}"))
    first, second = talk.start("c-1"), talk.start("c-2", "read")
    talk.answer("c-2", "two", second)
    talk.answer("c-1", "one", first)

    calls = only(Reply, talk.items()).parts

    assert [(c.name, c.result and c.result.texts) for c in calls if isinstance(c, Call)] == [
        ("bash", ("one",)),
        ("read", ("two",)),
    ]
    assert [c.duration_ms for c in calls if isinstance(c, Call)] == [3, 1]


def test_what_happens_while_a_reply_waits_for_its_results_comes_after_it() -> None:
    talk = Talk().turn().step()
    talk.ask(("c-1", "bash", "{}"))
    at = talk.start("c-1")
    talk.event("sandbox/mode", {"mode": "read-only"})
    talk.answer("c-1", "one", at)

    _, reply, note = talk.items()

    assert isinstance(reply, Reply) and isinstance(note, Note)
    assert note.text == "sandbox: read-only"


def test_approvals_and_calls_from_code_belong_to_their_call() -> None:
    talk = Talk().turn().step()
    talk.ask(("c-1", "bash", "{}"))
    at = talk.start("c-1")
    talk.event("approval/asked", {"id": "q", "toolName": "bash", "callId": "c-1", "reason": "escalate"})
    talk.event("approval/decided", {"id": "q", "outcome": "rejected"})
    code = {"rootCallId": "c-1", "parentCallId": "c-1", "subCallId": "c-1:code:1", "name": "read"}
    talk.event("tool/code-dispatch-start", code | {"arguments": {}})
    talk.event("tool/code-dispatch", code | {"arguments": {"a": 1}, "isError": False, "content": []})
    talk.answer("c-1", "no", at)

    items = talk.items()

    (call,) = only(Reply, items).parts
    assert isinstance(call, Call)
    assert [(note.text, note.is_error) for note in call.notes] == [
        ("approval asked for bash: escalate", False),
        ("approval for bash: rejected", True),
        ("from code: read done", False),
    ]
    assert not [item for item in items if isinstance(item, Note)]


def test_a_call_without_a_result_does_not_hold_back_the_next_step() -> None:
    talk = Talk().turn().step()
    talk.ask(("c-1", "bash", "{}"))
    talk.start("c-1")
    talk.end_step().step(2)
    talk.say("well")

    first, second = (item for item in talk.items() if isinstance(item, Reply))

    assert isinstance(first.parts[0], Call) and first.parts[0].result is None
    assert (second.step, second.parts) == (2, (Words("well"),))


def test_the_results_that_repair_makes_up_say_so(tmp_path: Path) -> None:
    talk = Talk().turn().step()
    talk.ask(("c-1", "bash", "{}"), ("c-2", "bash", "{}"))
    talk.start("c-1")
    path = talk.store(tmp_path / "log")

    items = list(conversation(view_of(path)))

    results = [call.result for call in only(Reply, items).parts if isinstance(call, Call)]
    assert [(r.code, r.is_made_up) for r in results if isinstance(r, Result)] == [
        ("TOOL_OUTCOME_UNKNOWN", True),
        ("TOOL_NOT_STARTED", True),
    ]
    end = only(TurnEnd, items)
    assert end.is_made_up and end.is_failure and end.reason.startswith("interrupted")


def test_a_failed_attempt_is_told_with_what_came_of_it_and_its_retry() -> None:
    talk = Talk().turn().step()
    talk.stream(
        ReasoningDelta(0, "let me "), ReasoningDelta(0, "see"), TextDelta(1, "ha"), TextDelta(1, "lf")
    )
    talk.stream(ToolCallDelta(2, "c-1", "bash", '{"a'), ToolCallDelta(2, "c-1", "bash", '":'))
    failure = {"message": "connection lost", "code": "TRANSPORT", "status": 503}
    retry = {"retryId": "r", "turn": 1, "step": 1, "provider": "acme", "mode": "normal", "policyKey": "k"}
    talk.event("llm/retry", retry | {"retry": 1, "maxRetries": 5, "delayMs": 477.9, "failure": failure})
    talk.event("llm/retry-started", {"retryId": "r", "turn": 1, "step": 1, "retry": 1})
    talk.stream(TextDelta(0, "whole"))
    talk.say("whole")

    items = talk.items()

    reasoning, text, call = only(Lost, items).parts
    assert (reasoning, text) == (Words("let me see", "reasoning"), Words("half"))
    assert isinstance(call, Call) and (call.name, call.arguments, call.is_fragment) == ("bash", '{"a":', True)
    note = only(Note, items)
    assert note.text == "attempt failed: connection lost (TRANSPORT, HTTP 503); retry 1 of 5 after 478 ms"
    assert note.is_error
    assert only(Reply, items).duration_ms == 2  # from the retry on


def test_what_was_streamed_before_the_end_of_a_step_without_a_message_is_not_lost() -> None:
    talk = Talk().turn().step()
    talk.stream(TextDelta(0, "half"))
    talk.end_step().end(kind="error", error={"message": "no", "code": "SERVER"})

    items = talk.items()

    assert only(Lost, items).parts == (Words("half"),)
    assert only(TurnEnd, items).reason == "failed: no (SERVER)"


def test_a_compaction_marks_what_the_model_no_longer_sees() -> None:
    talk = answered()
    shadowed = list(talk.log.surface_nodes)
    start = talk.event("compaction/start", {"compactionId": "k", "turn": None})
    span = {"start": shadowed[0], "end": shadowed[-1]}
    summary: dict[str, Any] = {
        "compactionId": "k",
        "summary": [{"type": "text", "text": "so far"}],
        "shadowedRange": span,
    }
    summary |= {"shadowedSeqs": shadowed, "shadowedTokenCount": 12, "provider": "acme", "model": "acme-1"}
    at = talk.event("compaction/summary", summary)
    source = {"kind": "plugin", "plugin": "compact", "compactionId": "k"}
    content = [{"type": "text", "text": "so far"}]
    talk.event(
        "user/message",
        {"content": content, "source": source, "role": "user", "id": "s"},
        surface={"op": "replace", **span},
        sources=[start, at, *shadowed],
    )
    talk.event("compaction/end", {"compactionId": "k", "turn": None})

    items = talk.items()

    before, after = (item for item in items if isinstance(item, Said))
    assert before.is_replaced and only(Reply, items).is_replaced
    assert (after.is_summary, after.is_replaced, after.who) == (True, False, "plugin compact")
    assert only(Note, items).text == "compaction: a summary takes the place of 2 messages, about 12 tokens"


def test_a_result_that_was_shortened_for_the_model_keeps_its_text_and_says_so() -> None:
    talk = Talk().turn().step()
    talk.ask(("c-1", "bash", "{}"))
    at = talk.answer("c-1", "long and wide", talk.start("c-1"))
    data = json.loads(json.dumps(talk.log.event(at).data))
    data["message"]["content"][0]["content"] = [{"type": "text", "text": "…"}]
    talk.event("tool/result", data, surface={"op": "replace", "start": at, "end": at}, sources=[at])

    items = talk.items()

    (call,) = only(Reply, items).parts
    assert isinstance(call, Call) and call.result is not None
    assert (call.result.texts, call.result.is_replaced) == (("long and wide",), True)
    assert only(Note, items).text == "from here on shortened for the model: result of bash"


def test_results_that_were_shortened_together_are_told_in_one_line() -> None:
    talk = Talk().turn().step()
    talk.ask(("c-1", "bash", "{}"), ("c-2", "read", "{}"), ("c-3", "bash", "{}"))
    calls = (("bash", "c-1"), ("read", "c-2"), ("bash", "c-3"))
    for at in [talk.answer(call_id, "long", talk.start(call_id, name)) for name, call_id in calls]:
        data = json.loads(json.dumps(talk.log.event(at).data))
        data["message"]["content"][0]["content"] = [{"type": "text", "text": "…"}]
        talk.event("tool/result", data, surface={"op": "replace", "start": at, "end": at}, sources=[at])
    talk.end_step()

    note = only(Note, talk.items())

    assert note.text == "from here on shortened for the model: 2 × result of bash, result of read"


def queued(talk: Talk, *texts: str, start: int = 0) -> None:
    """Prompts that wait, each with its text as its id."""
    source = {"kind": "user"}
    waiting = [{"role": "user", "id": t, "content": [text_block(t)], "source": source} for t in texts]
    talk.event("agent/inbox/spliced", {"target": "next-turn", "start": start, "inserted": waiting})


def text_block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def taken(talk: Talk, count: int = 1, **outcome: str) -> None:
    """The first prompts go: claimed, or with an outcome."""
    data = {"target": "next-turn", "start": 0, "inserted": [], "removedCount": count, **outcome}
    talk.event("agent/inbox/spliced", data)


def fates(talk: Talk) -> list[tuple[str, str]]:
    return [(item.texts[0], item.fate) for item in talk.items() if isinstance(item, Said)]


def test_a_prompt_that_was_put_back_or_never_taken_waits_at_the_end() -> None:
    talk = Talk()
    queued(talk, "first", "second")
    talk.turn()
    taken(talk)
    queued(talk, "first")
    talk.end(kind="error", error={"message": "no", "code": "UNKNOWN"})

    assert fates(talk) == [("first", "waits for the agent"), ("second", "waits for the agent")]


def test_a_prompt_that_a_turn_took_and_left_out_is_told_before_the_end_of_the_turn() -> None:
    talk = Talk()
    queued(talk, "refused")
    talk.turn()
    taken(talk)
    talk.end(kind="blocked")

    kinds = [type(item).__name__ for item in talk.items()]

    assert kinds == ["TurnStart", "Said", "TurnEnd"]
    assert fates(talk) == [("refused", "did not reach the model in this turn")]


def test_what_was_dropped_is_told_and_what_entered_a_step_is_told_once() -> None:
    talk = Talk()
    queued(talk, "m-1", "late")
    talk.turn()
    taken(talk)
    talk.step().user("m-1")
    taken(talk, outcome="canceled")
    talk.end_step().end()

    assert fates(talk) == [("m-1", ""), ("late", "dropped")]


def test_a_fork_tells_nothing_of_what_waited_for_its_parent() -> None:
    talk = Talk(parent_session="elder", seed_length=1)
    queued(talk, "elder's")
    talk.turn().end()

    assert fates(talk) == []


def test_the_end_of_a_command_names_it() -> None:
    talk = Talk()
    source = {"kind": "user"}
    talk.event("command/run", {"commandId": "cmd-1", "name": "compact", "source": source})
    talk.turn()
    talk.event("command/done", {"commandId": "cmd-1", "kind": "error", "text": "busy"})

    notes = [(item.text, item.detail) for item in talk.items() if isinstance(item, Note)]

    assert notes == [("/compact", ""), ("/compact failed", "busy")]


def test_the_events_of_the_parent_end_with_a_note() -> None:
    talk = Talk(parent_session="elder", seed_length=2).turn()
    talk.end()
    talk.turn(2)

    kinds = [type(item).__name__ for item in talk.items()]

    assert kinds == ["TurnStart", "TurnEnd", "Note", "TurnStart"]


def test_pieces_have_their_time_since_the_step_or_the_retry_began_and_never_a_negative_one() -> None:
    log = Session(header(), clock=Ticks(1000, 2000, 2005, 1990, 2010, 2020))
    log.append("turn/start", {"turn": 1})
    log.append("step/start", {"turn": 1, "step": 1})
    for text in "abc":
        log.append_chunk(1, 1, TextDelta(0, text))
    log.append(
        "assistant/chunk", {"turn": 1, "step": 1, "chunk": {"type": "finish", "reason": {"kind": "stop"}}}
    )

    pieces = [item for item in conversation(LogView(log), pieces=True) if isinstance(item, Pieces)]

    assert [(item.kind, *timed) for item in pieces for timed in item.timed()] == [
        ("text", 5, "a"),
        ("text", 0, "b"),
        ("text", 10, "c"),
        ("finish", 20, '{"kind":"stop"}'),
    ]


def test_no_duration_is_negative_where_the_clock_stepped_back() -> None:
    log = Session(header(), clock=Ticks(9000, 8000, 7000, 6000))
    log.append("turn/start", {"turn": 1})
    log.append("step/start", {"turn": 1, "step": 1})
    log.append("step/end", {"turn": 1, "step": 1})
    log.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})

    assert only(TurnEnd, list(conversation(LogView(log)))).duration_ms == 0


@pytest.mark.parametrize(
    ("reason", "words", "is_failure"),
    [
        ({"kind": "aborted", "reason": {"kind": "user"}}, "aborted by the user", True),
        ({"kind": "aborted", "reason": {"kind": "hook", "reason": "no"}}, "aborted by a hook: no", True),
        (
            {"kind": "aborted", "reason": {"kind": "hook", "reason": "limit:timeout"}},
            "stopped at the limit of time",
            True,
        ),
        ({"kind": "aborted", "reason": {"kind": "legacy"}}, "aborted", True),
        ({"kind": "blocked"}, "blocked before its first step", True),
        ({"kind": "max-tokens"}, "stopped: a reply reached its token limit", True),
        ({"kind": "acme/bored"}, "acme/bored", False),
    ],
)
def test_every_reason_of_an_end_has_words(reason: dict[str, Any], words: str, is_failure: bool) -> None:
    end = only(TurnEnd, Talk().turn().end(**reason).items())

    assert (end.reason, end.is_failure) == (words, is_failure)


@pytest.mark.parametrize(
    ("source", "who"),
    [
        ({"kind": "user"}, "user"),
        (
            {"kind": "plugin", "plugin": "@acme/dsh-prompt", "form": "snapshot"},
            "plugin dsh-prompt (snapshot)",
        ),
        (
            {"kind": "skill-invocation", "name": "pdf", "form": "instructions"},
            "skill-invocation pdf (instructions)",
        ),
        ({"kind": "team-message", "senderName": "Ada"}, "team-message Ada"),
    ],
)
def test_a_message_says_who_put_it_in(source: dict[str, Any], who: str) -> None:
    message = {"content": [], "source": source, "role": "user", "id": "m"}
    log = Session(header())
    log.load({"type": "user/message", "seq": 0, "time": T0, "data": message, "surfaceOp": "append"})

    assert only(Said, list(conversation(LogView(log)))).who == who


def test_images_and_unknown_blocks_are_named() -> None:
    talk = Talk().turn().step()
    image = {
        "attachmentId": "i",
        "mediaType": "image/png",
        "bytes": 9,
        "width": 64,
        "height": 48,
        "name": "a.png",
    }
    talk.reply({"type": "image", "attachment": image}, {"type": "acme/chart", "x": 1})

    assert only(Reply, talk.items()).parts == (
        Words("image image/png 64×48 a.png", "other"),
        Words('{"type":"acme/chart","x":1}', "other"),
    )


def test_an_unknown_event_is_told_as_it_is() -> None:
    talk = Talk()
    talk.event("acme/note", {"x": 1}, ignorable=True)

    note = only(Note, talk.items())
    assert (note.text, note.detail) == ("acme/note", '{"x":1}')


def everything(view: LogView) -> str:
    """All drawings of a log, one after the other."""
    shown = "".join(drawn(conversation(view, pieces=True), Look(40, has_colour=False)))
    return shown + "".join((*markdown(view, conversation(view)), *page(view, conversation(view))))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "id",
                    "callId",
                    "todos",
                    "goal",
                    "message",
                    "failure",
                    "reason",
                    "retry",
                    "schedule",
                    "delayMs",
                    "kind",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
CHECKED = {
    "user/message",
    "assistant/message",
    "tool/result",
    "request/header",
    "turn/end",
    "session/end-seed",
}


@given(st.lists(st.tuples(st.sampled_from(sorted(KNOWN - CHECKED)), JSON), max_size=8))
def test_no_payload_that_a_log_may_hold_upsets_it(events: list[tuple[str, Any]]) -> None:
    log = Session(header())
    for seq, (kind, data) in enumerate(events):
        log.load(SessionEvent(kind, seq, T0, freeze(data, "data", stored=True)))

    everything(LogView(log))


BLOCK = st.dictionaries(
    st.sampled_from(["type", "text", "id", "name", "arguments", "attachment"]), JSON, max_size=4
)


@given(st.lists(BLOCK | JSON, max_size=4))
def test_no_block_of_a_message_upsets_it(blocks: list[Any]) -> None:
    log = Session(header())
    user = {"content": blocks, "source": {"kind": "user"}, "role": "user", "id": "m"}
    model = {
        "content": blocks,
        "source": {"kind": "model", "provider": "a", "model": "b"},
        "role": "assistant",
    }
    result = {"type": "tool-result", "toolCallId": "c", "content": blocks}
    tool = {"content": [result], "source": {"kind": "tool", "callId": "c"}, "role": "user", "id": "r"}
    payloads: list[tuple[str, Any]] = [
        ("user/message", user),
        ("assistant/message", {"turn": 1, "step": 1, "message": model | {"id": "a"}}),
        ("tool/result", {"turn": 1, "step": 1, "message": tool}),
    ]
    for seq, (kind, data) in enumerate(payloads):
        log.load(SessionEvent(kind, seq, T0, freeze(data, "data", stored=True), None, "append"))

    everything(LogView(log))


@pytest.mark.parametrize("time", [-(2**53) + 1, 2**53 - 1])
def test_a_time_far_from_today_is_drawn(time: int) -> None:
    log = Session(header(created_at=2**53 - 1))
    log.load({"type": "turn/start", "seq": 0, "time": time, "data": {"turn": 1}})

    assert everything(LogView(log))


@needs_corpus
@pytest.mark.parametrize(
    "log", sorted(CORPUS.glob("*/*.jsonl*")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_every_message_of_the_corpus_is_drawn(log: Path) -> None:
    try:
        view = view_of(log)
    except LogRefusal:
        return
    items = list(conversation(view))
    appended = [e for e in view.events() if e.surface is not None and e.type != "tool/result"]
    results = [e for e in view.events() if e.surface == "append" and e.type == "tool/result"]
    calls = [c for i in items for c in (i.parts if isinstance(i, Reply) else [i]) if isinstance(c, Call)]

    seen = [i.seq for i in items if isinstance(i, Said | Reply)]
    assert [seq for seq in seen if seq is not None] == [e.seq for e in appended]
    assert sum(call.result is not None for call in calls) == len(results)
    assert everything(view)


def test_the_golden_log_is_the_conversation_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(TEXT)

    assert [type(item).__name__ for item in conversation(view_of(path))] == [
        "TurnStart",
        "Said",
        "Reply",
        "TurnEnd",
    ]


@pytest.mark.parametrize("pieces", [False, True])
def test_a_long_reply_is_never_held_as_a_whole(pieces: bool) -> None:
    talk = Talk().turn().step()
    for n in range(100_000):
        talk.log.append_chunk(1, 1, TextDelta(0, f"tok{n}"))
    talk.say("done")
    view = talk.end_step().end().view()

    tracemalloc.start()
    try:
        count = sum(1 for _ in conversation(view, pieces=pieces))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert count == 3 + pieces
    assert peak < 500_000  # bytes; the texts alone are ten times that
