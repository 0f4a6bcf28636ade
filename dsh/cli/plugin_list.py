"""`dsh plugin list`: what a profile's own folder holds. Only reads."""

import json

from dsh.cli.stream import write_all
from dsh.composition.bundle import installed_names
from dsh.composition.home import home_path
from dsh.composition.lock.plugin_version import is_built_in
from dsh.composition.package.site import Package, check_folder, packages_in
from dsh.composition.profile import Profile, find_profile, shipped_names, site_folder
from dsh.composition.requirement import missing, project_of
from dsh.unicode import valid


def show(profile: str, json_output: bool) -> int:
    """Print the packages of a profile, for people or as one JSON object; answers the exit code.

    The object: `profile`, `site` (the folder), `bundles` (all of the profile, in order), `packages` (each
    with `name`, `version`, `requirement` as `profile.yml` writes it or null, `requested`, `bundles` and
    `plugins`) and `missing` (requirements that are not installed).

    Raises:
        CompositionError: no such profile, or its manifest is broken.
        OSError: standard output cannot be written.
    """
    home = home_path()
    manifest = find_profile(profile, home)
    site = site_folder(home, profile)
    check_folder(site)
    packages = packages_in(site)
    required = {project_of(spec) or spec: spec for spec in manifest.requires}
    absent = missing(manifest.requires, site)
    if json_output:
        found = {
            "profile": profile,
            "site": str(site),
            "bundles": manifest.bundles,
            "packages": [_object(one, required.get(key)) for key, one in packages.items()],
            "missing": absent,
        }
        text = json.dumps(found, ensure_ascii=False, indent=2)
    else:
        bundles = {*shipped_names("bundles"), *installed_names(site)}
        text = "\n".join(_lines(manifest, packages, required, absent, bundles))
    write_all(1, valid(f"{text}\n").encode())
    return 0


def _unused(kind: str, name: str, manifest: Profile) -> str:
    if kind == "plugin":
        return "  (not used: dsh has one of that name)" if is_built_in(name) else ""
    if name in shipped_names("bundles"):
        return "  (not used: dsh has one of that name)"
    return "" if name in manifest.bundles else "  (not in the profile)"


def _object(package: Package, requirement: str | None) -> dict[str, object]:
    return {
        "name": package.name,
        "version": package.version,
        "requirement": requirement,
        "requested": requirement is not None or package.is_requested,
        "bundles": list(package.bundles),
        "plugins": list(package.plugins),
    }


def _lines(
    manifest: Profile,
    packages: dict[str, Package],
    required: dict[str, str],
    absent: list[str],
    bundles: set[str],
) -> list[str]:
    """`bundles` are all that there are for this profile."""
    lines = [f"profile {manifest.name}: bundles {', '.join(manifest.bundles) or 'none'}"]
    for key, one in packages.items():
        lines.append(f"{one.name} {one.version}")
        if key not in required and not one.is_requested:
            lines[-1] += "  (another package needs it)"
        for kind, names in (("bundle", one.bundles), ("plugin", one.plugins)):
            for name in names:
                lines.append(f"  {kind} {name}{_unused(kind, name, manifest)}")
    lines += [f"bundle {name}  (nothing brings it)" for name in manifest.bundles if name not in bundles]
    lines += [f"{spec}  (not installed; dsh plugin add --profile {manifest.name})" for spec in absent]
    return lines if packages or absent else [*lines, "no packages of its own"]
