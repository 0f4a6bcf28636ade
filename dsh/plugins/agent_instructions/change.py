"""What has to be told: what is there, against what the model knows. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dsh.plugins.agent_instructions import text
from dsh.plugins.agent_instructions.known import Known
from dsh.plugins.agent_instructions.place import USER_GLOBAL, Layout
from dsh.plugins.agent_instructions.reading import Found, Looked

Entry = dict[str, Any]
"""One of a message's `changes`: `{action, scope, path, digest?}`."""


class Change(NamedTuple):
    """One file, as it is told and as the log names it."""

    section: text.Section
    entry: Entry


class Told(NamedTuple):
    """A text and what it changes."""

    text: str
    entries: tuple[Entry, ...]


def baseline(
    looked: Sequence[Looked], known: Known, gone: Sequence[str], max_bytes: int, *, is_replacement: bool
) -> Told | None:
    """All instructions of the project from the beginning; None where there is nothing to say.

    Args:
        gone: the scopes that were known and count no longer.
    """
    found = _found(looked)
    if not found and not gone:
        return None
    sections = [text.loaded(one.path, one.text) for one in found]
    begin = (text.REPLACING,) if is_replacement else ()
    fitted = text.fit(
        sections,
        max_bytes,
        intro=" ".join((*begin, text.INTRO if found else "There are none now.")),
        compact=" ".join((*begin, text.COMPACT)),
        failures=[(one.path, one.why) for here in looked for one in here.failed if one.is_told],
    )
    removed = [_removal(scope, known) for scope in gone]
    return Told(fitted.text, (*removed, *(_setting("set", found[at]) for at in fitted.kept)))


def left_out(looked: Sequence[Looked], max_bytes: int) -> set[str]:
    """The scopes for which a baseline has no room: they are not told by a batch either."""
    found = _found(looked)
    sections = [text.loaded(one.path, one.text) for one in found]
    kept = text.fit(sections, max_bytes, intro=text.INTRO, compact=text.COMPACT).kept
    return {one.scope for at, one in enumerate(found) if at not in kept}


def changes(looked: Sequence[Looked], known: Known, layout: Layout) -> list[Change]:
    """What is new, different or gone in these directories, broad to specific.

    A directory in which a file that was known cannot be read now stays as it was.
    """
    out: list[Change] = []
    for here in looked:
        had = _known_in(here, known, layout)
        if any(one.scope in had for one in here.failed):
            continue
        for one in here.found:
            if one.scope not in had:
                where = _applies_to(here, layout)
                out.append(Change(text.added(one.path, where, one.text), _setting("set", one)))
            elif had[one.scope] != one.digest:
                out.append(Change(text.changed(one.path, one.text), _setting("replace", one)))
        present = {one.scope for one in here.found}
        for scope in had:
            if scope not in present:
                entry = _removal(scope, known)
                out.append(Change(text.removed(entry["path"]), entry))
    return out


def batch(changed: Sequence[Change], max_bytes: int) -> Told | None:
    """Those changes in one text; None where there is room for none of them."""
    is_more = any(change.entry["action"] == "set" for change in changed)
    fitted = text.fit([change.section for change in changed], max_bytes, intro=text.MORE if is_more else "")
    if not fitted.kept:
        return None
    return Told(fitted.text, tuple(changed[at].entry for at in fitted.kept))


def _found(looked: Sequence[Looked]) -> list[Found]:
    return [one for here in looked for one in here.found]


def _known_in(here: Looked, known: Known, layout: Layout) -> Mapping[str, str | None]:
    """The digests of the files that the model knows of this directory, by scope."""
    if here.place.is_global:
        return {s: file.digest for s, file in known.files.items() if s == USER_GLOBAL}
    beginning = layout.scope(here.place.directory, "")
    return {s: file.digest for s, file in known.files.items() if s.startswith(beginning)}


def _applies_to(here: Looked, layout: Layout) -> str | None:
    directory = layout.shown(here.place.directory, "")
    return None if here.place.is_global or directory == "." else directory


def _setting(action: str, one: Found) -> Entry:
    return {"action": action, "scope": one.scope, "path": one.path, "digest": one.digest}


def _removal(scope: str, known: Known) -> Entry:
    return {"action": "remove", "scope": scope, "path": known.files[scope].path}
