"""The surface with its prices: what is handed out of it never changes, and costs nothing to make."""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import overload

from dsh.capabilities.token_meter import PricedNode


def tokens_of(weight: int, ratio: float) -> int:
    """The estimate of a weight in bytes, at so many bytes a token."""
    return ceil(weight / ratio)


class Nodes(Sequence[PricedNode]):
    """The nodes of a surface at one moment.

    Each node's estimate is its part of the whole, so that the estimates of any neighbours add up without a
    rounding error for each.
    """

    __slots__ = ("_length", "_log", "_ratio", "_seqs", "_sums")

    def __init__(self, seqs: list[int], sums: list[int], log: list[int], ratio: float) -> None:
        """The lists may grow, and what is in them stays."""
        self._seqs = seqs
        self._sums = sums
        self._log = log
        self._ratio = ratio
        self._length = len(seqs)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> PricedNode: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[PricedNode]: ...
    def __getitem__(self, at: int | slice) -> PricedNode | Sequence[PricedNode]:
        if isinstance(at, slice):
            return tuple(self._node(place) for place in range(self._length)[at])
        return self._node(range(self._length)[at])

    def __iter__(self) -> Iterator[PricedNode]:
        return map(self._node, range(self._length))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Nodes) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Nodes {list(self)!r:.200}>"

    def _node(self, place: int) -> PricedNode:
        before, after = self._sums[place], self._sums[place + 1]
        tokens = tokens_of(after, self._ratio) - tokens_of(before, self._ratio)
        return PricedNode(self._seqs[place], tokens, self._log[place])


class PricedSurface:
    """The nodes that the model sees now, with weight and log price of each."""

    __slots__ = ("_is_shared", "log", "seqs", "sums")

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.log: list[int] = []
        self.sums: list[int] = [0]
        """The weight of all nodes before each place; one longer than the others."""
        self._is_shared = False
        """Somebody holds the lists, so that they may grow and not change otherwise."""

    @property
    def weight(self) -> int:
        """Of all nodes, in bytes."""
        return self.sums[-1]

    def append(self, seq: int, weight: int, log_price: int) -> None:
        """A node joins at the end."""
        self.seqs.append(seq)
        self.log.append(log_price)
        self.sums.append(self.sums[-1] + weight)

    def span(self, start: int, end: int) -> tuple[int, int] | None:
        """The places of two seqs; None where one is not there, or they stand the other way round."""
        try:
            first = self.seqs.index(start)
            return first, self.seqs.index(end, first)
        except ValueError:
            return None

    def replace(self, span: tuple[int, int], seq: int, weight: int, log_price: int) -> None:
        """One node takes the place of those from the first place of a span to its last."""
        first, last = span
        if self._is_shared:
            self.seqs, self.log, self.sums = list(self.seqs), list(self.log), list(self.sums)
            self._is_shared = False
        self.seqs[first : last + 1] = [seq]
        self.log[first : last + 1] = [log_price]
        change = weight - (self.sums[last + 1] - self.sums[first])
        self.sums[first + 1 : last + 2] = [self.sums[first] + weight]
        self.sums[first + 2 :] = [before + change for before in self.sums[first + 2 :]]

    def nodes(self, ratio: float) -> Nodes:
        """The nodes as they are."""
        self._is_shared = True
        return Nodes(self.seqs, self.sums, self.log, ratio)
