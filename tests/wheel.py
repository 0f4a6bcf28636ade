"""Makes packages for tests: wheels in a folder that serves a package manager as its index."""

import zipfile
from collections.abc import Sequence
from pathlib import Path


def make_wheel(
    folder: Path, name: str, version: str, *, needs: Sequence[str] = (), points: str = "", **files: str
) -> Path:
    """A pure wheel. `files` by path below the package's module, a double underscore for the dot."""
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    texts = {
        f"{module}/__init__.py": f"VERSION = {version!r}\n",
        **{f"{module}/{file.replace('__', '.')}": text for file, text in files.items()},
        f"{info}/METADATA": "\n".join([*head, *(f"Requires-Dist: {one}" for one in needs), ""]),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": points,
    }
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in texts.items():
            wheel.writestr(file, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in (*texts, f"{info}/RECORD")))
    return path
