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
from tests.agent.simulation.world import Body, Record


def check(record: Record) -> None:
    """Everything at once."""
    session = record.session
    check_quiet(record)
    check_log(session)
    check_pairs(session)
    check_messages(session, record.sent)
    for request in record.requests:
        check_request(request)
    check_prefixes(session, record.requests)
    check_overlaps(record.bodies)
    check_statuses(record.statuses)


def check_quiet(record: Record) -> None:
    """No task is left, and no exception went unnoticed."""
    assert record.left == []
    assert record.errors == []


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


def check_pairs(session: Session) -> None:
    """Each call of a finished message has one `tool/call` and one result, both in the model's order."""
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
                assert called == asked and answered == asked
                asked, called, answered = [], [], []


def _is_append(event: SessionEvent) -> bool:
    return event.surface == "append"


def check_messages(session: Session, sent: list[str]) -> None:
    """Each message that was sent entered once, was dropped on the record, or still waits."""
    waiting: Counter[str] = Counter()
    entered: Counter[str] = Counter()
    cancelled: set[str] = set()
    lists: dict[str, list[str]] = {"next-turn": [], "next-step": []}
    for event in session.select("agent/inbox/spliced", "user/message"):
        if event.type == "user/message":
            entered[event.data["id"]] += 1
            continue
        data = event.data
        target, start = lists[data["target"]], data["start"]
        removed = target[start : start + data.get("removedCount", 0)]
        target[start : start + len(removed)] = [message["id"] for message in data["inserted"]]
        if data.get("outcome") == "canceled":
            cancelled.update(removed)
    waiting.update(lists["next-turn"] + lists["next-step"])
    aborted = {e.data["reason"]["kind"] for e in session.select("turn/end")} & {"aborted"}
    for message_id in sent:
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


def check_prefixes(session: Session, requests: list[LlmRequest]) -> None:
    """Where nothing on the surface was replaced, a request begins with the one before it."""
    if session.replace_generation:
        return
    for earlier, later in pairwise(requests):
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert (later.system, later.tools) == (earlier.system, earlier.tools)


def check_overlaps(bodies: list[Body]) -> None:
    """Bodies that touch the same thing, or that want to be alone, do not overlap."""
    for at, left in enumerate(bodies):
        for right in bodies[at + 1 :]:
            if _conflict(left, right):
                assert left.ended_s is None or left.ended_s <= right.began_s or _was_given_up(left)


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
