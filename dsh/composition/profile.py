"""Profiles and bundles: which files make up a profile, and reading them.

Shipped ones lie in the wheel under `dsh/_shipped/`, in a checkout beside the package. A shipped profile
needs no folder in the home; nothing is ever created by reading.
"""

import os
import sys
from pathlib import Path
from typing import NamedTuple

from dsh.composition.grammar import closest, read_patches
from dsh.composition.patch import Layer, LayerKind, Warned
from dsh.composition.row import RowError
from dsh.composition.text.yaml import read_yaml
from dsh.composition.value import Map, Mark, Seq, type_name
from dsh.errors import CompositionError

PROFILE_FILE = "profile.yml"
PATCH_FILE = "dsh.patch.yml"
_FOREIGN = {"package.json": PROFILE_FILE, "cordis.patch.yml": PATCH_FILE}


class Profile(NamedTuple):
    """Which bundles a profile names."""

    name: str
    bundles: list[str]
    requires: list[str]
    """Pip requirements of its own plugins."""
    places: dict[str, Mark]
    """Where each bundle's name is written."""


def shipped(*segments: str) -> Path:
    """A path among the shipped files (`bundles/base.yml`, `profiles/demo.yml`)."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "_shipped"
    return (inside if inside.is_dir() else package.parent).joinpath(*segments)


def shipped_names(kind: str) -> list[str]:
    """The names of all shipped `bundles` or `profiles`, sorted."""
    return sorted(path.stem for path in shipped(kind).glob("*.yml"))


def profile_folder(home: Path, name: str) -> Path:
    """Where a profile's own files are, if it has any."""
    return home / "profiles" / name


def site_folder(home: Path, name: str) -> Path:
    """Where the packages are that only this profile has."""
    return profile_folder(home, name) / "site"


def open_site(home: Path, name: str) -> None:
    """Let Python import the packages that only this profile has, after everything else."""
    site = site_folder(home, name)
    if site.is_dir() and str(site) not in sys.path:
        sys.path.append(str(site))


def known_profiles(home: Path) -> list[str]:
    """Every profile that can be started: the shipped ones and those with a `profile.yml`."""
    own = {path.parent.name for path in (home / "profiles").glob(f"*/{PROFILE_FILE}")}
    return sorted(own | set(shipped_names("profiles")))


def find_profile(name: str, home: Path) -> Profile:
    """Read a profile's manifest: its own, else the shipped one of that name.

    A manifest of the user's without `bundles` means the shipped list of that name, or none.

    Raises:
        CompositionError: no such name, or the manifest is wrong (with its place).
    """
    check_profile_name(name)
    in_box = shipped("profiles", f"{name}.yml")
    base = read_profile(in_box, name, []) if _is_file(in_box) else None
    own = profile_folder(home, name) / PROFILE_FILE
    if os.path.lexists(own):
        return read_profile(own, name, base.bundles if base else [])
    if base is None:
        hint = _among(name, "profiles", known_profiles(home))
        raise CompositionError(f"profile {name!r} does not exist", hint=hint)
    return base


def _is_file(path: Path) -> bool:
    """False also for a name that is too long or otherwise impossible, where pathlib raises."""
    return os.path.isfile(path)  # noqa: PTH113


def _among(name: str, kind: str, known: list[str]) -> str:
    """The hint for a name that nobody knows."""
    close = closest(name, known)
    meant = f"did you mean {close[0]!r}? " if close else ""
    return f"{meant}known {kind}: {', '.join(known)}"


def read_profile(path: Path, name: str, default_bundles: list[str]) -> Profile:
    """The manifest in a file.

    Raises:
        CompositionError: unknown key, wrong type, duplicate bundle.
    """
    document = read_yaml(path)
    start = Mark(str(path), 1, 1)
    if document is None:
        return Profile(name, default_bundles, [], {})
    if not isinstance(document, Map):
        raise RowError(f"a profile must be a mapping, found {type_name(document)}", start)
    for key in document:
        if key not in ("bundles", "requires"):
            known = "it holds bundles and requires"
            raise RowError(f"unknown key {key!r} in a profile", document.key_at(key), hint=known)
    requires = list(_names(document, "requires"))
    if document.get("bundles") is None:
        return Profile(name, default_bundles, requires, {})
    places = _names(document, "bundles")
    return Profile(name, list(places), requires, places)


def _names(document: Map, key: str) -> dict[str, Mark]:
    """The names in a list, with the place of each."""
    value = document.get(key)
    if value is None:
        return {}
    if not isinstance(value, Seq):
        raise RowError(f"{key} must be a list of names, found {type_name(value)}", document.value_at(key))
    seen: dict[str, Mark] = {}
    for n, item in enumerate(value):
        if not isinstance(item, str) or not item.strip():
            found = "an empty name" if isinstance(item, str) else f"{type_name(item)}, not a name"
            raise RowError(f"{key} holds {found}", value.item_at(n))
        if item.startswith("-"):
            hint = "options are given to dsh plugin add" if key == "requires" else ""
            raise RowError(f"{key} holds the option {item!r}, not a name", value.item_at(n), hint=hint)
        if item in seen and key == "bundles":
            raise RowError(f"{item!r} stands twice in {key}", value.item_at(n))
        seen[item] = value.item_at(n)
    return seen


def check_profile_name(name: str) -> None:
    """Refuse what cannot be the name of a folder of its own.

    Raises:
        CompositionError: the name is empty, holds a slash, or is one of `.`, `..`, `node_modules`.
    """
    if not name or "/" in name or "\\" in name or "\0" in name or name in (".", "..", "node_modules"):
        raise CompositionError(
            f'invalid profile name "{name}"', hint="it is the name of one folder, without slashes"
        )


def bundle_file(name: str, profile: Profile, home: Path) -> Path:
    """The patch file of a bundle: a shipped one, else an installed package's, else one of the profile's own.

    Raises:
        CompositionError: nobody brings a bundle of this name, or the package that names it lacks the file.
    """
    found = shipped("bundles", f"{name}.yml")
    if "/" not in name and "\\" not in name and _is_file(found):
        return found
    from dsh.composition.bundle import installed_bundle, installed_names
    from dsh.composition.requirement import missing

    site = site_folder(home, profile.name)
    add = f"dsh plugin add --profile {profile.name}"
    try:
        if (installed := installed_bundle(name, site)) is not None:
            return installed
        problem = f"bundle {name!r} does not exist"
        if absent := missing(profile.requires, site):
            hint = f"{add} installs what is missing: {', '.join(absent)}"
        else:
            known = _among(name, "bundles", [*shipped_names("bundles"), *installed_names(site)])
            hint = f"{known}; install the package that brings it: {add} PKG"
    except CompositionError as error:
        problem, hint = error.message, f"install the package again: {add} PKG"
    if (place := profile.places.get(name)) is None:
        raise CompositionError(problem, hint=hint)
    raise RowError(problem, place, hint=f"{hint}; or take {name!r} out of {place.file}:{place.line}")


def read_layer(
    path: Path, label: str, warnings: list[Warned], kind: LayerKind, *, missing_ok: bool = False
) -> Layer:
    """The patches of one file as a layer.

    Raises:
        CompositionError: the file cannot be read or breaks the grammar; names file, line and column.
    """
    document = read_yaml(path, missing_ok=missing_ok)
    patches = read_patches(document, str(path), lambda text: warnings.append(Warned(label, text)))
    return Layer(label, patches, kind, path)


def user_files(name: str, home: Path) -> list[tuple[LayerKind, Path]]:
    """The patch files of the user that may be edited while a profile runs, low to high."""
    return [("profile", profile_folder(home, name) / PATCH_FILE), ("home", home / PATCH_FILE)]


def read_layers(
    profile: Profile, patches: list[Path], home: Path, *, default_only: bool = False
) -> tuple[list[Layer], list[Warned]]:
    """All layers of a profile that come from files, low to high.

    Bundles in the order of the list, the profile's patch, the home's patch, each `--patch`. A file of the
    profile or home that is absent is no layer, nor is one that holds nothing but comments.
    """
    warnings: list[Warned] = []
    layers = [
        read_layer(bundle_file(name, profile, home), name, warnings, "bundle") for name in profile.bundles
    ]
    if not default_only:
        folder = profile_folder(home, profile.name)
        for kind, path in user_files(profile.name, home):
            layers.append(read_layer(path, str(path), warnings, kind, missing_ok=True))
        layers += [read_layer(path, str(path), warnings, "patch") for path in patches]
        warnings += _foreign_files(folder)
    return [layer for layer in layers if layer.patches], warnings


def _foreign_files(folder: Path) -> list[Warned]:
    return [
        Warned(str(folder / theirs), f"is not read by dsh; its counterpart here is {ours}")
        for theirs, ours in _FOREIGN.items()
        if os.path.lexists(folder / theirs) and not os.path.lexists(folder / ours)
    ]
