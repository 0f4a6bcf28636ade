"""`dsh plugin add` of what lies somewhere, of what is not for this machine, and with a file in the way."""

import tarfile
from pathlib import Path

import pytest

from tests.e2e.test_plugin_command import Shop
from tests.wheel import make_wheel

BACKEND = """
import sys, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name, info = "tool-1.0-py3-none-any.whl", "tool-1.0.dist-info"
    files = {
        "tool.py": open("tool.txt").read(),
        f"{info}/METADATA": "Metadata-Version: 2.1\\nName: tool\\nVersion: 1.0\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{path},,\\n" for path in [*files, f"{info}/RECORD"]))
    return name
"""
BUILD = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def source(shop: Shop, text: str, *, is_named: bool = True) -> None:
    project = '[project]\nname = "tool"\nversion = "1.0"\n'
    shop.write("tool/pyproject.toml", BUILD + (project if is_named else ""))
    shop.write("tool/backend.py", BACKEND)
    shop.write("tool/tool.txt", text)


def code(shop: Shop) -> str:
    return (shop.folder() / "site/tool.py").read_text()


@pytest.mark.parametrize("is_named", [True, False])
def test_a_folder_of_the_same_version_is_installed_anew_and_told(shop: Shop, is_named: bool) -> None:
    source(shop, "old = 1", is_named=is_named)
    shop.add("--no-build-isolation", "./tool")
    source(shop, "new = 1", is_named=is_named)

    done = shop.add("--no-build-isolation", "./tool")

    assert code(shop) == "new = 1"
    place = (shop.work / "tool").as_uri()
    assert f"dsh: profile mine: installed tool 1.0 anew from {place}" in done.errors
    assert "nothing to change" not in done.stderr
    assert shop.manifest().count("tool @") == 1


def test_a_source_archive_of_the_same_name_is_built_anew(shop: Shop) -> None:
    for text in ("old = 1", "new = 1"):
        source(shop, text)
        with tarfile.open(shop.work / "tool-1.0.tar.gz", "w:gz") as archive:
            archive.add(shop.work / "tool", "tool-1.0")
        done = shop.add("--no-build-isolation", "./tool-1.0.tar.gz")

    assert code(shop) == "new = 1"
    assert "installed tool 1.0 anew from" in done.stderr


def test_a_package_from_a_path_is_told_when_the_index_takes_over(shop: Shop) -> None:
    shop.add(f"lone @ {make_wheel(shop.work / 'here', 'lone', '1.0').as_uri()}")

    assert "dsh: profile mine: installed lone 1.0 anew" in shop.add("lone").errors
    assert "dsh: profile mine: nothing to change" in shop.add("lone").errors


def test_a_requirement_that_is_not_for_this_machine_is_told_and_leaves_no_other_behind(shop: Shop) -> None:
    shop.add("lone", "helper")
    spec = "lone ; python_version < '3'"

    done = shop.add(spec)

    assert f"dsh: profile mine: {spec!r} is not for this Python or system: left out" in done.errors
    assert "dsh: profile mine: removed lone 1.0" in done.errors
    assert "lone" not in shop.manifest()
    assert shop.versions() == {"helper": "2.0"}
    assert shop.listed()["missing"] == []


def test_a_requirement_whose_marker_holds_is_kept_as_written(shop: Shop) -> None:
    done = shop.add("lone ; python_version > '3'")

    assert "left out" not in done.stderr
    assert "lone ; python_version > '3'" in shop.manifest()


@pytest.mark.parametrize("command", ["add", "remove", "list"])
def test_a_file_in_the_place_of_the_packages_is_refused_and_stays(shop: Shop, command: str) -> None:
    shop.add("lone")
    site = shop.folder() / "site"
    site.rename(shop.folder() / "elsewhere")
    site.write_text("mine")
    before = shop.state()

    done = shop.plugin(command, *([] if command == "list" else ["lone"]))

    assert (done.code, done.stdout) == (3, "")
    assert done.errors[0].startswith(f"dsh: {site} is not a folder")
    assert shop.state() == before
