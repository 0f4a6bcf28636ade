"""Replaces a profile's `site` folder as a whole: built beside it, then swapped in, or nothing has happened.

Whoever uses this holds the profile's lock.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from dsh.composition.package.site import Package, packages_in
from dsh.composition.package.stub import MARKER
from dsh.composition.requirement import canonical
from dsh.composition.text.user_file import flush_folder, make_folders
from dsh.errors import DshError

STAGING = ".staging"
"""Where in a profile's folder the next `site` is built."""
_BIN = ("..", "..", "bin")
"""How the record of a package names its scripts, which lie in `bin`."""


class SiteError(DshError):
    """A profile's packages cannot be changed."""


class Staging:
    """The next `site` of one profile. Holds where it is built and whether it has been swapped in."""

    def __init__(self, site: Path) -> None:
        self.site = site
        self.folder = site.with_name(STAGING)
        self.target = self.folder / f"new-{secrets.token_hex(4)}"
        """Where the package manager installs; no other does, not even one that outlived its `dsh`."""
        self.stubs = self.folder / "stubs"
        self.fresh: set[str] = set()
        """Canonical names of what the package manager has installed, known after `take_over`."""
        self.met: set[str] = set()
        """The same with those that were there already: all but requirements that are not for this machine."""
        self._old = self.folder / "old"

    def begin(self) -> None:
        """Make the empty folders; first clean up after a process that died, and give it back its `site`."""
        if self._old.exists() and not self.site.exists():
            self._old.rename(self.site)
        self._clear()
        make_folders(self.target)

    def end(self) -> None:
        """Take everything away that is not `site`."""
        self._clear()

    def _clear(self) -> None:
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def take_over(self, packages: dict[str, Package], asked: frozenset[str] | None) -> None:
        """Put what the present `site` holds in the place of its stand-ins, which are taken away.

        What lies in `site` and belongs to no package that a package manager recorded is somebody's own and
        comes along, unless the new packages bring something in its place.

        Args:
            packages: those of the present `site`.
            asked: canonical names of those that are asked for, not only needed by others (uv notes it of
                all alike); None: those that the package manager says.

        Raises:
            OSError: something cannot be read or written.
        """
        for litter in (".lock", "__pycache__"):
            _delete(self.target / litter)
        stands_for = [marker.parent for marker in self.target.glob(f"*.dist-info/{MARKER}")]
        kept = {canonical(folder.name.partition("-")[0]) for folder in stands_for}
        for folder in stands_for:
            shutil.rmtree(folder)
        self.fresh = set(packages_in(self.target))
        self.met = self.fresh | kept
        owned = {".lock", "__pycache__"}
        for key, package in packages.items():
            if package.files is not None:
                files = [_inside(name) for name in package.files]
                owned.update(parts[0] for parts in files if parts)
                if key in kept:
                    self._take(files)
            elif key in self.fresh:
                owned.add(f"{package.name}-{package.version}.dist-info")
        self._take_loose(owned)
        if asked is not None:
            for note in self.target.glob("*.dist-info/REQUESTED"):
                if canonical(note.parent.name.partition("-")[0]) not in asked:
                    note.unlink()

    def _take(self, files: list[tuple[str, ...]]) -> None:
        for parts in files:
            source, target = self.site.joinpath(*parts), self.target.joinpath(*parts)
            if not parts or not source.is_file():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                _link(source, target)

    def _take_loose(self, owned: set[str]) -> None:
        for entry in self.site.iterdir() if self.site.is_dir() else ():
            target = self.target / entry.name
            if entry.name in owned or target.exists():
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.copytree(entry, target, symlinks=True)
            else:
                shutil.copy2(entry, target, follow_symlinks=False)

    def swap(self) -> None:
        """Make the new folder the profile's `site`; without packages it has none.

        Raises:
            OSError: it cannot be; the old one is in place.
        """
        has_old = self.site.exists()
        if has_old:
            self.site.rename(self._old)
        try:
            if any(self.target.iterdir()):
                self.target.rename(self.site)
            flush_folder(self.site.parent)
        except BaseException:
            if has_old and not self.site.exists():
                self._old.rename(self.site)
            raise

    def revert(self) -> None:
        """Undo `swap`."""
        if self.site.exists():
            self.site.rename(self.folder / "refused")
        if self._old.exists():
            self._old.rename(self.site)


def _inside(name: str) -> tuple[str, ...]:
    """The place in the folder that a line of a package's record means; empty for one that lies elsewhere."""
    parts = PurePosixPath(name).parts
    if parts[:3] == _BIN:
        parts = parts[2:]
    return () if ".." in parts or name.startswith("/") else parts


def _link(source: Path, target: Path) -> None:
    """The same file in another folder; a copy where the file system has no links."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def staged(site: Path) -> Iterator[Staging]:
    """A staging area for the length of the block.

    Raises:
        SiteError: the profile's folder cannot be written.
    """
    staging = Staging(site)
    try:
        try:
            staging.begin()
        except OSError as error:
            raise SiteError(f"failed to prepare {staging.folder}: {error.strerror or error}") from None
        yield staging
    finally:
        with contextlib.suppress(OSError):
            staging.end()
