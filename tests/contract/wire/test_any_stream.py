"""Whatever a server sends, what comes out is a reply or a failure with a name, in chunks that fit."""

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.session.value import encode
from dsh.testing.mock_server.part import Call, Reasoning, Text, whole
from dsh.testing.mock_server.plan import Plan
from tests.contract.wire.wires import Reply, Wire, in_memory, over_wires

RECORDED = whole(
    Reasoning("hm"), Text("hello"), Call("c1", "read", ('{"a":', "1}")), Call("c2", "bash", ("{}",)),
    reason="tool-calls",
)  # fmt: skip
STRANGE: list[Any] = [
    None, True, 0, -1, 1.5, 1e308, 2**70, "", "x", "\ud800", [], [None], {}, {"a": {}}, [[]], "9" * 5000,
    {"type": "text"}, {"index": None}, "tool_use", "stop", ["stop"],
]  # fmt: skip


async def replies(wire: Wire, bodies: list[bytes]) -> list[Reply]:
    async with in_memory(wire, *(Plan(steps=(body,)) for body in bodies)) as line:
        return [await line.ask() for _ in bodies]


def check(reply: Reply, body: bytes) -> None:
    """A reply, or a failure with a name of its own; both can be written to a log."""
    assert reply.code not in ("UNKNOWN", "INVARIANT"), body
    assert (reply.kind == "error") == bool(reply.code), body
    encode([reply.blocks, reply.finish, reply.usage, reply.replay_state])
    for count in (reply.usage or {}).values():
        assert type(count) is int and count >= 0, body
    calls = [call_id for call_id, _, _ in reply.calls]
    assert all(calls) and len(calls) == len(set(calls)), body


PIECES = [b"data", b"event", b":", b" ", b"\n", b"\r", b"{", b"}", b"[DONE]", b'"', b"x", b"\x00", b"\xff"]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
BODIES = st.one_of(
    st.binary(max_size=60),
    st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join),
    VALUES.map(lambda value: b"data: " + json.dumps(value).encode() + b"\n\n"),
)


@over_wires
@settings(max_examples=60, deadline=None)
@given(bodies=st.lists(BODIES, min_size=1, max_size=12))
def test_any_bytes_are_a_failure_with_a_name(wire: Wire, bodies: list[bytes]) -> None:
    for reply, body in zip(asyncio.run(replies(wire, bodies)), bodies, strict=True):
        check(reply, body)


@over_wires
def test_a_stream_with_one_member_changed_is_a_reply_or_a_failure_with_a_name(wire: Wire) -> None:
    """Every member of every event in turn, taken away and replaced by each strange value."""
    bodies = list(changed(wire.plan(RECORDED).sent()))
    assert len(bodies) > 1000
    for reply, body in zip(asyncio.run(replies(wire, bodies)), bodies, strict=True):
        check(reply, body)


@over_wires
def test_a_stream_with_events_lost_doubled_and_swapped_is_so_too(wire: Wire) -> None:
    rng = random.Random(6)
    events = wire.plan(RECORDED).sent().split(b"\n\n")[:-1]
    bodies = []
    for _ in range(400):
        made = list(events)
        for _ in range(rng.randint(1, 4)):
            rng.choice((_lose, _double, _swap))(made, rng)
        bodies.append(b"\n\n".join(made) + b"\n\n")
    for reply, body in zip(asyncio.run(replies(wire, bodies)), bodies, strict=True):
        check(reply, body)


@over_wires
def test_a_stream_with_bytes_changed_is_so_too(wire: Wire) -> None:
    rng = random.Random(7)
    whole_body = wire.plan(RECORDED).sent()
    bodies = []
    for _ in range(600):
        made = bytearray(whole_body)
        for _ in range(rng.randint(1, 3)):
            made[rng.randrange(len(made))] = rng.choice(b'\x00\n\r"{}[],:\\\xff\xc3 0a')
        bodies.append(bytes(made))
    for reply, body in zip(asyncio.run(replies(wire, bodies)), bodies, strict=True):
        check(reply, body)


def _lose(events: list[bytes], rng: random.Random) -> None:
    if len(events) > 1:
        del events[rng.randrange(len(events))]


def _double(events: list[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(events))
    events.insert(rng.randrange(len(events)), events[at])


def _swap(events: list[bytes], rng: random.Random) -> None:
    a, b = rng.randrange(len(events)), rng.randrange(len(events))
    events[a], events[b] = events[b], events[a]


def changed(body: bytes) -> Iterator[bytes]:
    """The stream with one member of one event changed, for every member and every strange value."""
    events = body.split(b"\n\n")[:-1]
    for at, event in enumerate(events):
        head, mark, payload = event.rpartition(b"data: ")
        if not payload.startswith(b"{"):
            continue
        for change in changes(json.loads(payload)):
            made = json.loads(payload)
            change(made)
            mutated = head + mark + json.dumps(made).encode()
            yield b"\n\n".join([*events[:at], mutated, *events[at + 1 :]]) + b"\n\n"


def changes(value: Any) -> Iterator[Callable[[Any], None]]:
    """What can be done to one member of such a value, as functions that do it."""
    for path in paths(value):
        yield partial(_take, path)
        for strange in STRANGE:
            yield partial(_put, path, strange)


def _take(path: tuple[Any, ...], made: Any) -> None:
    del _at(made, path[:-1])[path[-1]]


def _put(path: tuple[Any, ...], strange: Any, made: Any) -> None:
    _at(made, path[:-1])[path[-1]] = strange


def paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        members: list[tuple[Any, Any]] = list(value.items())
    else:
        members = list(enumerate(value)) if isinstance(value, list) else []
    for key, child in members:
        yield (*above, key)
        yield from paths(child, (*above, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value
