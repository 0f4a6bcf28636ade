"""Bundles and plugins that packages bring: found where they are installed, the installation's first."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsh.composition.compose import compose
from dsh.composition.profile import site_folder
from dsh.errors import CompositionError
from dsh.testing.workspace import Workspace
from tests.composition.layers import write

ROW = "- insert: [{{id: {0}, name: {0}, disabled: true}}]\n"


def package(folder: Path, name: str, points: str, **files: str) -> Path:
    """An installed distribution with one package; `files` by name, a double underscore for the dot."""
    info = folder / f"{name}-1.0.dist-info"
    write(info / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    write(info / "entry_points.txt", points)
    write(folder / name / "__init__.py", "raise RuntimeError('nothing runs to read a bundle')\n")
    for file, text in files.items():
        write(folder / name / file.replace("__", "."), text)
    return folder / name


@pytest.fixture
def profile(tmp_path: Path) -> Iterator[Path]:
    """A home whose profile `mine` names the bundle `extra`."""
    write(tmp_path / "home/profiles/mine/profile.yml", "bundles: [base, extra]\n")
    before = list(sys.path)
    yield tmp_path / "home"
    sys.path[:] = before


def test_a_bundle_of_the_profile_s_own_site_folder(profile: Path) -> None:
    package(
        site_folder(profile, "mine"),
        "theirs",
        "[dsh.bundles]\nextra = theirs\n",
        **{"dsh.patch__yml": ROW.format("added")},
    )
    made = compose("mine", [], profile)
    assert (made.rows[-1].id, made.rows[-1].origin) == ("added", "extra")
    assert str(site_folder(profile, "mine")) not in sys.path


def test_the_installation_s_bundle_wins_and_may_name_its_file(profile: Path, tmp_path: Path) -> None:
    package(
        site_folder(profile, "mine"),
        "theirs",
        "[dsh.bundles]\nextra = theirs\n",
        **{"dsh.patch__yml": ROW.format("local")},
    )
    package(
        tmp_path / "lib",
        "installed",
        "[dsh.bundles]\nextra = installed:more.yml\n",
        more__yml=ROW.format("lib"),
    )
    sys.path.append(str(tmp_path / "lib"))
    assert compose("mine", [], profile).rows[-1].id == "lib"


def test_a_shipped_bundle_is_never_shadowed(profile: Path) -> None:
    package(
        site_folder(profile, "mine"),
        "theirs",
        "[dsh.bundles]\nbase = theirs\nextra = theirs\n",
        **{"dsh.patch__yml": ROW.format("added")},
    )
    made = compose("mine", [], profile)
    assert [row.id for row in made.rows if row.origin == "extra"] == ["added"]
    assert made.rows[0].origin == "base" and made.rows[0].id != "added"


@pytest.mark.parametrize("point", ["extra = theirs", "extra = theirs:no.yml", "extra = nowhere"])
def test_a_bundle_without_its_file_names_the_package(profile: Path, point: str) -> None:
    package(site_folder(profile, "mine"), "theirs", f"[dsh.bundles]\n{point}\n")
    manifest = profile / "profiles/mine/profile.yml"
    with pytest.raises(CompositionError) as caught:
        compose("mine", [], profile)
    assert str(caught.value).startswith(f"{manifest}:1:")
    assert "bundle 'extra': the package " in caught.value.message
    assert " holds no file " in caught.value.message
    assert caught.value.hint == (
        f"install the package again: dsh plugin add --profile mine PKG; or take 'extra' out of {manifest}:1"
    )


def test_bundles_of_packages_are_among_the_known_ones(profile: Path) -> None:
    package(site_folder(profile, "mine"), "theirs", "[dsh.bundles]\nextras = theirs\n")
    with pytest.raises(CompositionError) as caught:
        compose("mine", [], profile)
    assert caught.value.hint == (
        "did you mean 'extras'? known bundles: base, demo, headless, replay, extras; "
        "install the package that brings it: dsh plugin add --profile mine PKG; "
        f"or take 'extra' out of {profile}/profiles/mine/profile.yml:1"
    )


def test_plugins_in_the_site_folder_are_found_after_the_installation_s(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    site = site_folder(space.home, "mine")
    write(space.home / "profiles/mine/profile.yml", "bundles: [base, headless, demo, extra]\n")
    folder = package(
        site,
        "theirs",
        "[dsh.bundles]\nextra = theirs\n[dsh.plugins]\ntheir-row = theirs.row\n",
        **{"dsh.patch__yml": "- insert: [{id: r, name: their-row}]\n"},
    )
    write(folder / "__init__.py", "")
    write(folder / "row.py", "import sys\ndef apply(ctx): print('theirs runs', file=sys.stderr)\n")
    write(site / "msgspec.py", "raise RuntimeError('shadowed')\n")
    done = space.run("--profile", "mine", "hello")
    assert (done.code, done.stdout) == (0, "offline demo model: hello\n")
    assert "theirs runs" in done.errors
