"""What the tree has logged last: a ring of records, and exporters that receive each new one.

Plugins log with the standard library's loggers, all of them below `dsh`. The logger of a context marks its
records with the fiber, so that they reach the journal of that fiber's tree; records of module loggers reach
every tree of the process. A record that the level of its logger drops is nowhere.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet

import msgspec

from dsh.masking import masked

RING_SIZE = 1000
"""How many records a journal remembers."""
MAX_LINE = 10_240
"""How many characters of a line are kept; a cut line ends with `...`."""
MAX_ERRORS = 32
"""How many causes and members of one error get records of their own."""
ROOT_NAME = "dsh"


class LogEntry(msgspec.Struct, frozen=True):
    """One record of the journal. Keys and passwords in its text are masked."""

    sn: int
    """Counts from 1 without gaps, over everything the journal has received."""
    ts: int
    """Milliseconds since the epoch."""
    name: str
    """Of the logger, without `dsh.` in front."""
    level: str
    """`debug`, `info`, `warning`, `error` or `critical`."""
    text: str
    fiber: int | None = None
    """The uid that the fiber had, None where no fiber logged it."""


Exporter = Callable[[LogEntry], None]


class Logging(Protocol):
    """A fiber that logs."""

    uid: int | None

    @property
    def journal(self) -> "Journal": ...


class Journal:
    """The records of one tree, the oldest forgotten first, and those who receive each new one."""

    def __init__(self) -> None:
        self._ring: deque[LogEntry] = deque(maxlen=RING_SIZE)
        self._exporters: dict[object, Exporter] = {}
        self._count = 0
        self._is_exporting = False
        _ROUTER.follow(self)

    @property
    def entries(self) -> list[LogEntry]:
        """What is remembered, the oldest first."""
        return list(self._ring)

    @property
    def exporter_count(self) -> int:
        return len(self._exporters)

    def export_to(self, exporter: Exporter) -> Callable[[], None]:
        """Give every record from now on to the exporter. Returns the undo, which removes this one only."""
        token = object()
        self._exporters[token] = exporter

        def undo() -> None:
            self._exporters.pop(token, None)

        return undo

    def add(self, record: logging.LogRecord) -> None:
        """Take over a record: the causes and members of its error first, each as a record, then itself."""
        error = record.exc_info[1] if record.exc_info else None
        texts = [f"{type(one).__name__}: {one}" for one in _unfolded(error)[:-1]] if error else []
        uid = getattr(record, "fiber_uid", None)
        for text in (*texts, record.getMessage()):
            self._count += 1
            entry = LogEntry(
                self._count,
                int(record.created * 1000),
                record.name.removeprefix(f"{ROOT_NAME}."),
                record.levelname.lower(),
                _cut(masked(text)),
                uid,
            )
            self._ring.append(entry)
            self._export(entry)

    def _export(self, entry: LogEntry) -> None:
        """An exporter that fails, or logs itself, neither stops the others nor starts a circle."""
        if self._is_exporting:
            return
        self._is_exporting = True
        try:
            for exporter in tuple(self._exporters.values()):
                try:
                    exporter(entry)
                except Exception as error:
                    logging.getLogger(f"{ROOT_NAME}.journal").error("a log exporter failed: %s", error)
        finally:
            self._is_exporting = False


def _cut(text: str) -> str:
    if len(text) <= MAX_LINE:
        return text
    return "\n".join(line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}..." for line in text.split("\n"))


def _unfolded(error: BaseException) -> list[BaseException]:
    """An error in the order in which it is told: its causes, the members of a group, itself."""
    told: list[BaseException] = []
    seen: set[int] = set()

    def visit(one: BaseException) -> None:
        if id(one) in seen or len(seen) >= MAX_ERRORS:
            return
        seen.add(id(one))
        if one.__cause__ is not None:
            visit(one.__cause__)
        if isinstance(one, BaseExceptionGroup):
            for member in one.exceptions:
                visit(member)
        told.append(one)

    visit(error)
    return told


class FiberLogger(logging.Logger):
    """The logger of one fiber: a child of the standard one of its name, whose records carry the fiber."""

    def __init__(self, name: str, fiber: Logging) -> None:
        super().__init__(f"{ROOT_NAME}.{name.replace('.', '-')}")
        self._fiber = fiber
        self.parent = logging.getLogger(self.name)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 -- the standard library's name
        """Asked anew each time: the level of the standard logger may change."""
        return self.manager.disable < level and level >= self.getEffectiveLevel()

    def getChild(self, suffix: str) -> "FiberLogger":  # noqa: N802
        return FiberLogger(f"{self.name.removeprefix(f'{ROOT_NAME}.')}-{suffix}", self._fiber)

    def makeRecord(self, *args: Any, **kwargs: Any) -> logging.LogRecord:  # noqa: N802
        record = super().makeRecord(*args, **kwargs)
        record.journal = self._fiber.journal
        record.fiber_uid = self._fiber.uid
        return record


class _Router(logging.Handler):
    """The one handler for all journals of the process."""

    def __init__(self) -> None:
        super().__init__()
        self._journals: WeakSet[Journal] = WeakSet()

    def follow(self, journal: Journal) -> None:
        self._journals.add(journal)
        top = logging.getLogger(ROOT_NAME)
        if self not in top.handlers:
            top.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        journal = getattr(record, "journal", None)
        for one in (journal,) if isinstance(journal, Journal) else tuple(self._journals):
            one.add(record)
        self._show_last_resort(record)

    def _show_last_resort(self, record: logging.LogRecord) -> None:
        """Without any other handler the standard library would print warnings; it still does."""
        top = logging.getLogger(ROOT_NAME)
        last = logging.lastResort
        has_another = top.handlers != [self] or (top.propagate and logging.getLogger().handlers)
        if last is not None and record.levelno >= last.level and not has_another:
            last.handle(record)


_ROUTER = _Router()
