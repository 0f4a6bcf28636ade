"""The version of a plugin, found without running anything of it."""

import hashlib
import sys
from pathlib import Path

import pytest

from dsh import __version__
from dsh.composition.lock.plugin_version import NOT_FOUND, plugin_version
from tests.composition.layers import write

OURS = f"dsh {__version__}"


def package(
    site: Path, name: str, version: str, *, points: str = "", files: dict[str, str] | None = None
) -> None:
    """An installed package, as an installer leaves it."""
    info = site / f"{name}-{version}.dist-info"
    write(info / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if points:
        write(info / "entry_points.txt", f"[dsh.plugins]\n{points}\n")
    for path, text in (files or {}).items():
        write(site / path, text)
    write(info / "RECORD", "".join(f"{path},,\n" for path in files or {}))


@pytest.mark.parametrize("name", ["tool-bash", "dsh-tool-bash", "@deepseek-ai/dsh-tool-bash", "subprocess"])
def test_a_built_in_plugin_has_the_version_of_dsh_in_every_spelling(tmp_path: Path, name: str) -> None:
    assert plugin_version(name, tmp_path, tmp_path / "site") == OURS


@pytest.mark.parametrize("name", ["no-such-plugin", "nope.module", "nope:attr", "a b", "", "--init--", "é"])
def test_what_is_nowhere_is_not_found(tmp_path: Path, name: str) -> None:
    assert plugin_version(name, tmp_path, tmp_path / "site") == NOT_FOUND


def test_a_file_has_the_hash_of_its_text_wherever_it_lies(tmp_path: Path) -> None:
    file = write(tmp_path / "sub" / "mine.py", "raise AssertionError('never run')\n")
    wanted = f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"

    for name in ("./sub/mine.py", str(file), f"file:{file}"):
        assert plugin_version(name, tmp_path, tmp_path / "site") == wanted
    assert plugin_version("./mine.py", tmp_path / "sub", tmp_path / "site") == wanted
    assert plugin_version("./mine.py", tmp_path, tmp_path / "site") == NOT_FOUND


def test_an_entry_point_has_the_version_of_its_package(tmp_path: Path) -> None:
    package(tmp_path / "site", "acme", "2.1", points="acme-tool = acme.tool\ntool-bash = acme.tool")

    assert plugin_version("acme-tool", tmp_path, tmp_path / "site") == "acme 2.1"
    assert plugin_version("tool-bash", tmp_path, tmp_path / "site") == OURS


def test_a_module_of_a_package_has_its_version_and_is_not_imported(tmp_path: Path) -> None:
    site = tmp_path / "site"
    package(site, "Acme-Things", "3", files={"things/__init__.py": "raise AssertionError", "single.py": "x"})

    for name in ("things.tool", "things.tool:plugin", "things:plugin", "single:plugin"):
        assert plugin_version(name, tmp_path, site) == "Acme-Things 3"
    assert "things" not in sys.modules


def test_a_module_that_no_package_claims_has_the_hash_of_its_sources(tmp_path: Path) -> None:
    site = tmp_path / "site"
    inner = write(site / "loose" / "inner.py", "a = 1\n")
    write(site / "loose" / "__init__.py", "")
    before = plugin_version("loose.inner:p", tmp_path, site)

    assert before.startswith("sha256:")
    inner.write_text("a = 2\n")
    assert plugin_version("loose.inner:p", tmp_path, site) != before
    inner.write_text("a = 1\n")
    assert plugin_version("loose.other", tmp_path, site) == before
    inner.rename(inner.with_name("renamed.py"))
    assert plugin_version("loose.inner:p", tmp_path, site) != before


def test_a_package_in_the_site_folder_does_not_shadow_an_installed_one(tmp_path: Path) -> None:
    site = tmp_path / "site"
    write(site / "msgspec" / "__init__.py", "")

    assert plugin_version("msgspec:Struct", tmp_path, site).startswith("msgspec ")
