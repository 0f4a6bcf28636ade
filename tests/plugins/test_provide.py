"""What the rows declare, services and sections of the settings, is what they provide and read in a run."""

import json
from pathlib import Path
from types import ModuleType

import pytest

from dsh.composition.explain.waiting import built_in_providers
from dsh.composition.explain.wiring import LAUNCHER_SERVICES
from dsh.composition.mount.resolve import find_plugin
from dsh.testing.workspace import Workspace

SPY = """
import json
inject = ["boot", "loader", "settings"]
provide = ()

def apply(ctx):
    ctx.spawn(report(ctx), "spy")

async def report(ctx):
    await ctx.boot.ready()
    root = [i.name for i in ctx.kernel.impls.values() if i.fiber.parent is None]
    found = {"<launcher>": [sorted(root)] * 2}
    for entry in ctx.loader.entries:
        if entry.fiber is not None and entry.fiber.runtime.provides is not None:
            names = [i.name for i in ctx.kernel.impls.values() if inside(i.fiber, entry.fiber)]
            found[entry.id] = [sorted(entry.fiber.runtime.provides), sorted(names)]
    entries = [entry for entry in ctx.loader.entries if entry.fiber is not None]
    named = {n for entry in entries for n in getattr(entry.plugin, "sections", ())}
    found["sections"] = [sorted(named), sorted({one.ns for one in ctx.settings.describe()})]
    with open("spy.json", "w") as file:
        json.dump(found, file)

def inside(fiber, outer):
    while fiber is not outer and fiber.parent is not None:
        fiber = fiber.parent.fiber
    return fiber is outer
"""
SWAPPED = """
- insert: [{id: bash-local, name: bash-local}, {id: fs-local, name: fs-local}]
- {id: bash-sandbox, disabled: true}
- {id: fs-sandbox, disabled: true}
"""


def modules() -> list[str]:
    folder = Path(__file__).resolve().parents[2] / "dsh" / "plugins"
    files = [*folder.glob("[!_]*.py"), *(path.parent for path in folder.glob("*/__init__.py"))]
    return sorted(path.stem.replace("_", "-") for path in files)


@pytest.mark.parametrize("name", modules())
def test_every_row_declares_what_it_provides(name: str) -> None:
    plugin = find_plugin(name, Path())

    assert isinstance(plugin, ModuleType)
    assert hasattr(plugin, "provide")


@pytest.mark.parametrize("patch", ["", SWAPPED])
def test_what_is_declared_is_provided_and_read(tmp_path: Path, patch: str) -> None:
    space = Workspace(tmp_path)
    space.write("spy.py", SPY)
    space.write("spy.yml", f"- insert: [{{id: spy, name: ./spy.py}}]{patch}")

    done = space.run("--profile", "demo", "--patch", "spy.yml", "hello")

    assert done.code == 0, done.stderr
    found = json.loads((space.work / "spy.json").read_text())
    assert {"llm", "spy", "tools"} < found.keys()
    assert found["sections"][0]
    assert found["<launcher>"][0] == list(LAUNCHER_SERVICES)
    assert {row: declared for row, (declared, _) in found.items()} == {
        row: provided for row, (_, provided) in found.items()
    }


def test_the_plugins_of_a_service_are_found_by_their_declarations() -> None:
    assert built_in_providers("fs") == ["fs-local", "fs-sandbox"]
    assert built_in_providers("nothing-provides-this") == []
