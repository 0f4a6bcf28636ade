"""Laws of the log: what is folded from a whole log is folded from its parts, however it came together."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.session.chunk import ReasoningDelta, TextDelta
from dsh.session.chunk_row import is_row, pack, row_to_run
from dsh.session.error import SurfaceError
from dsh.session.inbox_fold import INBOX_SPLICED, fold_inbox
from dsh.session.log import Session
from dsh.session.restore import restore
from dsh.session.value import decode_strict, encode
from tests.session.build import answer, as_stored, call, call_block, header, prompt, reply, result, session

MOVES = [
    "turn",
    "prompt",
    "header",
    "chunk",
    "thought",
    "reply",
    "call",
    "replace",
    "rewrite",
    "wait",
    "take",
]


class Player:
    """Makes a log of arbitrary moves, each of which fits where the log stands."""

    def __init__(self) -> None:
        self.log = session()
        self.results: dict[int, str] = {}
        self.number = 0

    def play(self, move: str, a: int, b: int) -> None:
        log, self.number = self.log, self.number + 1
        name = f"x{self.number}"
        if log.open_turn is None or (move == "turn" and log.open_step is not None):
            self.next_turn()
        turn, step = log.open_turn, log.open_step
        where = {"turn": turn, "step": step}
        assert turn is not None and step is not None
        match move:
            case "prompt":
                log.append("user/message", prompt(name, name), surface="append")
            case "header":
                config = {"provider": "acme", "model": f"m{a}"}
                log.append("request/header", {"header": {"config": config, "tools": []}, "reason": "change"})
            case "chunk" | "thought":
                piece = TextDelta(a % 2, name) if move == "chunk" else ReasoningDelta(a % 2, name)
                log.append_chunk(turn, step, piece)
            case "reply":
                empty = reply(id=name) if a % 3 else {**reply(id=name), "content": []}
                log.append("assistant/message", {**where, "message": empty}, surface="append", sources=[])
            case "call":
                asked = {**where, "message": reply(call_block(name), id=f"a-{name}")}
                log.append("assistant/message", asked, surface="append", sources=[])
                self.results[answer(log, name, call(log, name))] = name
            case "replace" if log.surface_nodes:
                self.replace(name, a, b)
            case "rewrite" if self.results:
                self.rewrite(name, a)
            case "wait":
                splice = {"target": "next-turn", "start": 0, "inserted": [prompt(name, name)]}
                log.append(INBOX_SPLICED, splice)
            case "take" if fold_inbox(log).next_turn:
                taken = {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []}
                log.append(INBOX_SPLICED, taken)

    def next_turn(self) -> None:
        log = self.log
        if log.open_turn is not None:
            log.append("step/end", {"turn": log.open_turn, "step": log.open_step})
            log.append("turn/end", {"turn": log.open_turn, "reason": {"kind": "completed"}})
        log.append("turn/start", {"turn": log.last_turn + 1})
        log.append("step/start", {"turn": log.last_turn, "step": 1})

    def replace(self, name: str, a: int, b: int) -> None:
        nodes = self.log.surface_nodes
        first, last = sorted((a % len(nodes), b % len(nodes)))
        shadowed = nodes[first : last + 1]
        operation = {"op": "replace", "start": nodes[first], "end": nodes[last]}
        self.log.append("user/message", prompt(name, name), surface=operation, sources=shadowed)
        for seq in shadowed:
            self.results.pop(seq, None)

    def rewrite(self, name: str, a: int) -> None:
        seq = sorted(self.results)[a % len(self.results)]
        call_id = self.results.pop(seq)
        old = self.log.event(seq).data
        data = {**old, "message": result(call_id, name)}
        made = self.log.append(
            "tool/result", data, surface={"op": "replace", "start": seq, "end": seq}, sources=[seq]
        )
        self.results[made.seq] = call_id


plays = st.lists(
    st.tuples(st.sampled_from(MOVES), st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=30
)


def played(moves: list[tuple[str, int, int]]) -> Session:
    player = Player()
    for move in moves:
        player.play(*move)
    return player.log


def folds(log: Session) -> tuple[Any, ...]:
    inbox = fold_inbox(log)
    return (
        log.derive_messages(),
        log.surface_nodes,
        log.replace_generation,
        log.request_header,
        (inbox.next_turn, inbox.next_step),
        (log.last_turn, log.open_turn, log.open_step),
        log.length,
        log.irregularities,
    )


def loaded(entries: list[Any]) -> Session:
    made = Session(header())
    for entry in entries:
        made.load(entry)
    return made


@settings(max_examples=60)
@given(plays, st.data())
def test_the_fold_of_a_whole_log_is_the_fold_of_its_parts(
    moves: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    log = played(moves)
    entries = as_stored(log)
    cut = data.draw(st.integers(0, len(entries)))

    part = loaded(entries[:cut])
    folds(part)
    copy = part.copy()
    before = folds(copy)
    for entry in entries[cut:]:
        part.load(entry)

    assert folds(part) == folds(log) == folds(loaded(log.entries()))
    assert folds(copy) == before


@settings(max_examples=40)
@given(plays)
def test_every_prefix_gives_what_the_live_log_gave_at_that_point(moves: list[tuple[str, int, int]]) -> None:
    player = Player()
    seen: list[tuple[int, Any]] = []
    for move in moves:
        player.play(*move)
        seen.append((player.log.length, folds(player.log)[:6]))
    entries = as_stored(player.log)
    replayed = Session(header())
    for length, live in seen:
        for entry in entries[replayed.length : length]:
            replayed.load(entry)
        assert folds(replayed)[:6] == live


@settings(max_examples=60)
@given(plays, st.data())
def test_a_log_stored_in_any_batches_is_the_same_log(
    moves: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    log = played(moves)
    rows: list[Any] = []
    start = 0
    while start < log.length:
        stop = data.draw(st.integers(start + 1, log.length))
        rows += map(encode, pack(log.entries(start, stop)))
        start = stop

    values = [decode_strict(row) for row in rows]
    view = restore(header(), [row_to_run(one) if is_row(one) else one for one in values]).view

    assert [event.to_json() for event in view.events(0, log.length)] == [e.to_json() for e in log.events()]
    assert view.surface_nodes == log.surface_nodes
    assert [encode(row) for row in pack(view.entries(0, log.length))] == [
        encode(r) for r in pack(log.entries())
    ]


@settings(max_examples=60)
@given(plays, st.integers(-3, 60), st.integers(-3, 60), st.booleans())
def test_a_replacement_is_whole_or_changes_nothing(
    moves: list[tuple[str, int, int]], start: int, end: int, cites: bool
) -> None:
    log = played(moves)
    nodes, generation, length = log.surface_nodes, log.replace_generation, log.length
    operation = {"op": "replace", "start": start, "end": end}
    fits = start in nodes and end in nodes and nodes.index(start) <= nodes.index(end)
    shadowed = nodes[nodes.index(start) : nodes.index(end) + 1] if fits else ()
    sources = shadowed if cites and fits else [0]

    try:
        made = log.append("user/message", prompt("new", "new"), surface=operation, sources=sources)
    except SurfaceError:
        assert (log.surface_nodes, log.replace_generation, log.length) == (nodes, generation, length)
        assert not (fits and set(shadowed) <= set(sources))
        return
    assert log.replace_generation == generation + 1
    at = nodes.index(start)
    assert log.surface_nodes == (*nodes[:at], made.seq, *nodes[at + len(shadowed) :])
    assert log.derive_messages() == loaded(as_stored(log)).derive_messages()
