"""Bundles that are not shipped: those of installed packages, else those in a profile's own `site` folder.

A package names its bundles by entry points of the group `dsh.bundles`: `name = package` for the file
`dsh.patch.yml` in the package's folder, `name = package:other.yml` for another file there. Nothing of a
package is run to read its bundle. Loaded for names that are not shipped.
"""

import importlib.util
from importlib.metadata import EntryPoint, distributions, entry_points
from pathlib import Path

from dsh.errors import CompositionError

GROUP = "dsh.bundles"
DEFAULT_FILE = "dsh.patch.yml"


def installed_bundle(name: str, site: Path) -> Path | None:
    """The patch file of a bundle of this name; None where no package brings one.

    Raises:
        CompositionError: the package that names it holds no such file.
    """
    for point in entry_points(group=GROUP, name=name):
        return _file_of(point, _installed_folder(point.module))
    return bundle_in(name, site)


def bundle_in(name: str, site: Path) -> Path | None:
    """The patch file of a bundle that a package in this folder brings; None where none does.

    Raises:
        CompositionError: the package that names it holds no such file.
    """
    for point in _points_in(site):
        if point.name == name:
            return _file_of(point, site.joinpath(*point.module.split(".")))
    return None


def installed_names(site: Path | None = None) -> list[str]:
    """The names of all such bundles, sorted; without a folder those of the installation alone."""
    own = [] if site is None else _points_in(site)
    return sorted({point.name for point in (*entry_points(group=GROUP), *own)})


def _points_in(site: Path) -> list[EntryPoint]:
    found = [point for package in distributions(path=[str(site)]) for point in package.entry_points]
    return [point for point in found if point.group == GROUP]


def _installed_folder(package: str) -> Path | None:
    """Where a package lies, without importing it; the packages around it are."""
    try:
        spec = importlib.util.find_spec(package)
    except ImportError:
        return None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0]) if places else None


def _file_of(point: EntryPoint, folder: Path | None) -> Path:
    file = folder / (point.attr or DEFAULT_FILE) if folder is not None else None
    if file is None or not file.is_file():
        raise CompositionError(
            f"bundle {point.name!r}: the package {point.module} holds no file {point.attr or DEFAULT_FILE}"
        )
    return file
