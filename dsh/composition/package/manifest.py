"""Keeps a profile's `profile.yml` in step with the packages that are installed for it; comments stay."""

from pathlib import Path
from typing import NamedTuple

from dsh.composition.package.site import Package
from dsh.composition.profile import Profile, shipped_names
from dsh.composition.requirement import is_place, project_of
from dsh.composition.text.edit import Edit, edited

BUNDLES_OF_A_NEW_PROFILE = ["base"]


class Reconciled(NamedTuple):
    """What becomes of a manifest."""

    text: str
    added: list[str]
    """Bundles that now belong to the profile."""
    removed: list[str]
    """Bundles that no longer do."""
    shadowed: list[str]
    """Bundles of its packages that are never used: dsh or the installation brings one of that name."""


def initial_text(name: str, bundles: list[str]) -> str:
    """The manifest of a profile that has none yet."""
    listed = "".join(f"  - {bundle}\n" for bundle in bundles)
    head = f"# Profile {name}: its bundles of rows in their order, and what `dsh plugin` installs for it.\n"
    return f"{head}bundles:\n{listed}" if bundles else f"{head}bundles: []\n"


def reconciled(
    text: str,
    path: Path,
    profile: Profile,
    requires: list[str],
    packages: tuple[dict[str, Package], dict[str, Package]],
    installed_bundles: set[str],
) -> Reconciled:
    """The manifest for a changed set of packages.

    A bundle that a requested package brings and the list lacks is appended. A listed one that a package of
    the profile brought, and none brings any more, is taken out. All others are the user's.

    Args:
        profile: what the text says now, with the list that counts where it names none.
        requires: the new list of requirements.
        packages: before and after.
        installed_bundles: names that the installation itself brings.

    Raises:
        CompositionError: the text cannot be changed; nothing has happened.
    """
    before, after = packages
    foreign = {*shipped_names("bundles"), *installed_bundles}
    offered = [name for one in after.values() if one.is_requested for name in one.bundles]
    there = {name for one in after.values() for name in one.bundles} | foreign
    gone = {name for one in before.values() for name in one.bundles} - there
    listed = [name for name in profile.bundles if name not in gone]
    added = [name for name in dict.fromkeys(offered) if name not in listed and name not in foreign]
    removed = [name for name in profile.bundles if name in gone]
    edits = []
    if added or removed:
        edits.append(Edit("set", ("bundles",), listed + added))
    if requires != profile.requires:
        edits.append(Edit("set", ("requires",), requires) if requires else Edit("unset", ("requires",)))
    shadowed = sorted({name for name in offered if name in foreign})
    return Reconciled(edited(text, str(path), edits), added, removed, shadowed)


def requirements(
    old: list[str],
    specs: list[str],
    packages: dict[str, Package],
    fresh: frozenset[str],
    dropped: frozenset[str],
) -> list[str]:
    """The new list of requirements: the old ones, those of the command line in place of older ones, in order.

    A package from a path or URL is written down as `name @ url`, so that it does not depend on where the
    command was given.

    Args:
        specs: the requirements of the command line.
        packages: the packages that are now installed.
        fresh: canonical names of those that this command has installed.
        dropped: canonical names of those that are no longer asked for.
    """
    named = {key: spec for spec in specs if not is_place(spec) and (key := project_of(spec)) is not None}
    made = {project_of(spec) or spec: spec for spec in old}
    for key, package in packages.items():
        if not package.is_requested:
            continue
        if key in fresh and key in named:
            made[key] = named[key]
        elif key in fresh and package.source is not None:
            made[key] = package.source
        else:
            made.setdefault(key, package.name)
    return [spec for key, spec in made.items() if key not in dropped]
