"""Mounts rows of YAML text on a kernel of the test's own."""

import contextlib
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dsh.composition.compose import Composition
from dsh.composition.mount.loader import Facts, Loader
from dsh.composition.patch import apply_layers
from dsh.kernel import Context
from tests.composition.layers import layer, write


def composition(folder: Path, *texts: str) -> Composition:
    layers = [layer(str(folder / f"layer{n}.yml"), text) for n, text in enumerate(texts)]
    rows, warnings = apply_layers(layers)
    return Composition("test", rows, layers, warnings)


class Tree:
    """A root context with a loader, disposed at the end."""

    def __init__(self, folder: Path, env: dict[str, str] | None = None) -> None:
        self.root = Context()
        self.loader = Loader(self.root, Facts(folder / "home", "test", "/ws", env or {}))
        self.folder = folder

    async def __aenter__(self) -> "Tree":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.root.dispose()

    async def load(self, *texts: str) -> list[str]:
        await self.loader.load(composition(self.folder, *texts))
        return [str(report) for report in self.loader.audit()]


@contextlib.contextmanager
def plugin_files(folder: Path, code: Mapping[str, str]) -> Iterator[None]:
    """Plugins as files of that folder, by name; what was imported of them is forgotten afterwards."""
    before = set(sys.modules)
    for name, text in code.items():
        write(folder / f"{name}.py", textwrap.dedent(text))
    yield
    for name in set(sys.modules) - before:
        if name.startswith("_dsh_file_"):
            del sys.modules[name]


def rows(*rows: dict[str, Any]) -> str:
    return json.dumps([{"insert": list(rows)}])


def row(name: str, entry_id: str = "", **fields: Any) -> dict[str, Any]:
    return {"id": entry_id or name, "name": f"./{name}.py", **fields}


def group(entry_id: str, *children: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": entry_id, "name": "cordis:group", "group": True, "config": list(children), **fields}
