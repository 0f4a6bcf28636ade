"""`dsh plugin add` and `remove`: the packages of one profile, in a folder of its own.

Every change builds the whole folder anew beside the old one and swaps it in, so that a failure, a signal or a
second process leaves the profile as it was. What is kept is neither fetched nor changed.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dsh.cli.package_manager import PackageManager, Terminated, find_manager, terminable
from dsh.cli.stream import notice
from dsh.composition.bundle import bundle_in, installed_names
from dsh.composition.home import check_home, home_path
from dsh.composition.lock.plugin_version import is_built_in
from dsh.composition.package.manifest import (
    BUNDLES_OF_A_NEW_PROFILE,
    Reconciled,
    initial_text,
    reconciled,
    requirements,
)
from dsh.composition.package.plan import Plan, plan_add, plan_remove
from dsh.composition.package.site import Package, check_folder, installation, packages_in
from dsh.composition.package.stub import write_stubs
from dsh.composition.package.update import SiteError, Staging, staged
from dsh.composition.profile import (
    PATCH_FILE,
    PROFILE_FILE,
    Profile,
    check_profile_name,
    find_profile,
    profile_folder,
    read_layer,
    shipped_names,
    site_folder,
)
from dsh.composition.requirement import project_of, split_words
from dsh.composition.text.user_file import locked, replace
from dsh.masking import masked_urls

LOCK_WAIT_S = 600.0
"""How long to wait for another `dsh plugin` of the same profile; it may be downloading."""
TERMINATED = 143


class _Place(NamedTuple):
    """Where a profile's files are, and what its manifest says now."""

    manifest: Profile
    path: Path
    text: str
    is_new: bool


def add(profile: str, words: list[str], manager: str | None) -> int:
    """Install packages, and what `profile.yml` requires and is missing; answers the exit code.

    Raises:
        UsageError: an option that does not fit.
        CompositionError: the profile is broken, or a package brings a broken bundle; nothing has changed.
        DshError: no package manager, a profile that another process changes, a disk that cannot be written.
    """
    split = split_words(words)
    return _changed(profile, manager, lambda manifest, there: plan_add(split, manifest.requires, there))


def remove(profile: str, names: list[str], manager: str | None) -> int:
    """Take packages out, with those that only they needed; answers the exit code.

    Raises:
        UsageError: the profile has no such package.
        CompositionError, DshError: as for `add`.
    """
    find_profile(profile, home_path())
    return _changed(
        profile, manager, lambda manifest, there: plan_remove(names, profile, manifest.requires, there)
    )


def _changed(profile: str, manager: str | None, plan: Callable[[Profile, dict[str, Package]], Plan]) -> int:
    home = home_path()
    check_home(home)
    check_profile_name(profile)
    folder, site = profile_folder(home, profile), site_folder(home, profile)
    check_folder(site)
    _manifest(profile, home)  # a broken one is told before anything else
    install = find_manager(manager)
    is_new = not os.path.lexists(folder)
    try:
        with terminable(), locked(folder, timeout_s=LOCK_WAIT_S):
            place = _manifest(profile, home)
            before = packages_in(site)
            wish = plan(place.manifest, before)
            try:
                return _exchanged(home, place, before, wish, install)
            finally:
                if is_new and not os.path.lexists(folder / PROFILE_FILE):
                    _take_away(folder)
    except Terminated:
        return TERMINATED
    except OSError as error:
        text = f"{error.filename or site}: {error.strerror or error}"
        raise SiteError(f"failed to change the packages of profile {profile!r}: {text}") from None


def _exchanged(
    home: Path, place: _Place, before: dict[str, Package], wish: Plan, install: PackageManager
) -> int:
    """Have the next `site` built and put in the place of the present one."""
    folder = profile_folder(home, place.manifest.name)
    with staged(site_folder(home, place.manifest.name)) as staging:
        constraints = write_stubs(staging.stubs, installation().values(), _recorded(wish.pinned))
        if wish.words:
            code = install.install(
                wish.words, target=staging.target, constraints=constraints, places=wish.places
            )
            if code:
                notice(f"dsh: {install.name} failed in profile directory {folder}; nothing has changed")
                return code
        _finish(home, place, staging, before, wish)
    return 0


def _manifest(profile: str, home: Path) -> _Place:
    """The manifest of a profile; of one that has none the text that it would get.

    Raises:
        CompositionError: it is broken.
    """
    path = Path(os.path.realpath(profile_folder(home, profile) / PROFILE_FILE))
    if path.exists() or profile in shipped_names("profiles"):
        manifest = find_profile(profile, home)
    else:
        manifest = Profile(profile, list(BUNDLES_OF_A_NEW_PROFILE), [], {})
    is_new = not path.exists()
    text = initial_text(profile, manifest.bundles) if is_new else path.read_bytes().decode()
    return _Place(manifest, path, text, is_new)


def _recorded(packages: list[Package]) -> list[Package]:
    """Those that a package manager has installed; what somebody put there by hand comes along by itself."""
    return [one for one in packages if one.files is not None]


def _finish(home: Path, place: _Place, staging: Staging, before: dict[str, Package], wish: Plan) -> None:
    """Complete the new folder, swap it in and bring the manifest in step."""
    name = place.manifest.name
    staging.take_over(before, wish.asked)
    after = packages_in(staging.target)
    fresh = frozenset(staging.fresh)
    foreign = {key: spec for spec in wish.specs if (key := project_of(spec)) and key not in staging.met}
    dropped = wish.dropped.union(foreign)
    requires = requirements(place.manifest.requires, wish.specs, after, fresh, dropped)
    made = reconciled(
        place.text, place.path, place.manifest, requires, (before, after), set(installed_names())
    )
    for bundle in made.added:
        if (file := bundle_in(bundle, staging.target)) is not None:
            read_layer(file, bundle, [], "bundle")
    staging.swap()
    try:
        if place.is_new or made.text != place.text:
            mode = 0o600 if place.is_new else stat.S_IMODE(place.path.stat().st_mode)
            replace(place.path, made.text.encode(), mode=mode)
    except BaseException:
        staging.revert()
        raise
    if place.is_new:
        notice(f"dsh: initialized profile {name} at {profile_folder(home, name)}")
    _tell(name, before, after, fresh, made, foreign)
    _tell_there(wish.specs, after)
    if place.is_new and name not in shipped_names("profiles"):
        _tell_app(place, made.added)
    _tell_plugins(profile_folder(home, name) / PATCH_FILE, before, after)


def _take_away(folder: Path) -> None:
    """The folder of a profile that did not come to be."""
    try:
        folder.rmdir()
    except OSError:
        return


def _tell(
    profile: str,
    before: dict[str, Package],
    after: dict[str, Package],
    fresh: frozenset[str],
    made: Reconciled,
    foreign: dict[str, str],
) -> None:
    """What has changed. `foreign` are requirements whose marker is false here, by name."""
    lines = []
    for key, one in after.items():
        old = before.get(key)
        if old is None:
            why = "" if one.is_requested else ", which another package needs"
            lines.append(f"added {one.name} {one.version}{why}")
        elif old.version != one.version:
            lines.append(f"changed {one.name} from {old.version} to {one.version}")
        elif key in fresh and (one.source or old.source):
            lines.append(f"installed {one.name} {one.version} anew{_from(one)}")
    lines += [f"removed {one.name} {one.version}" for key, one in before.items() if key not in after]
    lines += [f"bundle {name} is now part of it" for name in made.added]
    lines += [f"bundle {name} is no longer part of it" for name in made.removed]
    lines += [f"its bundle {name} is not used: dsh or the installation brings one" for name in made.shadowed]
    lines += [f"{spec!r} is not for this Python or system: left out" for spec in foreign.values()]
    for line in lines or ["nothing to change"]:
        notice(f"dsh: profile {profile}: {line}")


def _from(package: Package) -> str:
    place = package.source.partition(" @ ")[2] if package.source is not None else ""
    return f" from {masked_urls(place)}" if place else ""


def _tell_app(place: _Place, bundles: list[str]) -> None:
    """That a profile made from the base bundle has no app, unless one of these bundles brings it."""
    so = (
        f"unless {', '.join(bundles)} brings an app, it cannot run"
        if bundles
        else "it cannot run: it has no app"
    )
    notice(
        f"dsh: profile {place.manifest.name}: {so}; to add one, write headless into bundles of {place.path}"
    )


def _tell_there(specs: list[str], after: dict[str, Package]) -> None:
    """What was asked for and is not the profile's, because the installation has it and comes first."""
    there = installation()
    for key in map(project_of, specs):
        if key is not None and key not in after and key in there:
            notice(f"dsh: {there[key].name} {there[key].version} is part of the installation already")


def _tell_plugins(patch: Path, before: dict[str, Package], after: dict[str, Package]) -> None:
    """How to mount the plugins of packages that bring no bundle, once."""
    for key, one in after.items():
        if key in before or not one.is_requested or one.bundles:
            continue
        usable = [name for name in one.plugins if not is_built_in(name)]
        for name in set(one.plugins).difference(usable):
            notice(f"dsh: {one.name}: its plugin {name} is not used: dsh has one of that name")
        if not one.plugins:
            notice(f"dsh: {one.name} names neither a bundle nor a plugin; rows may name its modules")
        if not usable:
            continue
        rows = ", ".join(f"{{id: {name}, name: {name}}}" for name in usable)
        notice(f"dsh: {one.name} brings no bundle; to mount its plugins, write into {patch}:")
        notice(f"- insert: [{rows}]")
