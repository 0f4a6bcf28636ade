"""What the check of a log tells, and how a part of the check tells it."""

from typing import Literal, TypeAlias

from msgspec import Struct

Level: TypeAlias = Literal["error", "warning"]


class Finding(Struct, frozen=True):
    """One thing that is not as a log should be."""

    level: Level
    """An error is a contradiction in the log. A warning is what a crash leaves, or what other writers of the
    format are known to do; the log means the same with it."""
    code: str
    """In capitals; stays the same from release to release."""
    seq: int | None
    """The event it is about; None where it is the log as a whole."""
    message: str
    """One line. It may quote the log."""


class Findings:
    """Collects findings, so many of each code at most, and counts all of them."""

    LIMIT = 100

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.counts: dict[str, int] = {}

    def error(self, code: str, seq: int | None, message: str) -> None:
        self._add("error", code, seq, message)

    def warning(self, code: str, seq: int | None, message: str) -> None:
        self._add("warning", code, seq, message)

    def _add(self, level: Level, code: str, seq: int | None, message: str) -> None:
        self.counts[code] = count = self.counts.get(code, 0) + 1
        if count <= self.LIMIT:
            self.kept.append(Finding(level, code, seq, message))

    def all(self) -> list[Finding]:
        """In the order of the log; for a code that was met too often, one more that says how often."""
        out = sorted(self.kept, key=lambda found: -1 if found.seq is None else found.seq)
        for code, count in self.counts.items():
            if count > self.LIMIT:
                level = next(found.level for found in self.kept if found.code == code)
                out.append(Finding(level, code, None, f"and {count - self.LIMIT} more of this kind"))
        return out


def quoted(value: object) -> str:
    """A value of the log in a message, short."""
    return repr(value)[:80]
