"""Reads the text of a skill's file: a YAML mapping between two lines `---`, then the instructions. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from dsh.capabilities.skills import SKILL_NAME, LoadedSkill, ResourceBase, Skill
from dsh.capabilities.user_document import plain
from dsh.composition.text.yaml import parse_yaml
from dsh.errors import DshError

FENCE = "---"
REFUSED = {
    "disableModelInvocation": "disable-model-invocation",
    "userInvocable": "user-invocable",
}
"""Spellings that would silently do nothing, with the right ones."""
_BOOLEANS = {
    "yes": True,
    "on": True,
    "true": True,
    "1": True,
    "no": False,
    "off": False,
    "false": False,
    "0": False,
}


_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
"""A line with its end. Other characters that Unicode counts as ends of lines are text."""


class NoSkill(Exception):
    """The text is not that of a skill; the words say why."""


def parse_skill(text: str, *, path: str, base: str, rank: int) -> LoadedSkill:
    """The skill of a file.

    Args:
        path: of the file; it is named in errors, and is the skill's key.
        base: the directory that the skill's relative paths start from.

    Raises:
        NoSkill: the front matter is missing or wrong.
    """
    lines = _LINE.findall(text.removeprefix("\ufeff"))
    if not lines or lines[0].rstrip() != FENCE:
        raise NoSkill(f"its first line is not {FENCE}")
    end = next((at for at, line in enumerate(lines) if at and line.rstrip() == FENCE), None)
    if end is None:
        raise NoSkill(f"no second line {FENCE} ends its front matter")
    front = _front("".join(["\n", *lines[1:end]]), path)
    for wrong, right in REFUSED.items():
        if wrong in front:
            raise NoSkill(f"{wrong} is written {right}")
    name = _text(front, "name")
    if not SKILL_NAME.fullmatch(name):
        raise NoSkill(f"its name is {name!r:.80}; a name takes a-z, 0-9 and single dashes")
    skill = Skill(
        name=name,
        description=_text(front, "description"),
        when_to_use=_text(front, "whenToUse") if front.get("whenToUse") is not None else None,
        metadata=_mapping(front),
        for_model=not _flag(front, "disable-model-invocation", default=False),
        for_user=_flag(front, "user-invocable", default=True),
        rank=rank,
        resource_base=ResourceBase(kind="directory", path=base),
        key=path,
    )
    return LoadedSkill(skill, "".join(lines[end + 1 :]).strip())


def _front(text: str, path: str) -> Mapping[str, Any]:
    """The mapping; its lines count as in the file."""
    try:
        front = plain(parse_yaml(text.encode(), path))
    except DshError as error:
        raise NoSkill(f"its front matter is no YAML: {error.message}") from None
    if not isinstance(front, dict):
        raise NoSkill("its front matter is no mapping")
    return front


def _text(front: Mapping[str, Any], key: str) -> str:
    value = front.get(key)
    if not isinstance(value, str) or not value.strip():
        found = "missing" if value is None else "blank" if isinstance(value, str) else "no text"
        raise NoSkill(f"{key} is {found}")
    return value.strip()


def _flag(front: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = front.get(key)
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower() if isinstance(value, str | int) else ""
    if word not in _BOOLEANS:
        raise NoSkill(f"{key} is true or false, found {value!r:.40}")
    return _BOOLEANS[word]


def _mapping(front: Mapping[str, Any]) -> Mapping[str, Any]:
    value = front.get("metadata")
    if value is not None and not isinstance(value, dict):
        raise NoSkill("metadata is no mapping")
    return value or {}
