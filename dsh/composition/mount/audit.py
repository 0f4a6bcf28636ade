"""What the boot says of rows that did not come up: causes first and once, then what only waits for them."""

import shlex
from typing import NamedTuple

from dsh.composition.mount.wording import words_of
from dsh.errors import CompositionError


class RowReport(NamedTuple):
    """One row that is not active. `str()`: `<row id> (<name>): pending (waiting for service(s): a, b)`."""

    id: str
    name: str
    detail: str
    error: BaseException | None = None
    """What it failed with; its traceback is for `--verbose`."""
    waits_for: tuple[str, ...] = ()
    """Services that nobody provides yet, or the group that is not there; empty for a row that failed."""
    is_optional: bool = False
    """The rest may stand without it."""

    def __str__(self) -> str:
        return f"{self.id} ({self.name}): {self.detail}"


class BootError(CompositionError):
    """Rows failed or wait for ever. The message is one line for the failure and one for each cause.

    Rows that failed for one reason share a line, as do all that wait while others have failed.
    """

    def __init__(self, reports: list[RowReport], *, summary: str, hint: str = "") -> None:
        self.reports = reports
        super().__init__("\n".join([summary, *_lines(reports)]), hint=hint)


def not_loaded(reports: list[RowReport]) -> BootError:
    """Rows that cannot be imported or are wrong; nothing was mounted."""
    count = len(reports)
    return BootError(reports, summary=f"{count} plugin{'' if count == 1 else 's'} failed to load:")


def not_active(reports: list[RowReport]) -> BootError:
    """Rows that failed or wait once everything has come to rest; those that wait count if none failed."""
    failed = sum(not report.waits_for for report in reports)
    count = failed or len(reports)
    why = f"dsh explain {shlex.quote(reports[0].id)}, with the same --profile and --patch, says why"
    return BootError(
        reports,
        summary=f"{count} {'entry' if count == 1 else 'entries'} did not activate:",
        hint="" if failed else why,
    )


def _lines(reports: list[RowReport]) -> list[str]:
    failed = [report for report in reports if not report.waits_for]
    waiting = [report for report in reports if report.waits_for]
    if not failed:
        return [str(report) for report in waiting]
    causes: dict[tuple[str, str], list[RowReport]] = {}
    for report in failed:
        causes.setdefault(_cause(report), []).append(report)
    lines = []
    for first, *others in causes.values():
        same = f"; the same: {', '.join(report.id for report in others)}" if others else ""
        lines.append(f"{first}{same}")
    if waiting:
        wanted: dict[tuple[str, ...], list[str]] = {}
        for report in waiting:
            wanted.setdefault(report.waits_for, []).append(report.id)
        groups = [f"{', '.join(ids)} ({', '.join(names)})" for names, ids in wanted.items()]
        more = "1 more waits" if len(waiting) == 1 else f"{len(waiting)} more wait"
        lines.append(f"{more} for services that did not come: {'; '.join(groups)}")
    return lines


def _cause(report: RowReport) -> tuple[str, str]:
    error = report.error
    if error is None:
        return ("", report.detail)
    error = error.__cause__ or error
    return (type(error).__name__, words_of(error))
