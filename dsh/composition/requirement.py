"""The words of `pip install`: which are requirements, and which project each of them means.

Only as much as is needed to keep a profile's list of requirements; the package manager judges the rest.
"""

import os
import re
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from dsh.errors import UsageError

_NAMED = re.compile(
    r"\s*(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?P<extras>\[[^\]]*\])?\s*(?=[<>=!~;@(]|\Z)"
)
_ARCHIVE = re.compile(
    r"(?P<name>.+?)-[0-9][^-]*(?:-.*)?(?:\.whl|\.tar\.gz|\.tar\.bz2|\.tar\.xz|\.zip|\.tgz)\Z"
)
_ELSEWHERE = (
    "-t --target --prefix --root --user -e --editable --dry-run --report --download -d --src --python"
)
_FOREIGN = frozenset(_ELSEWHERE.split())
"""Options that would install somewhere else, or nothing."""
_TAKE_A_VALUE = """
    -r --requirement --requirements -c --constraint --constraints -i --index-url --extra-index-url -f
    --find-links --no-binary --only-binary --platform --python-version --implementation --abi -C
    --config-settings --config-setting --global-option --trusted-host --allow-insecure-host --proxy --cert
    --client-cert --cache-dir --timeout --retries --exists-action --log --progress-bar --use-feature
    --use-deprecated --upgrade-strategy -P --upgrade-package --keyring-provider --root-user-action --index
    --default-index --index-strategy --resolution --prerelease --exclude-newer --override --overrides
    --build-constraint --build-constraints --link-mode
"""
_WITH_VALUE = frozenset(_TAKE_A_VALUE.split())


class Words(NamedTuple):
    """A command line of the package manager, taken apart."""

    options: list[str]
    specs: list[str]
    """The requirements, as written."""
    is_upgrade: bool
    """Whether packages that nobody named may change as well (`-U`)."""


def split_words(words: list[str]) -> Words:
    """Tell options, with their values, from requirements.

    Raises:
        UsageError: an option that would install anywhere but into the profile.
    """
    options: list[str] = []
    specs: list[str] = []
    is_upgrade = False
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag = word.partition("=")[0] if word.startswith("--") else word
        if flag in _FOREIGN:
            raise UsageError(
                f"{flag} does not fit here: a package goes into the folder of its profile",
                hint="leave it out; a package under development is added again after a change",
            )
        if word in ("-U", "--upgrade"):
            is_upgrade = True
        elif word.startswith("-") and word != "-":
            options.append(word)
            if flag in _WITH_VALUE and flag == word and rest:
                options.append(rest.pop(0))
        else:
            specs.append(word)
    return Words(options, specs, is_upgrade)


def canonical(name: str) -> str:
    """One spelling of a project's name: lower case, single hyphens (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def project_of(spec: str) -> str | None:
    """The canonical name of the project that a requirement means; None where only building it would tell.

    A path or URL is judged by the file's name, a folder by its `pyproject.toml`.
    """
    if not is_place(spec) and (found := _NAMED.match(spec)):
        return canonical(found["name"])
    text = spec.partition("#")[0].partition("[")[0]
    path = Path(unquote(urlsplit(text).path) if "://" in text or text.startswith("file:") else text)
    if found := _ARCHIVE.match(path.name):
        return canonical(found["name"])
    if egg := re.search(r"[#&]egg=([A-Za-z0-9._-]+)", spec):
        return canonical(egg[1])
    try:
        project = tomllib.loads((path / "pyproject.toml").read_text("utf-8")).get("project", {})
        return canonical(str(project["name"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def missing(requires: list[str], site: Path) -> list[str]:
    """The requirements whose project is not in a profile's folder."""
    there = {canonical(name) for one in distributions(path=[str(site)]) if (name := one.metadata["Name"])}
    return [spec for spec in requires if project_of(spec) not in there]


def is_place(spec: str) -> bool:
    """Whether a requirement is a path or URL rather than a name."""
    head = spec.partition("@")[0] if re.match(r"[A-Za-z0-9._-]+(\[[^\]]*\])?\s*@", spec) else spec
    return "/" in head or head.startswith((".", "file:")) or head.endswith(".whl")


def place_of(spec: str) -> str | None:
    """Where a requirement that is a path or URL, by itself or behind a name, points to: a URL, no revision.

    Paths are meant from the current folder. None for a requirement that is only named.
    """
    if found := re.match(r"\s*[A-Za-z0-9._-]+\s*(?:\[[^\]]*\])?\s*@\s*(?P<url>\S+)", spec):
        spec = found["url"]
    elif not is_place(spec):
        return None
    text = spec.partition("#")[0].partition("[")[0].strip()
    if "://" not in text and not text.startswith("file:"):
        return unquote(Path(os.path.normpath(Path.cwd() / text)).as_uri())
    head, slash, tail = unquote(text).rpartition("/")
    if re.match(r"(?:git|hg|svn|bzr)\+", text):
        tail = tail.partition("@")[0]
    return f"{head}{slash}{tail}".rstrip("/")


def is_archive(spec: str) -> bool:
    """Whether a path or URL names a source archive, whose built form a package manager keeps by its name."""
    place = place_of(spec)
    return place is not None and place.endswith((".zip", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz"))


def without_version(spec: str) -> str:
    """Name and extras of a named requirement: what still has to be there, in whatever version."""
    found = _NAMED.match(spec)
    return f"{found['name']}{found['extras'] or ''}" if found else spec
