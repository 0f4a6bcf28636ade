"""Event types that installed packages bring: entry points of the group `dsh.events`.

The name of an entry point is the event type. Its value is the type of the payload (a TypedDict or a msgspec
Struct), or names a None where nothing is to be checked. Names are read from metadata, without running the
package; the payload type is imported when an event of that type is appended or verified.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsh.errors import CompositionError

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

GROUP = "dsh.events"


class InstalledEventTypes:
    """The types named by packages on the import path, and by those in the `site` folder of every profile.

    Looks when it is asked for the first time, and once. The folders of all profiles count, since a log may be
    read by another profile than the one that wrote it.
    """

    def __init__(self, home: Path | None) -> None:
        """`home` is dsh's home folder; None where there is none."""
        self._home = home
        self._points: dict[str, tuple[EntryPoint, Path | None]] | None = None

    def knows(self, kind: str) -> bool:
        """Whether some package names this type."""
        return kind in self._found()

    def payload(self, kind: str) -> Any:
        """The payload type behind a name, imported; None where the package gives none.

        Raises:
            CompositionError: it cannot be imported.
        """
        point, site = self._found()[kind]
        if site is not None and str(site) not in sys.path:
            sys.path.append(str(site))
        try:
            return point.load()
        except (Exception, SystemExit) as error:
            package = point.dist.name if point.dist is not None else point.module
            raise CompositionError(
                f"the payload type of event {kind!r} cannot be loaded from {point.value!r}: "
                f"{type(error).__name__}: {error}",
                hint=f"repair or reinstall the package {package}",
            ) from error

    def _found(self) -> "dict[str, tuple[EntryPoint, Path | None]]":
        if self._points is None:
            self._points = {}
            for site in (None, *_sites(self._home)):
                for point in _points_in(site):
                    self._points.setdefault(point.name, (point, site))
        return self._points


def _sites(home: Path | None) -> list[Path]:
    return [] if home is None else sorted(home.glob("profiles/*/site"))


def _points_in(site: Path | None) -> "Iterator[EntryPoint]":
    from importlib.metadata import distributions

    for package in distributions() if site is None else distributions(path=[str(site)]):
        yield from _events_of(package)


def _events_of(package: "Distribution") -> "list[EntryPoint]":
    """Those of one package; none where its metadata cannot be read, which is no reason to refuse a log."""
    try:
        return [point for point in package.entry_points if point.group == GROUP]
    except (OSError, ValueError, AttributeError):
        return []
