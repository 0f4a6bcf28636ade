"""The surface: which events the model sees, in order, and how a new event joins or replaces some.

One planner serves live appends, seeds and restored logs, so that they cannot disagree. A plan is made on the
candidate and changes nothing; `commit` applies it (`spec/session-log.md` §7).
"""

from collections.abc import Callable
from itertools import islice
from operator import lt
from typing import Any

from dsh.session.error import SurfaceError
from dsh.session.event import SURFACE_TYPES, SessionEvent, Surface
from dsh.session.value import MAX_SAFE_INT, FrozenDict, JsonObject, freeze, json_equal, safe_int

Lookup = Callable[[int], SessionEvent]
"""The committed event with a seq."""


class Plan:
    """What one valid candidate does: its checked surface keys, and the nodes it takes the place of."""

    __slots__ = ("shadowed", "sources", "surface")

    def __init__(
        self,
        sources: tuple[int, ...] | None,
        surface: Surface | None,
        shadowed: tuple[int, int] | None = None,
    ) -> None:
        self.sources = sources
        self.surface = surface
        self.shadowed = shadowed
        """First and last position in `nodes`, both included; None where nothing is replaced."""


LOG_ONLY = Plan(None, None)
"""The plan of every event that is not of a surface type."""


class SurfaceState:
    """The seqs that the model sees now, in model order, and how often some were replaced."""

    __slots__ = ("_hints", "_taken", "generation", "nodes")

    def __init__(self) -> None:
        self.nodes: list[int] = []
        self.generation = 0
        self._hints: dict[int, int] = {}
        """By seq, a position plus what had been taken out when it was noted; empty before any replacement."""
        self._taken = 0
        """How many positions replacements have taken out."""

    def copy(self) -> "SurfaceState":
        """An independent state with the same contents."""
        made = SurfaceState()
        made.nodes, made.generation = list(self.nodes), self.generation
        return made

    def plan(self, kind: str, seq: int, data: Any, keys: JsonObject, lookup: Lookup) -> Plan:
        """Check a candidate against all rules of the surface.

        Args:
            keys: holds `surfaceOp` and `sourceEventSeqs` exactly where the candidate has them.

        Raises:
            SurfaceError: the first rule that is broken, in the order of the specification.
        """
        if kind not in SURFACE_TYPES:
            return _log_only(kind, keys)
        surface = _operation(kind, keys)
        span = None if surface == "append" else self._span(surface)
        sources = _sources(kind, seq, keys)
        if span is not None:
            self._check_replacement(kind, data, span, sources, lookup)
        return Plan(sources, surface, span)

    def commit(self, seq: int, plan: Plan) -> None:
        """Apply a plan of this very state."""
        if plan.shadowed is not None:
            first, last = plan.shadowed
            for gone in self.nodes[first : last + 1]:
                self._hints.pop(gone, None)
            self.nodes[first : last + 1] = [seq]
            self._taken += last - first
            self._hints[seq] = first + self._taken
            self.generation += 1
        elif plan.surface is not None:
            self.nodes.append(seq)

    def _position(self, seq: int) -> int | None:
        """Where a seq stands in `nodes`; the search begins where it stands at the earliest.

        A hint less all that was taken out is never too high, and too low by what was taken out behind it.
        """
        nodes, hints = self.nodes, self._hints
        for position in range(len(nodes) - 1, -1, -1):
            if nodes[position] in hints:
                break
            hints[nodes[position]] = position + self._taken
        hint = hints.get(seq)
        if hint is None:
            return None
        return nodes.index(seq, max(hint - self._taken, 0))

    def _span(self, surface: Any) -> tuple[int, int]:
        ends = []
        for rule, key in ((7, "start"), (8, "end")):
            position = self._position(surface[key])
            if position is None:
                raise SurfaceError(rule, f"replace: {key} {surface[key]} is not on the surface")
            ends.append(position)
        if ends[0] > ends[1]:
            raise SurfaceError(9, f"replace: {surface['start']} stands after {surface['end']} on the surface")
        return ends[0], ends[1]

    def _check_replacement(
        self, kind: str, data: Any, span: tuple[int, int], sources: tuple[int, ...] | None, lookup: Lookup
    ) -> None:
        shadowed = self.nodes[span[0] : span[1] + 1]
        missing = sorted(set(shadowed) - set(sources or ()))
        if missing:
            raise SurfaceError(
                15, f"replace: sourceEventSeqs must cite every replaced event, missing {missing}"
            )
        if kind != "tool/result":
            return
        if len(shadowed) != 1:
            raise SurfaceError(16, f"a tool/result replaces exactly one event, not {len(shadowed)}")
        target = lookup(shadowed[0])
        if target.type != "tool/result":
            raise SurfaceError(17, f"a tool/result replaces a tool/result, seq {target.seq} is {target.type}")
        if not json_equal(_without_content(target.data), _without_content(data)):
            raise SurfaceError(18, f"a tool/result replacement of seq {target.seq} changes more than content")


def check_keys(kind: str, seq: int, keys: JsonObject) -> Plan:
    """The rules that need no other event: for readers of a part of a log.

    Raises:
        SurfaceError: the first rule that is broken.
    """
    if kind not in SURFACE_TYPES:
        return _log_only(kind, keys)
    surface = _operation(kind, keys)
    return Plan(_sources(kind, seq, keys), surface)


def _log_only(kind: str, keys: JsonObject) -> Plan:
    for rule, key in ((2, "surfaceOp"), (3, "sourceEventSeqs")):
        if key in keys:
            raise SurfaceError(rule, f"{kind} is not a surface type and cannot carry {key}")
    return LOG_ONLY


def _operation(kind: str, keys: JsonObject) -> Surface:
    if "surfaceOp" not in keys:
        raise SurfaceError(4, f"{kind} needs a surfaceOp")
    given = keys["surfaceOp"]
    if type(given) is str and given == "append":
        return "append"
    if type(given) is not dict and type(given) is not FrozenDict:
        raise SurfaceError(5, f'{kind}: surfaceOp is "append" or a replace object, found {given!r:.60}')
    start, end = safe_int(given.get("start")), safe_int(given.get("end"))
    if given.keys() != {"op", "start", "end"} or given["op"] != "replace" or start is None or end is None:
        raise SurfaceError(6, f"{kind}: replace is exactly op, start, end, found {dict(given)!r:.100}")
    if start < 0 or end < 0:
        raise SurfaceError(6, f"{kind}: replace needs start and end from 0, found {start} and {end}")
    frozen: FrozenDict = freeze({"op": "replace", "start": start, "end": end}, "surfaceOp")
    return frozen


def _sources(kind: str, seq: int, keys: JsonObject) -> tuple[int, ...] | None:
    if "sourceEventSeqs" not in keys:
        return None
    given = keys["sourceEventSeqs"]
    if type(given) is not list and type(given) is not tuple:
        raise SurfaceError(10, f"{kind}: sourceEventSeqs is an array, found {type(given).__name__}")
    if not given:
        if kind != "assistant/message":
            raise SurfaceError(11, f"{kind}: sourceEventSeqs must not be empty")
        return ()
    seqs: Any = tuple(given) if set(map(type, given)) == {int} else tuple(map(safe_int, given))
    if None in seqs or min(seqs) < 0 or max(seqs) > MAX_SAFE_INT:
        raise SurfaceError(12, f"{kind}: sourceEventSeqs holds safe integers from 0")
    if not _ascends(seqs) and len(set(seqs)) != len(seqs):
        raise SurfaceError(13, f"{kind}: sourceEventSeqs holds a seq twice")
    if max(seqs) >= seq:
        raise SurfaceError(
            14, f"{kind}: sourceEventSeqs must reference earlier events: {max(seqs)} >= current seq {seq}"
        )
    checked: tuple[int, ...] = seqs
    return checked


def _ascends(seqs: tuple[int, ...]) -> bool:
    """Whether each is greater than the one before: so they come, and it is told without a second copy."""
    return all(map(lt, seqs, islice(seqs, 1, None)))


def _without_content(data: JsonObject) -> dict[str, Any]:
    """A tool result's payload with the one part blanked that a replacement may change."""
    message = data["message"]
    blank = {**message["content"][0], "content": None}
    return {**data, "message": {**message, "content": (blank,)}}
