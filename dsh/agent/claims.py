"""What the calls of a message touch while they are under way: which call would conflict with them."""

from collections import Counter

from dsh.tools.definition import Resources


class Claims:
    """The resources of all calls that are not committed. State: how many of them hold each key."""

    def __init__(self) -> None:
        self._exclusive = 0
        self._count = 0
        self._reads: Counter[str] = Counter()
        self._writes: Counter[str] = Counter()

    def admits(self, wanted: Resources | None) -> bool:
        """Whether a call with these resources conflicts with none under way; None conflicts with any."""
        if wanted is None:
            return not self._count
        if self._exclusive:
            return False
        written = wanted.writes
        return (
            self._writes.keys().isdisjoint(written)
            and self._reads.keys().isdisjoint(written)
            and self._writes.keys().isdisjoint(wanted.reads)
        )

    def add(self, held: Resources | None) -> None:
        """A call with these resources starts."""
        self._count += 1
        if held is None:
            self._exclusive += 1
        else:
            self._reads.update(held.reads)
            self._writes.update(held.writes)

    def remove(self, held: Resources | None) -> None:
        """One that was added is committed."""
        self._count -= 1
        if held is None:
            self._exclusive -= 1
        else:
            _take(self._reads, held.reads)
            _take(self._writes, held.writes)


def _take(counts: "Counter[str]", keys: frozenset[str]) -> None:
    for key in keys:
        if counts[key] == 1:
            del counts[key]
        else:
            counts[key] -= 1
