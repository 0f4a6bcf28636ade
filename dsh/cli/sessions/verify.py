"""`dsh sessions verify`: whether logs hold together, and each request can be computed again.

Files are only read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Literal, TypeAlias

from msgspec import Struct

from dsh.cli.report import describe, report
from dsh.cli.sessions.output import line, write
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.reading import failed
from dsh.cli.sessions.target import Log, find_log, stored_log
from dsh.cli.sessions.whereabouts import open_place
from dsh.errors import CompositionError, DshError, UsageError
from dsh.masking import masked
from dsh.persistence.backend import StoredProblem
from dsh.persistence.error import LogRefusal
from dsh.persistence.system import named
from dsh.persistence.view import LogView
from dsh.session.chunk_run import entry_stop
from dsh.session.value import encode
from dsh.session.verify.finding import Finding
from dsh.session.verify.log import verify as verify_log

Status: TypeAlias = Literal["ok", "warnings", "errors", "refused"]


class Shown(Struct, frozen=True):
    """A finding with the place where it can be looked at. `--json` prints these."""

    level: str
    code: str
    seq: int | None
    """The event it is about."""
    line: int | None
    """The line of the stored text that holds it, the header being line 1; None in a database."""
    message: str

    def text(self) -> str:
        """One line."""
        where = [f"{name} {at}" for name, at in (("line", self.line), ("seq", self.seq)) if at is not None]
        place = f"{', '.join(where)}: " if where else ""
        return f"{self.level}  {self.code}  {place}{line(self.message)}"


class Checked(Struct, frozen=True, kw_only=True):
    """One log and what was found in it."""

    log: str
    """Its place; where no log was found, what was asked for."""
    session: str | None
    status: Status
    findings: tuple[Shown, ...]
    events: int = 0
    calls: int = 0
    replies: int = 0
    digests: int = 0

    def count(self, level: str) -> int:
        """How many findings of this level there are."""
        return sum(found.level == level for found in self.findings)

    def last_line(self) -> str:
        """Its place and what was found: the same alone and among others."""
        return f"{line(self.log)}: {self.summary()}\n"

    def summary(self) -> str:
        """What was found, in a few words."""
        if self.status == "refused":
            (refusal,) = self.findings
            return f"refused: {refusal.code}: {line(refusal.message)}"
        parts = [counted(self.count(level), level) for level in ("error", "warning") if self.count(level)]
        amounts = (
            (self.events, "event"),
            (self.replies, "streamed reply"),
            (self.calls, "call"),
            (self.digests, "digest"),
        )
        checked = ", ".join(counted(amount, what) for amount, what in amounts)
        return f"{', '.join(parts) or 'ok'} ({checked})"


def verify(targets: list[str], place: Place, *, everywhere: bool, as_json: bool) -> int:
    """Check logs. Answers the exit code: 1 where one has an error or cannot be opened, else 0.

    A log that cannot be checked is told and does not keep the others from it.
    """
    if bool(targets) == everywhere:
        found = "both of them" if targets else "neither"
        return report(
            UsageError(
                f"dsh sessions verify checks the sessions that are named, or all with --all; found {found}",
                hint="dsh sessions verify last checks the newest session of this directory",
            )
        )
    try:
        checks = _stored(place) if everywhere else _named(targets, place)
    except (CompositionError, UsageError):
        raise
    except (DshError, OSError) as error:
        return failed(error)
    results: list[Checked] = []
    for check in checks:
        result = check()
        results.append(result)
        if not as_json and len(checks) > 1:
            write(result.last_line())
    if as_json:
        errors, warnings = (sum(result.count(level) for result in results) for level in ("error", "warning"))
        write(encode({"logs": results, "errors": errors, "warnings": warnings}) + b"\n")
    elif not checks:
        write("no session is stored\n")
    elif len(checks) == 1:
        _print_whole(results[0])
    return 1 if any(result.status in ("errors", "refused") for result in results) else 0


def _print_whole(result: Checked) -> None:
    """A line for each finding, and a last one that sums them up."""
    shown = [] if result.status == "refused" else [found.text() for found in result.findings]
    write("".join(f"{text}\n" for text in shown) + result.last_line())


Checks: TypeAlias = list[Callable[[], Checked]]


def _named(targets: list[str], place: Place) -> Checks:
    return [partial(_check, name, partial(find_log, name, place)) for name in targets]


def _stored(place: Place) -> Checks:
    """A check for every stored session, and one for whatever lies there and cannot be listed."""
    backend = open_place(place)
    listing = backend.list()
    ids = sorted(stored.header.id for stored in listing.sessions)
    return [
        *(partial(_check, name, partial(stored_log, name, backend)) for name in ids),
        *(partial(_unlisted, problem) for problem in listing.problems),
    ]


def _unlisted(problem: StoredProblem) -> Checked:
    found = Shown("error", problem.code, None, None, masked(problem.reason))
    return Checked(log=problem.place, session=None, status="refused", findings=(found,))


def _check(name: str, find: Callable[[], Log]) -> Checked:
    log: Log | None = None
    try:
        log = find()
        view = log.view()
    except (CompositionError, UsageError):
        raise
    except (DshError, OSError) as error:
        found = _refusal(error)
        session_id = log.session_id if log is not None else None
        return Checked(
            log=log.place if log is not None else name,
            session=session_id,
            status="refused",
            findings=(found,),
        )
    verdict = verify_log(view)
    findings = (*_unfinished(log, view), *verdict.findings)
    levels = {found.level for found in findings}
    return Checked(
        log=log.place,
        session=view.header.id,
        status="errors" if "error" in levels else "warnings" if levels else "ok",
        findings=tuple(_shown(findings, _lines(view, findings) if log.path is not None else {})),
        events=view.stored_length,
        calls=verdict.calls,
        replies=verdict.replies,
        digests=verdict.digests,
    )


def _refusal(error: DshError | OSError) -> Shown:
    """Why a log does not open: format, sequence or surface are broken, or it is not there."""
    at = error.line if isinstance(error, LogRefusal) and error.line else None
    refusal = named(error) if isinstance(error, OSError) else error
    return Shown("error", refusal.code or "REFUSED", None, at, masked(describe(refusal)))


def _unfinished(log: Log, view: LogView) -> Iterator[Finding]:
    """What opening the session for writing would change."""
    if (torn := view.torn) is not None:
        read = f"{torn.recovered or 'no'} events could be read"
        said = f"{torn.reason}; {torn.extent} will be cut off when the session is opened, of it {read}"
        yield Finding("warning", "TORN_TAIL", None, said)
    if view.closers:
        closers = counted(len(view.closers), "event")
        said = f"the last turn has no end; {closers} will close it when the session is opened"
        if (writer := log.writer()) is not None:
            said = f"the last turn has no end yet: {writer} goes on with the session"
        yield Finding("warning", "UNFINISHED", None, said)


def _shown(findings: Iterable[Finding], lines: Mapping[int, int]) -> Iterator[Shown]:
    for found in findings:
        at = None if found.seq is None else lines.get(found.seq)
        yield Shown(found.level, found.code, found.seq, at, masked(found.message))


def _lines(view: LogView, findings: Iterable[Finding]) -> dict[int, int]:
    """The lines of the events that were found fault with: each line of a log is one entry of its view."""
    wanted = sorted({found.seq for found in findings if found.seq is not None}, reverse=True)
    while wanted and wanted[0] >= view.stored_length:
        wanted.pop(0)
    lines: dict[int, int] = {}
    for number, entry in enumerate(view.walk(), 2):
        stop = entry_stop(entry)
        while wanted and wanted[-1] < stop:
            lines[wanted.pop()] = number
        if not wanted:
            break
    return lines


def counted(count: int, what: str) -> str:
    """`1 event`, `2 events`, `0 replies`."""
    if count == 1:
        return f"1 {what}"
    return f"{count} {what[:-1]}ies" if what.endswith("y") else f"{count} {what}s"
