"""What the boot says of rows that did not come up."""

from typing import NamedTuple

from dsh.errors import CompositionError


class RowReport(NamedTuple):
    """One row that is not active. `str()`: `<row id> (<name>): pending (waiting for service(s): a, b)`."""

    id: str
    name: str
    detail: str
    error: BaseException | None = None
    """What it failed with; its traceback is for `--verbose`."""

    def __str__(self) -> str:
        return f"{self.id} ({self.name}): {self.detail}"


class BootError(CompositionError):
    """Rows failed or wait for ever. The message is one line for the failure and one for each row."""

    def __init__(self, reports: list[RowReport], *, summary: str) -> None:
        self.reports = reports
        super().__init__("\n".join([summary, *map(str, reports)]))


def not_loaded(reports: list[RowReport]) -> BootError:
    """Rows that cannot be imported or are wrong; nothing was mounted."""
    count = len(reports)
    return BootError(reports, summary=f"{count} plugin{'' if count == 1 else 's'} failed to load:")


def not_active(reports: list[RowReport]) -> BootError:
    """Rows that failed or wait once everything has come to rest."""
    count = len(reports)
    return BootError(reports, summary=f"{count} {'entry' if count == 1 else 'entries'} did not activate:")
