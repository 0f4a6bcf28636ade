"""Which version of a plugin a row would load, found without importing it.

The same places are looked at in the same order as in `resolve.py`. What a package brings has the package's
version; a file, and a module that no package claims, has the hash of its text. What built-in plugins do not
need is loaded late: every session is told its composition.
"""

import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from dsh import __version__
from dsh.composition.plugin_name import is_path, normalise

if TYPE_CHECKING:
    from importlib.metadata import Distribution

GROUP = "dsh.plugins"
NOT_FOUND = "not found"


def plugin_version(name: str, folder: Path, site: Path) -> str:
    """`<package> <version>`, `sha256:<hash>` of a file's or module's text, or `not found`.

    Args:
        folder: that of the file the row is written in.
        site: where the packages are that only the profile has; they come last.
    """
    if is_path(name):
        from urllib.parse import unquote, urlsplit

        text = unquote(urlsplit(name).path) if name.startswith("file:") else name
        return _hash_of([folder / text], folder)
    module, colon, _ = name.partition(":")
    if colon:
        return _module_version(module, str(site))
    if is_built_in(name):
        return f"dsh {__version__}"
    return _entry_point_version(name, normalise(name), str(site)) or _module_version(name, str(site))


def is_built_in(name: str) -> bool:
    """Whether a row of this name loads a plugin of dsh, whatever packages bring."""
    module = normalise(name).replace("-", "_")
    return not module.startswith("_") and not _BUILT_IN.isdisjoint((module, f"{module}.py"))


_BUILT_IN = frozenset(path.name for path in (Path(__file__).parents[2] / "plugins").iterdir())
"""Modules and packages there; a built-in plugin is never looked for elsewhere."""


@cache
def _installed(site: str) -> "tuple[Distribution, ...]":
    from importlib.metadata import distributions

    return tuple(distributions(path=[*sys.path, site]))


def _entry_point_version(name: str, spelling: str, site: str) -> str | None:
    for wanted in (name, spelling):
        for package in _installed(site):
            if any(point.group == GROUP and point.name == wanted for point in package.entry_points):
                return f"{package.name} {package.version}"
    return None


def _module_version(name: str, site: str) -> str:
    top = name.partition(".")[0]
    try:
        spec = PathFinder.find_spec(top, [*sys.path, site]) if top.isidentifier() else None
    except (ImportError, OSError, ValueError):
        spec = None
    if spec is None:
        return NOT_FOUND
    for package in _installed(site):
        claimed = (package.read_text("top_level.txt") or "").split()
        files = package.files or []
        if top in claimed or any(file.parts[0] in (top, f"{top}.py") for file in files):
            return f"{package.name} {package.version}"
    return _hash_of(*_sources(spec))


def _sources(spec: ModuleSpec) -> tuple[list[Path], Path]:
    """The source files of a module or of a whole package, and the folder they are named from."""
    if spec.submodule_search_locations:
        folder = Path(next(iter(spec.submodule_search_locations)))
        return sorted(_python_files(folder)), folder
    file = Path(spec.origin or "")
    return [file], file.parent


def _python_files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names if name.endswith(".py"))


def _hash_of(files: list[Path], folder: Path) -> str:
    """One hash over texts and, where there are several, their names below the folder."""
    import hashlib

    found = hashlib.sha256()
    try:
        for file in files:
            if len(files) > 1:
                found.update(f"{file.relative_to(folder).as_posix()}\0".encode())
            found.update(file.read_bytes())
    except (OSError, ValueError):
        return NOT_FOUND
    return f"sha256:{found.hexdigest()}"
