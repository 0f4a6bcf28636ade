"""Where a history is cut: at its beginning, never within a call and its results."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dsh.plugins.compaction_basic.span import Node, beginning, choose, is_checkpoint, shorter
from dsh.session.message import assistant_message, tool_result_message, user_message
from tests.plugins.compaction.kit import is_paired

Unit = tuple[int, int, int]
"""Calls of a reply (0: none), how many of them have results, user messages behind."""


def history(units: list[Unit], ids: str = "unique") -> list[Node]:
    nodes: list[Node] = []

    def add(message: Any, tokens: int = 10) -> None:
        nodes.append(Node(100 - len(nodes), message, tokens, tokens))

    add(user_message("task"))
    for number, (asked, answered, said) in enumerate(units):
        names = [f"c{number}-{n}" if ids == "unique" else "same" for n in range(asked)]
        blocks = [{"type": "tool-call", "id": name, "name": "t", "arguments": "{}"} for name in names]
        add(assistant_message(blocks or [{"type": "text", "text": "x"}], "p", "m"), 5 + number)
        for name in names[: min(answered, asked)]:
            add(tool_result_message(name, [{"type": "text", "text": "r"}]), 30)
        for _ in range(said):
            add(user_message("more"))
    return nodes


units = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 2)), max_size=12)


@given(
    units=units,
    retain=st.integers(0, 600),
    ids=st.sampled_from(["unique", "same"]),
    began=st.none() | st.integers(50, 110),
)
def test_no_cut_separates_a_call_from_its_result(
    units: list[Unit], retain: int, ids: str, began: int | None
) -> None:
    nodes = history(units, ids)
    span = choose(nodes, retain, turn_began=began)
    if span is None:
        return
    kept = nodes[len(span.nodes) :]

    assert span.nodes == tuple(nodes[: len(span.nodes)])
    assert kept
    for part in (span.nodes, kept):
        whole = [n.message for n in part if n.message is not None]
        calls = [b for m in whole for b in m["content"] if b["type"] == "tool-call"]
        results = [b for m in whole for b in m["content"] if b["type"] == "tool-result"]
        assert len(results) <= len(calls)
    first = kept[0].message
    assert first is not None and not any(block["type"] == "tool-result" for block in first["content"])


@given(units=units, retain=st.integers(0, 600))
def test_at_least_what_is_to_stay_stays(units: list[Unit], retain: int) -> None:
    nodes = history(units)
    span = choose(nodes, retain)
    taken = 0 if span is None else len(span.nodes)

    assert sum(node.tokens for node in nodes[taken:]) >= min(retain, sum(node.tokens for node in nodes))


@given(units=units)
def test_complete_histories_stay_paired_on_both_sides(units: list[Unit]) -> None:
    nodes = history([(asked, asked, said) for asked, _, said in units])
    for retain in range(0, 300, 7):
        span = choose(nodes, retain)
        if span is not None:
            rest = [n.message for n in nodes[len(span.nodes) :] if n.message is not None]
            assert is_paired(span.messages)
            assert is_paired(rest)


def test_a_budget_of_nothing_keeps_the_last_node() -> None:
    nodes = history([(0, 0, 1), (0, 0, 0)])
    span = choose(nodes, 0)

    assert span is not None and len(span.nodes) == len(nodes) - 1


def test_a_batch_that_reaches_the_end_is_kept_whole() -> None:
    nodes = history([(3, 3, 0)])
    span = choose(nodes, 0)

    assert span is not None and len(span.nodes) == 1


def test_one_node_or_none_is_nothing() -> None:
    assert choose([], 0) is None
    assert choose(history([]), 0) is None


def test_a_call_without_any_result_binds_nothing() -> None:
    nodes = history([(2, 0, 1), (0, 0, 1)])
    span = choose(nodes, 0)

    assert span is not None and len(span.nodes) == len(nodes) - 1


def test_a_batch_with_its_middle_result_lost_is_not_split() -> None:
    nodes = history([(3, 3, 0)])
    nodes = [*nodes[:3], *nodes[4:]]

    for cut in range(2, len(nodes)):
        span = beginning(nodes, cut)
        assert span is not None and len(span.nodes) == 1


def renumbered(nodes: list[Node], *seqs: int) -> list[Node]:
    return [msgspec.structs.replace(node, seq=seq) for node, seq in zip(nodes, seqs, strict=True)]


def test_what_waits_for_a_reply_in_the_open_turn_is_left_alone() -> None:
    nodes = renumbered(history([(0, 0, 2)]), 1, 2, 10, 12)

    assert choose(nodes, 0, turn_began=9) == beginning(nodes, 2)
    assert choose(nodes, 0) == beginning(nodes, 3)


def test_what_a_turn_without_a_reply_left_behind_may_go() -> None:
    """Else a prompt that never was answered would be in the way for ever."""
    nodes = renumbered(history([(0, 0, 2)]), 1, 2, 5, 12)

    assert choose(nodes, 0, turn_began=9) == beginning(nodes, 3)


def test_a_summary_of_the_open_turn_is_no_part_of_what_waits() -> None:
    """Its seq is of the turn, its place is before all that came after."""
    nodes = renumbered(history([(0, 0, 0), (0, 0, 1)]), 20, 3, 4, 12)

    assert choose(nodes, 0, turn_began=9) == beginning(nodes, 3)


def test_a_checkpoint_alone_is_nothing_and_with_others_it_is_folded_in() -> None:
    made = user_message("s", {"kind": "plugin", "plugin": "compact", "compactionId": "u"})
    nodes = [Node(9, made, 10, 10), *history([(0, 0, 0)])]

    assert is_checkpoint(made)
    assert not is_checkpoint(nodes[1].message)
    assert choose(nodes[:2], 0) is None
    span = choose(nodes, 0)
    assert span is not None and span.seqs[0] == 9


@given(units=units)
def test_halving_ends(units: list[Unit]) -> None:
    span = choose(history(units), 0)
    while span is not None:
        smaller = shorter(span)
        assert smaller is None or len(smaller.nodes) < len(span.nodes)
        span = smaller
