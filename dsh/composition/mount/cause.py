"""What an audit adds where several rows are at fault together: which the others are, and where they stand."""

from collections.abc import Callable, Iterable

from dsh.composition.mount.audit import RowReport
from dsh.composition.mount.entry import Entry
from dsh.kernel import Fiber
from dsh.kernel.address import ServiceTaken

Locate = Callable[[Fiber], Entry | None]


def completed(reports: list[RowReport], entries: Iterable[Entry], locate: Locate) -> list[RowReport]:
    """The same reports; those of rows that provide the same, or that wait in a circle, name the other rows.

    Args:
        locate: the row that a fiber belongs to.
    """
    by_id = {entry.id: entry for entry in entries} if reports else {}
    waiting = [
        entry for report in reports if report.waits_for and (entry := by_id.get(report.id)) is not None
    ]
    made = []
    for report in reports:
        entry, error = by_id.get(report.id), report.error
        if entry is not None and isinstance(error, ServiceTaken):
            report = report._replace(detail=f"{report.detail}; {_conflict(entry, locate(error.holder))}")
        elif entry in waiting and (circle := _circle(entry, waiting)):
            report = report._replace(
                detail=f"{report.detail}; the rows wait in a circle: {' -> '.join(circle)}"
            )
        made.append(report)
    return made


def _conflict(entry: Entry, holder: Entry | None) -> str:
    if holder is None:
        return f"the program itself provides it, so row {entry.id} ({entry.row.mark}) cannot"
    if holder is entry:
        return "the row provides it twice"
    both = f"rows {holder.id} ({holder.row.mark}) and {entry.id} ({entry.row.mark})"
    return f"{both} provide the same: disable one"


def _circle(start: Entry, waiting: list[Entry]) -> list[str]:
    """The ids from a row that waits back to itself; empty where it waits in no circle."""
    paths = [[start]]
    seen: set[Entry] = set()
    while paths:
        path = paths.pop(0)
        for provider in _providers(path[-1], waiting):
            if provider is start:
                return [entry.id for entry in (*path, start)]
            if provider not in seen:
                seen.add(provider)
                paths.append([*path, provider])
    return []


def _providers(entry: Entry, waiting: list[Entry]) -> list[Entry]:
    """The rows that would provide what a row waits for, and wait themselves."""
    if entry.fiber is None or entry.ctx is None:
        return []
    wanted = {(name, entry.ctx.realm_of(name)) for name in entry.fiber.missing}
    return [
        other
        for other in waiting
        if other.ctx is not None and other.runtime is not None
        for name in other.runtime.provides or ()
        if (name, other.ctx.realm_of(name)) in wanted
    ]
