"""The scan of a log's text gives the same however the text is cut into pieces."""

import random
from typing import Any

import pytest

from dsh.persistence.jsonl.scan import DamagedText, LineScanner
from dsh.session.chunk_run import ChunkRun
from tests.persistence.golden import BODY, turn_end, turn_start

TEXTS = {
    "whole": b"".join(BODY),
    "lacks newline": b"".join(BODY)[:-1],
    "torn": b"".join(BODY)[:-20],
    "an empty line at the end": b"".join(BODY) + b"\n",
    "garbage at the end": b"".join(BODY) + b"\0\0\n\0\0",
    "damage": turn_start(0) + b"\n" + turn_end(1),
    "a gap": turn_start(0) + turn_start(2),
}


def scanned(*pieces: bytes) -> tuple[Any, ...]:
    """All that a scanner says of a text it gets in these pieces."""
    got: list[tuple[int, bytes]] = []
    scanner = LineScanner(
        lambda entry, line: got.append((entry.seq0 if isinstance(entry, ChunkRun) else entry["seq"], line))
    )
    try:
        for piece in pieces:
            scanner.feed(piece)
        scanner.finish()
    except DamagedText as damaged:
        return (got, damaged.defect)
    return (
        got,
        scanner.next_seq,
        scanner.committed,
        scanner.fed,
        scanner.defect,
        scanner.lacks_newline,
        scanner.is_whole,
    )


@pytest.mark.parametrize("name", TEXTS)
def test_every_split_in_two_and_many_into_more_give_the_same(name: str) -> None:
    text = TEXTS[name]
    want = scanned(text)

    for cut in range(len(text) + 1):
        assert scanned(text[:cut], text[cut:]) == want, cut
    rng = random.Random(7)
    for _ in range(200):
        cuts = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(2, 9)))
        ends = zip([0, *cuts], [*cuts, len(text)], strict=True)
        assert scanned(*(text[start:stop] for start, stop in ends)) == want, cuts


def test_the_delimiter_of_a_record_may_come_after_the_end_was_thought_reached() -> None:
    """A frame that ends without a newline is complete; the next one begins with it."""
    got: list[bytes] = []
    scanner = LineScanner(lambda entry, line: got.append(line))
    states = []
    for text in (turn_start(0)[:-1], b"\n" + turn_end(1)):
        scanner.feed(text)
        scanner.finish()
        states.append((scanner.lacks_newline, scanner.is_whole, scanner.defect))

    assert states == [(True, True, None), (False, True, None)]
    assert [line + b"\n" for line in got] == [turn_start(0), turn_end(1)]
