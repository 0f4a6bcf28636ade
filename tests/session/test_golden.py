"""The golden artifact of the specification, byte for byte (`spec/session-log.md` §16)."""

import hashlib
from typing import Any

import pytest

from dsh.session.chunk import BlockEnd, BlockStart, Finish, TextDelta, UsageChunk
from dsh.session.chunk_row import pack
from dsh.session.header import header_from_line
from dsh.session.log import Session
from dsh.session.message import assistant_message, text_block, user_message
from dsh.session.restore import Restored, restore
from dsh.session.value import encode
from tests.session.build import T0, Ticks, decode_lines

SHA256 = "920611d4142ca34cde8b3492051ccd819ffa9e7f75b0bce213117e286163980f"
TIMES = [1, 2, 2, 3, 3, 4, 4, 100, 101, 105, 104, 105, 105, 105, 106, 106, 107]


def golden() -> Session:
    """The session behind the artifact, made by our own writers."""
    header = header_from_line(
        b'{"type":"session","version":0,"id":"demo.1","createdAt":1700000000000,"cwd":"/srv/app","delegationDepth":0}'
    )
    log = Session(header, clock=Ticks(*(T0 + time for time in TIMES)))
    prompt = user_message("say hi", {"kind": "user"}, "m-1")
    log.append("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [prompt]})
    log.append("turn/start", {"turn": 1})
    log.append("agent/inbox/spliced", {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []})
    log.append("step/start", {"turn": 1, "step": 1})
    log.append("user/message", prompt, surface="append")
    config = {"provider": "acme", "model": "acme-1"}
    log.append("request/header", {"header": {"config": config, "system": "be brief"}, "reason": "initial"})
    log.append("request/context", {**config, "contextWindow": 65536})
    usage = {"inputTokens": 9, "outputTokens": 2}
    text: Any = text_block("hi!")
    for chunk in (
        BlockStart(0, "text"),
        TextDelta(0, "h"),
        TextDelta(0, "i"),
        TextDelta(0, "!"),
        BlockEnd(0, text),
        UsageChunk(usage),
        Finish({"kind": "stop"}),
    ):
        log.append_chunk(1, 1, chunk)
    reply = assistant_message([text], "acme", "acme-1", message_id="m-2")
    log.append(
        "assistant/message",
        {"turn": 1, "step": 1, "message": reply, "usage": usage},
        surface="append",
        sources=range(7, 14),
    )
    log.append("step/end", {"turn": 1, "step": 1})
    log.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    return log


def lines_of(log: Session) -> list[bytes]:
    return [encode(log.header.to_line()), *(encode(row) for row in pack(log.entries()))]


def opened(lines: list[bytes]) -> Restored:
    return restore(header_from_line(lines[0]), decode_lines(lines[1:]))


LINES = lines_of(golden())


def test_our_writer_makes_the_artifact() -> None:
    text = b"".join(line + b"\n" for line in LINES)

    assert (len(text), hashlib.sha256(text).hexdigest()) == (2276, SHA256)


def test_it_loads_as_17_events_with_two_messages() -> None:
    restored = opened(LINES)
    view = restored.view

    assert [event.seq for event in view.events()] == list(range(17))
    assert [view.event(seq).time - T0 for seq in (8, 9, 10)] == [101, 105, 104]
    assert view.surface_nodes == (4, 14)
    assert [message["id"] for message in view.derive_messages()] == ["m-1", "m-2"]
    assert restored.closers == ()
    assert (view.last_turn, view.open_turn, view.irregularities) == (1, None, [])


def test_the_loaded_events_encode_to_the_same_bytes_packed_or_not() -> None:
    view = opened(LINES).view

    assert lines_of(view) == LINES
    assert [encode(row) for row in pack(view.events())] == LINES[1:]


def test_without_its_last_two_lines_it_is_closed() -> None:
    added = opened(LINES[:-2]).closers

    assert [encode(event.to_json()) for event in added] == [
        b'{"type":"step/end","seq":15,"time":1700000000106,"data":{"turn":1,"step":1}}',
        b'{"type":"turn/end","seq":16,"time":1700000000106,"data":{"turn":1,"reason":{"kind":"interrupted"}}}',
    ]


@pytest.mark.parametrize(("kept", "stored", "closing"), [(15, 16, 1), (11, 12, 2)])
def test_shorter_prefixes_close_what_they_leave_open(kept: int, stored: int, closing: int) -> None:
    restored = opened(LINES[: 1 + kept - 1])

    assert restored.view.length == stored + closing
    assert [event.seq for event in restored.closers] == list(range(stored, stored + closing))


def test_a_resume_adds_one_line_and_the_next_one_none() -> None:
    once = opened(LINES).open()
    again = opened(lines_of(once)).open()

    assert lines_of(once)[:-1] == LINES
    assert lines_of(once)[-1].startswith(b'{"type":"session/end-seed","seq":17,')
    assert again.length == 18
