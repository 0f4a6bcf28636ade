"""What opens and must close: compactions, approvals, commands, hooks of other programs' runs; and the inbox.

An opening that a dead process left behind is no fault of the log: nobody closes the brackets of plugins, and
`session/end-seed` says that their owner is gone.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dsh.session.derive import project
from dsh.session.error import InvalidEvent
from dsh.session.estimate import log_price
from dsh.session.event import SURFACE_TYPES, SessionEvent
from dsh.session.inbox_fold import INBOX_SPLICED, InboxLists
from dsh.session.value import safe_int
from dsh.session.verify.finding import Findings, quoted


class _Pair(NamedTuple):
    """An event that opens, the one that closes it, and the key that both name."""

    opens: str
    closes: str
    key: str


_PAIRS = (
    _Pair("approval/asked", "approval/decided", "id"),
    _Pair("command/run", "command/done", "commandId"),
    _Pair("tool-workflow/run-start", "tool-workflow/run-end", "runId"),
    _Pair("tool/code-dispatch-start", "tool/code-dispatch", "subCallId"),
)
_OPENS = {pair.opens: pair for pair in _PAIRS}
_CLOSES = {pair.closes: pair for pair in _PAIRS}


class Brackets:
    """Follows pairs of plugins' events."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._open: dict[tuple[str, object], int] = {}

    def see(self, event: SessionEvent) -> None:
        """Take the next event."""
        if event.type == "session/end-seed":
            self._open.clear()
        elif (pair := _OPENS.get(event.type)) is not None:
            key = pair.opens, _hashable(event.data, pair.key)
            if key in self._open:
                said = f"{event.type}: {pair.key} {quoted(key[1])} is open since event {self._open[key]}"
                self._findings.error("BRACKET_TWICE", event.seq, said)
            self._open[key] = event.seq
        elif (pair := _CLOSES.get(event.type)) is not None:
            key = pair.opens, _hashable(event.data, pair.key)
            if self._open.pop(key, None) is None:
                said = f"{event.type}: no {pair.opens} with {pair.key} {quoted(key[1])} is open"
                self._findings.error("BRACKET_NOT_OPEN", event.seq, said)

    def finish(self) -> None:
        """The log ends."""
        for (opens, key), seq in self._open.items():
            said = f"{opens} {quoted(key)} has no {_OPENS[opens].closes}"
            self._findings.warning("BRACKET_OPEN", seq, said)


class Compactions:
    """Follows compactions: whether they end, and what they take off the surface.

    What of a bracket does not fit its turn or its ids, the log notes itself.
    """

    def __init__(self, findings: Findings, lookup: Callable[[int], SessionEvent]) -> None:
        self._findings = findings
        self._lookup = lookup
        self._open: int | None = None
        self._nodes: list[int] = []
        """What the model sees, by seq."""

    def see(self, event: SessionEvent) -> None:
        """Take the next event."""
        match event.type:
            case "compaction/start":
                self._open = event.seq
            case "compaction/end" | "session/end-seed":
                self._open = None
            case kind if kind in SURFACE_TYPES:
                self._join(event)

    def finish(self) -> None:
        """The log ends."""
        if self._open is not None:
            self._findings.warning("BRACKET_OPEN", self._open, "compaction/start has no compaction/end")

    def _join(self, event: SessionEvent) -> None:
        surface: Any = event.surface
        if surface == "append":
            self._nodes.append(event.seq)
            return
        first = self._nodes.index(surface["start"])
        last = self._nodes.index(surface["end"], first)
        shadowed = self._nodes[first : last + 1]
        self._nodes[first : last + 1] = [event.seq]
        self._check_replacement(event, shadowed)

    def _check_replacement(self, event: SessionEvent, shadowed: list[int]) -> None:
        """What takes other events' place is priced by the event before it, which names them too."""
        meter = self._lookup(event.seq - 1) if event.seq else None
        if event.type == "user/message" and event.data["source"].get("plugin") == "compact":
            wanted = "compaction/summary"
        elif event.type == "tool/result" or (meter is not None and meter.type == "compaction/prune"):
            wanted = "compaction/prune"
        else:
            return  # instructions and the like that are brought up to date in their place
        if meter is None or meter.type != wanted:
            said = f"{event.type} replaces others, and no {wanted} stands right before it"
            self._findings.warning("REPLACEMENT_UNPRICED", event.seq, said)
            return
        named = _field(meter.data, "shadowedSeqs")
        seqs = map(safe_int, named if isinstance(named, list | tuple) else ())
        missing = {seq for seq in seqs if seq is not None} - set(event.sources or ())
        if missing:
            said = f"{event.type} does not cite event {min(missing)}, which {wanted} says it replaces"
            self._findings.error("COMPACTION", event.seq, said)
            return
        self._check_price(meter, shadowed)

    def _check_price(self, meter: SessionEvent, shadowed: list[int]) -> None:
        """The price is that of exactly what is replaced: readers subtract it without looking."""
        named = _field(meter.data, "shadowedSeqs")
        if not isinstance(named, list | tuple) or sorted(map(_whole, named)) != sorted(shadowed):
            next_one = meter.seq + 1
            said = f"{meter.type} names events {quoted(named)}, event {next_one} replaces {quoted(shadowed)}"
            self._findings.error("COMPACTION", meter.seq, said)
            return
        messages = (project(self._lookup(seq)) for seq in shadowed)
        price = sum(log_price(message) for message in messages if message is not None)
        stated = _field(meter.data, "shadowedTokenCount")
        if stated != price:
            said = f"{meter.type} prices what is replaced at {quoted(stated)} tokens, it comes to {price}"
            self._findings.warning("SHADOW_PRICE", meter.seq, said)


class InboxSplices:
    """Carries out the splices of the inbox; a fork begins with an empty one."""

    def __init__(self, findings: Findings, start: int) -> None:
        """`start` is the first event that is the session's own."""
        self._findings = findings
        self._start = start
        self._lists = InboxLists()

    def see(self, event: SessionEvent) -> None:
        """Take the next event."""
        if event.type == INBOX_SPLICED and event.seq >= self._start:
            try:
                self._lists.apply(event.data)
            except InvalidEvent as error:
                self._findings.error("INBOX", event.seq, error.message)


def _whole(value: object) -> int:
    whole = safe_int(value)
    return -1 if whole is None else whole


def _field(data: Any, key: str) -> Any:
    if not isinstance(data, Mapping):
        return None
    value = data.get(key)
    whole = safe_int(value)
    return value if whole is None else whole


def _hashable(data: Any, key: str) -> object:
    value = _field(data, key)
    return value if isinstance(value, str | int | None) else repr(value)
