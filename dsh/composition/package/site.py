"""A profile's own packages: what lies in its `site` folder, told from their metadata. Nothing is imported."""

import importlib
import json
import os
import shlex
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple

from dsh.composition.bundle import GROUP as BUNDLES
from dsh.composition.requirement import canonical
from dsh.errors import CompositionError

PLUGINS = "dsh.plugins"
"""The entry-point group of plugins."""


class Package(NamedTuple):
    """One installed distribution."""

    name: str
    """As its author writes it."""
    version: str
    is_requested: bool
    """Somebody asked for it by name; otherwise another package needs it."""
    bundles: tuple[str, ...]
    plugins: tuple[str, ...]
    needs: tuple[str, ...]
    """Its requirements and extras: the lines of its metadata that say so."""
    source: str | None
    """The requirement that gets it again, where it came from a path or URL."""
    files: tuple[str, ...] | None
    """Relative to the folder; what lies outside starts with `../`. None: nobody wrote them down."""

    @property
    def key(self) -> str:
        """Its canonical name."""
        return canonical(self.name)


def check_folder(site: Path) -> None:
    """Raise `CompositionError` where something that is no folder stands in the place of a `site`."""
    if os.path.lexists(site) and not site.is_dir():
        raise CompositionError(
            f"{site} is not a folder; dsh plugin keeps the profile's packages in one of that name",
            hint=f"move it away: mv {shlex.quote(str(site))} {shlex.quote(str(site))}.old",
        )


def packages_in(folder: Path) -> dict[str, Package]:
    """The packages in a folder by canonical name; none where there is no such folder."""
    importlib.invalidate_caches()  # a folder that has just changed may still have its old time
    return _packages(distributions(path=[str(folder)]))


def installation() -> dict[str, Package]:
    """The packages of the environment that dsh runs in, which come first on the import path."""
    return _packages(distributions())


def _packages(found: Iterable[Distribution]) -> dict[str, Package]:
    made: dict[str, Package] = {}
    for one in found:
        package = _package(one)
        if package is not None:
            made.setdefault(package.key, package)
    return dict(sorted(made.items()))


def _package(found: Distribution) -> Package | None:
    name, version = found.metadata["Name"], found.metadata["Version"]
    if not name or not version:  # a torn folder of metadata
        return None
    points = list(found.entry_points)
    needs = [f"Requires-Dist: {line}" for line in found.metadata.get_all("Requires-Dist") or ()]
    extras = [f"Provides-Extra: {line}" for line in found.metadata.get_all("Provides-Extra") or ()]
    files = found.files
    return Package(
        name,
        version,
        found.read_text("REQUESTED") is not None,
        tuple(sorted(point.name for point in points if point.group == BUNDLES)),
        tuple(sorted(point.name for point in points if point.group == PLUGINS)),
        tuple(needs + extras),
        _source(name, found.read_text("direct_url.json")),
        tuple(str(file) for file in files) if files is not None else None,
    )


def _source(name: str, text: str | None) -> str | None:
    """The requirement behind a `direct_url.json` (PEP 610)."""
    if text is None:
        return None
    try:
        record = json.loads(text)
        url, vcs = str(record["url"]), record.get("vcs_info")
        if vcs is not None:
            revision = vcs.get("requested_revision") or vcs["commit_id"]
            url = f"{vcs['vcs']}+{url}@{revision}"
        if record.get("subdirectory"):
            url += f"#subdirectory={record['subdirectory']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return f"{name} @ {url}"
