"""What a change to a profile's packages asks of the package manager. Pure: from the wish to its words."""

from collections.abc import Sequence
from typing import NamedTuple

from dsh.composition.grammar import closest
from dsh.composition.package.site import Package
from dsh.composition.requirement import Words, canonical, place_of, project_of, without_version
from dsh.errors import UsageError

_REQUIREMENTS = frozenset(("-r", "--requirement", "--requirements"))
"""Options that name a file of requirements."""


class Plan(NamedTuple):
    """One run of the package manager into an empty folder."""

    words: list[str]
    """Options, and every requirement that shall be met afterwards; none: nothing is to be installed."""
    pinned: list[Package]
    """Packages that may not change. Those that nothing asks for any more are left out all the same."""
    specs: list[str]
    """The requirements that the person has written now."""
    dropped: frozenset[str]
    """Canonical names of what is no longer asked for."""
    asked: frozenset[str] | None
    """Canonical names of all that is asked for; None where only the package manager knows."""
    places: Sequence[str] = ()
    """The paths and URLs among the words: what lies there now is wanted, whatever was there before."""


def plan_add(words: Words, requires: list[str], there: dict[str, Package]) -> Plan:
    """Install what is named, and what `profile.yml` requires and is missing.

    What is named gets its newest fitting version, and what is a path or URL is installed anew. All else stays
    as it is; with `-U` the packages that others need may change too, and with `-U` alone everything.
    """
    places = {place for spec in words.specs if (place := place_of(spec)) is not None}
    named = {project_of(spec) for spec in words.specs}
    named |= {key for key, one in there.items() if one.source is not None and place_of(one.source) in places}
    everything = words.is_upgrade and not words.specs
    asked = _asked(requires, there)
    again, pinned = [], []
    for key, spec in asked.items():
        if key in named:
            continue
        if key in there and not everything:
            again.append(without_version(spec))
            pinned.append(there[key])
        else:
            again.append(spec)
    if not words.is_upgrade:
        pinned += [one for key, one in there.items() if key not in named and key not in asked]
    wanted = [*words.specs, *again]
    line = [*words.options, *wanted] if wanted or _REQUIREMENTS & set(words.options) else []
    from_places = [spec for spec in wanted if place_of(spec) is not None]
    return Plan(line, pinned, words.specs, frozenset(), _all_named(words, asked), from_places)


def plan_remove(names: list[str], profile: str, requires: list[str], there: dict[str, Package]) -> Plan:
    """Take packages out, and with them what only they needed. Nothing is fetched.

    Raises:
        UsageError: nobody asked for a package of that name.
    """
    asked = _asked(requires, there)
    for name in names:
        if canonical(name) not in asked:
            raise _not_asked_for(name, profile, list(asked), there)
    dropped = frozenset(canonical(name) for name in names)
    left = [without_version(spec) for key, spec in asked.items() if key in there and key not in dropped]
    return Plan(
        ["--no-index", *left] if left else [], list(there.values()), [], dropped, frozenset(asked) - dropped
    )


def _all_named(words: Words, asked: dict[str, str]) -> frozenset[str] | None:
    named = [project_of(spec) for spec in words.specs]
    if None in named or any(option.startswith(("-r", "--requirement")) for option in words.options):
        return None
    return frozenset([*(key for key in named if key is not None), *asked])


def _asked(requires: list[str], there: dict[str, Package]) -> dict[str, str]:
    """The requirements of a profile by canonical name: written down, or only installed by request."""
    written = {project_of(spec) or spec: spec for spec in requires}
    installed = {key: one.name for key, one in there.items() if one.is_requested and one.files is not None}
    return {**installed, **written}


def _not_asked_for(name: str, profile: str, asked: list[str], there: dict[str, Package]) -> UsageError:
    if (there_is := there.get(canonical(name))) is not None:
        why = (
            "only because another of its packages needs it"
            if there_is.files is not None
            else "because somebody put it into its site folder by hand"
        )
        return UsageError(
            f"{name} is in profile {profile!r} {why}",
            hint=f"packages that can be removed: {', '.join(asked) or 'none'}",
        )
    close = closest(canonical(name), asked)
    meant = f"did you mean {close[0]!r}?" if close else f"its packages: {', '.join(asked) or 'none'}"
    return UsageError(f"profile {profile!r} has no package {name!r}", hint=meant)
