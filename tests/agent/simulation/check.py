"""What holds of every simulated run, whatever the plan."""

import json
from collections import Counter
from itertools import pairwise

from dsh.llm.request import LlmRequest
from dsh.session.digest import REQUEST_DIGEST
from dsh.session.event import SessionEvent
from dsh.session.log import Session
from dsh.session.restore import Restorer
from dsh.session.verify.log import verify
from tests.agent.simulation.record import Body, Life, Record


def check(record: Record) -> None:
    """Everything at once."""
    check_quiet(record)
    for life in record.lives:
        check_log(life.session)
        check_pairs(life)
        check_messages(life)
        for request in life.requests:
            check_request(request)
        check_prefixes(life)
        for body in life.bodies:
            check_beside(body)
        check_statuses(life.statuses)


def check_quiet(record: Record) -> None:
    """No task and no listener is left, and no exception went unnoticed."""
    assert record.left == []
    assert record.errors == []
    assert record.listeners_left == 0


def check_log(session: Session) -> None:
    """The log is valid, needs no repair, and says the same when it is read again."""
    found = [finding for finding in verify(session).findings if finding.level == "error"]
    assert found == []
    assert session.open_turn is None and session.open_step is None
    restorer = Restorer(session.header)
    for event in session.events():
        restorer.take(json.loads(json.dumps(event.to_json())))
    restored = restorer.finish()
    assert restored.closers == ()
    assert restored.view.derive_messages() == session.derive_messages()
    assert restored.view.request_header == session.request_header
    turns = [event.data["turn"] for event in session.select("turn/start")]
    assert turns == list(range(1, len(turns) + 1))
    requests = sum(1 for _ in session.select(REQUEST_DIGEST))
    assert verify(session).digests == requests


def check_pairs(life: Life) -> None:
    """Each call of a finished message has one `tool/call` and one result, both in the model's order.

    Where the log was cut, calls that had not been logged have results that repair made up.
    """
    session = life.session
    asked: list[str] = []
    called: list[str] = []
    answered: list[str] = []
    for event in session.select("assistant/message", "tool/call", "tool/result", "step/end"):
        match event.type:
            case "assistant/message":
                assert (asked, called, answered) == ([], [], [])
                asked = [b["id"] for b in event.data["message"]["content"] if b["type"] == "tool-call"]
            case "tool/call":
                called.append(event.data["callId"])
            case "tool/result":
                if _is_append(event):
                    answered.append(event.data["message"]["source"]["callId"])
            case "step/end":
                was_cut = event.seq < life.inherited
                assert called == (asked[: len(called)] if was_cut else asked) and answered == asked
                asked, called, answered = [], [], []


def _is_append(event: SessionEvent) -> bool:
    return event.surface == "append"


def check_messages(life: Life) -> None:
    """Each message that was sent entered once, was dropped on the record, or still waits."""
    session = life.session
    waiting: Counter[str] = Counter()
    entered: Counter[str] = Counter()
    cancelled: set[str] = set()
    lists: dict[str, list[str]] = {"next-turn": [], "next-step": []}
    for event in session.select("agent/inbox/spliced", "user/message"):
        if event.type == "user/message":
            entered[event.data["id"]] += event.surface == "append"  # a shortened one stands in its own place
            continue
        data = event.data
        target, start = lists[data["target"]], data["start"]
        removed = target[start : start + data.get("removedCount", 0)]
        target[start : start + len(removed)] = [message["id"] for message in data["inserted"]]
        if data.get("outcome") == "canceled":
            cancelled.update(removed)
    waiting.update(lists["next-turn"] + lists["next-step"])
    aborted = {e.data["reason"]["kind"] for e in session.select("turn/end")} & {"aborted"}
    for message_id in life.sent:
        assert entered[message_id] <= 1 and waiting[message_id] <= 1
        assert not (entered[message_id] and waiting[message_id])
        if not entered[message_id] and not waiting[message_id] and message_id not in cancelled:
            assert aborted, f"message {message_id} is nowhere, and nobody cancelled anything"


def check_request(request: LlmRequest) -> None:
    """A provider accepts it: each call answered once, next, in order; nothing blank; text is text."""
    owed: list[str] = []
    for message in request.messages:
        assert message["content"], message
        for block in message["content"]:
            if block["type"] == "text":
                assert block["text"].strip(), message
            if block["type"] == "tool-result":
                assert owed and owed.pop(0) == block["toolCallId"], message
        if message["source"]["kind"] != "tool":
            assert not owed, message
        if message["role"] == "assistant":
            owed = [block["id"] for block in message["content"] if block["type"] == "tool-call"]
    assert not owed
    json.dumps([dict(m) for m in request.messages], ensure_ascii=False).encode()


def check_prefixes(life: Life) -> None:
    """Where nothing on the surface was replaced, a request begins with the one before it."""
    if life.session.replace_generation:
        return
    for earlier, later in pairwise(life.requests):
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert life.tools_changed or (later.system, later.tools) == (earlier.system, earlier.tools)


def check_beside(body: Body) -> None:
    """What ran when a body began touches nothing that it touches, and is less than the cap."""
    beside = [other for other in body.beside if not _was_given_up(other)]
    assert not any(_conflict(other, body) for other in beside)
    assert len(beside) < body.cap


def _was_given_up(body: Body) -> bool:
    """Such a body may still be at work when later calls begin; its turn is over by then."""
    return body.ended_s is None or body.ended_s - body.began_s > 5.0


def _conflict(left: Body, right: Body) -> bool:
    if "loner" in (left.tool, right.tool):
        return True
    if "safe" in (left.tool, right.tool):
        return False
    return left.key == right.key and "writer" in (left.tool, right.tool)


def check_statuses(statuses: list[str]) -> None:
    """`running` and `idle` alternate, beginning with the first and ending with the second."""
    assert statuses == ["running", "idle"] * (len(statuses) // 2)
