"""Stands for packages that are there already, so that a package manager need not fetch or change them.

A package manager that installs into a folder knows nothing of what else will be on the import path. So each
package of the installation, and each that stays in the profile's folder, is offered as a wheel that holds its
name, version and requirements only, and pinned to it: a plugin that needs `dsh` or `httpx` gets the one that
will be imported, a conflict with them is found before anything changes, and no network is asked about them.
"""

import zipfile
from collections.abc import Iterable
from pathlib import Path

from dsh.composition.package.site import Package

MARKER = "dsh-stands-for-installed"
"""The file in a stand-in's metadata that tells it from the package itself."""
CONSTRAINTS = "constraints.txt"


def write_stubs(folder: Path, installation: Iterable[Package], kept: Iterable[Package]) -> Path:
    """Write the stand-ins into a new folder; answers the file of constraints that pins to them.

    Args:
        installation: their own requirements are met by the installation, but not those of their extras.
        kept: packages of the profile that stay as they are; their requirements count.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir()
    lines: dict[str, str] = {}
    for package in installation:
        of_extras = [line for line in package.needs if _is_of_extra(line)]
        lines[package.key] = _stub(folder, package, of_extras)
    for package in kept:
        if package.key not in lines:
            lines[package.key] = _stub(folder, package, package.needs)
    path = folder / CONSTRAINTS
    path.write_text("".join(lines.values()), "utf-8")
    return path


def _is_of_extra(line: str) -> bool:
    """Whether a line of metadata names an extra or what only an extra needs."""
    _, semicolon, marker = line.partition(";")
    return line.startswith("Provides-Extra:") or (bool(semicolon) and "extra" in marker)


def _stub(folder: Path, package: Package, needs: Iterable[str]) -> str:
    """Write one stand-in; answers its constraint."""
    spelling = package.key.replace("-", "_")
    info = f"{spelling}-{package.version}.dist-info"
    about = [f"Name: {package.name}", f"Version: {package.version}", *needs]
    files = {
        f"{info}/METADATA": "\n".join(["Metadata-Version: 2.1", *about, ""]),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: dsh\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/{MARKER}": "",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    path = folder / f"{spelling}-{package.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{info}/RECORD", record)
    return f"{package.key} @ {path.absolute().as_uri()}\n"
