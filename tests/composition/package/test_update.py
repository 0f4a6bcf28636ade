"""A profile's `site` folder is replaced as a whole, or it is as it was."""

import zipfile
from pathlib import Path

import pytest

from dsh.composition.package.site import packages_in
from dsh.composition.package.stub import write_stubs
from dsh.composition.package.update import SiteError, staged
from tests.composition.layers import write


def installed(folder: Path, name: str, version: str = "1.0", *, requested: bool = True) -> None:
    """A package as a package manager leaves it."""
    info = folder / f"{name}-{version}.dist-info"
    files = [
        f"{name}/__init__.py",
        f"../../bin/{name}",
        f"{name}-{version}.dist-info/METADATA",
        "../../../etc/x",
    ]
    write(info / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    write(folder / name / "__init__.py", version)
    write(folder / "bin" / name, "#!")
    if requested:
        write(info / "REQUESTED", "")
        files.append(f"{name}-{version}.dist-info/REQUESTED")
    write(info / "RECORD", "".join(f"{file},,\n" for file in (*files, f"{name}-{version}.dist-info/RECORD")))


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def unpack_stub(target: Path, name: str, version: str = "1.0") -> None:
    """What a package manager makes of a stand-in."""
    info = target / f"{name}-{version}.dist-info"
    write(info / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    write(info / "dsh-stands-for-installed", "")


def test_what_is_kept_comes_with_its_scripts_and_nothing_from_outside(tmp_path: Path) -> None:
    site = tmp_path / "site"
    installed(site, "kept")
    installed(site, "gone")
    before = packages_in(site)
    with staged(site) as staging:
        unpack_stub(staging.target, "kept")
        unpack_stub(staging.target, "msgspec", "0.1")
        installed(staging.target, "fresh", requested=False)
        staging.take_over(before, frozenset({"kept"}))
        assert staging.fresh == {"fresh"}
        staging.swap()
    assert {key: one.is_requested for key, one in packages_in(site).items()} == {"fresh": False, "kept": True}
    assert [name for name in tree(site) if "info" not in name] == [
        "bin/fresh",
        "bin/kept",
        "fresh/__init__.py",
        "kept/__init__.py",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_who_is_asked_for_follows_the_profile(tmp_path: Path) -> None:
    site = tmp_path / "site"
    installed(site, "kept")
    with staged(site) as staging:
        unpack_stub(staging.target, "kept")
        staging.take_over(packages_in(site), frozenset())
        staging.swap()
    assert packages_in(site)["kept"].is_requested is False


@pytest.mark.parametrize("has_old", [True, False])
def test_a_swap_can_be_undone(tmp_path: Path, has_old: bool) -> None:
    site = tmp_path / "site"
    if has_old:
        installed(site, "old")
    before = tree(tmp_path)
    with staged(site) as staging:
        installed(staging.target, "new")
        staging.swap()
        assert list(packages_in(site)) == ["new"]
        staging.revert()
    assert tree(tmp_path) == before


def test_a_block_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    site = tmp_path / "site"
    installed(site, "old")
    before = tree(tmp_path)
    with pytest.raises(KeyError), staged(site) as staging:
        installed(staging.target, "new")
        raise KeyError
    assert tree(tmp_path) == before


def test_a_profile_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    with (
        pytest.raises(SiteError, match=r"failed to prepare .*/file/\.staging: "),
        staged(tmp_path / "file/site"),
    ):
        raise AssertionError("not reached")


def test_stand_ins_carry_the_requirements_that_count(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for name in ("kept", "shipped"):
        installed(site, name)
        write(
            site / f"{name}-1.0.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nProvides-Extra: more\n"
            "Requires-Dist: extra-always>1\nRequires-Dist: some; extra == 'more'\n",
        )
    there = packages_in(site)
    constraints = write_stubs(tmp_path / "stubs", [there["shipped"]], there.values())
    assert constraints.read_text().splitlines() == [
        f"{name} @ {(tmp_path / 'stubs').as_uri()}/{name}-1.0-py3-none-any.whl"
        for name in ("shipped", "kept")
    ]
    needs = {}
    for name in ("shipped", "kept"):
        with zipfile.ZipFile(tmp_path / f"stubs/{name}-1.0-py3-none-any.whl") as wheel:
            needs[name] = "extra-always>1" in wheel.read(f"{name}-1.0.dist-info/METADATA").decode()
            assert "extra == 'more'" in wheel.read(f"{name}-1.0.dist-info/METADATA").decode()
    assert needs == {"shipped": False, "kept": True}
