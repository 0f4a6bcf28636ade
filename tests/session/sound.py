"""A sound log of some length, event by event, for tests that spoil a part of it."""

from typing import Any

from dsh.session.digest import RequestDigest, digest_payload
from dsh.session.log import Session
from dsh.session.request_header import canonical_header
from dsh.session.value import decode_strict, encode
from tests.session.build import call_block, header, prompt, reply, result, stored

Events = list[dict[str, Any]]
CONFIG = {"provider": "acme", "model": "acme-1"}
USAGE = {"inputTokens": 9, "outputTokens": 2}
TOOLS = [
    {"name": "bash", "description": "runs", "parameters": {"type": "object", "properties": {}}},
]


def body() -> Events:
    """A sound log: one turn, a step with two calls that are answered, a step that says it is done."""
    rows: list[tuple[str, Any, dict[str, Any]]] = []

    def add(kind: str, data: Any, **envelope: Any) -> int:
        rows.append((kind, data, envelope))
        return len(rows) - 1

    def chunk(step: int, **piece: Any) -> int:
        return add("assistant/chunk", {"turn": 1, "step": step, "chunk": piece})

    add("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [prompt()]})
    add("turn/start", {"turn": 1})
    add("agent/inbox/spliced", {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []})
    add("step/start", {"turn": 1, "step": 1})
    add("user/message", prompt(), surfaceOp="append")
    add("request/header", {"header": {"config": CONFIG, "tools": TOOLS}, "reason": "initial"})
    add("request/context", CONFIG)
    failed = {"kind": "error", "failure": {"message": "busy", "code": "SERVER"}}
    chunk(1, type="text-delta", index=0, text="lost")
    chunk(1, type="finish", reason=failed)
    where = {"turn": 1, "step": 1}
    delay = {"policyKey": "p", "retry": 1, "maxRetries": 3, "delayMs": 10, "failure": failed["failure"]}
    add("llm/retry", {"retryId": "r1", **where, "provider": "acme", "mode": "normal", **delay})
    add("llm/retry-started", {"retryId": "r1", "turn": 1, "step": 1, "retry": 1})
    cited = [chunk(1, type="text-delta", index=0, text=text) for text in ("I ", "look ", "it up")]
    for index, call_id in ((1, "c1"), (2, "c2")):
        cited.append(
            chunk(1, type="tool-call-delta", index=index, id=call_id, name="bash", argumentsDelta="{}")
        )
    cited.append(chunk(1, type="usage", usage=USAGE))
    cited.append(chunk(1, type="finish", reason={"kind": "tool-calls"}))
    said = reply({"type": "text", "text": "I look it up"}, call_block("c1"), call_block("c2"))
    data = {"turn": 1, "step": 1, "message": said, "usage": USAGE}
    add("assistant/message", data, sourceEventSeqs=cited, surfaceOp="append")
    for call_id in ("c1", "c2"):
        call = {"turn": 1, "step": 1, "callId": call_id, "name": "bash", "arguments": "{}"}
        at = add("tool/call", call)
        answer = {"turn": 1, "step": 1, "message": result(call_id)}
        add("tool/result", answer, sourceEventSeqs=[at], surfaceOp="append")
    add("step/end", {"turn": 1, "step": 1})
    add("step/start", {"turn": 1, "step": 2})
    cited = [chunk(2, type="block-start", index=0, blockType="text")]
    cited.append(chunk(2, type="block-end", index=0, block={"type": "text", "text": "hi!"}))
    cited.append(chunk(2, type="finish", reason={"kind": "stop"}, replayState={"response": 7}))
    done = decode_strict(encode(reply(id="a-2")))
    done["source"]["replayState"] = {"response": 7}
    add(
        "assistant/message",
        {"turn": 1, "step": 2, "message": done},
        sourceEventSeqs=cited,
        surfaceOp="append",
    )
    add("step/end", {"turn": 1, "step": 2})
    add("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    events = [stored(kind, seq, data, **envelope) for seq, (kind, data, envelope) in enumerate(rows)]
    return [decode_strict(encode(event)) for event in events]


def find(events: Events, kind: str, nth: int = 0) -> dict[str, Any]:
    return [event for event in events if event["type"] == kind][nth]


def insert(events: Events, at: int, kind: str, data: Any, **envelope: Any) -> None:
    """Put an event before the one with seq `at`; everything behind it, and what cites it, moves on."""
    for event in events[at:]:
        event["seq"] += 1
    for event in events:
        if "sourceEventSeqs" in event:
            event["sourceEventSeqs"] = [seq + (seq >= at) for seq in event["sourceEventSeqs"]]
    events.insert(at, stored(kind, at, data, **envelope))


def remove(events: Events, at: int) -> None:
    """Take an event out; everything behind it moves up, and nothing cites it any more."""
    del events[at]
    for event in events[at:]:
        event["seq"] -= 1
    for event in events:
        if "sourceEventSeqs" in event:
            cited = [seq - (seq > at) for seq in event["sourceEventSeqs"] if seq != at]
            event["sourceEventSeqs"] = cited
            if not cited and event["type"] != "assistant/message":
                del event["sourceEventSeqs"]


def with_digests(**changes: Any) -> Events:
    """The log with a digest before each of its three requests; `changes` go to the last one."""
    events = body()
    places = [
        (find(events, "request/context")["seq"] + 1, 1, 1),
        (find(events, "llm/retry-started")["seq"] + 1, 1, 2),
        (find(events, "step/start", 1)["seq"] + 1, 2, 1),
    ]
    for offset, (at, step, attempt) in enumerate(places):
        log = Session.seeded(header(), events[: at + offset])
        made = canonical_header(find(events, "request/header")["data"]["header"])
        messages = log.derive_messages()
        payload = digest_payload(1, step, attempt, RequestDigest().of(made, messages, 0), len(messages))
        if offset == 2:
            payload.update(changes)
        insert(events, at + offset, "request/digest", payload, ignorable=True)
    return events
