"""How a skill is given to the model, as a result of the tool and when a person called it up. Pure."""

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

import msgspec

from dsh.capabilities.skills import LoadedSkill

RELATIVE = (
    "Paths that the skill gives relative to it start there. Read a file of the skill only when you need it."
)


def value_of(loaded: LoadedSkill) -> dict[str, Any]:
    """The value of the tool."""
    skill = loaded.skill
    value: dict[str, Any] = {"name": skill.name, "provider": skill.provider}
    if skill.resource_base is not None:
        value["resourceBase"] = msgspec.to_builtins(skill.resource_base)
    return value | {"content": loaded.content}


def rendered(value: Mapping[str, Any]) -> str:
    """The text of a value; the tags are protocol, each on a line of its own, and the body is as it is."""
    name = escape(value["name"], {'"': "&quot;"})
    lines = [f'<skill_content name="{name}">']
    if hint := _hint(value.get("resourceBase")):
        lines += ["<skill_resources>", escape(hint), RELATIVE, "</skill_resources>", ""]
    lines += ["<skill_instructions>", value["content"], "</skill_instructions>", "</skill_content>"]
    return "\n".join(lines)


def _hint(base: Mapping[str, str] | None) -> str:
    match base:
        case {"kind": "directory", "path": path}:
            return f"The directory of this skill is {path}"
        case {"kind": "url", "url": url}:
            return f"The files of this skill are below {url}"
        case {"description": description}:
            return description
    return ""
