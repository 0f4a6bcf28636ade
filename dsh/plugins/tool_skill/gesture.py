"""Skills that a person calls up: `/name` as a word of its own in what they say. Pure.

Most words that begin with a slash are something else, paths above all. One counts where a skill has the name;
a word that names an existing path of the machine counts only as the first of the message, and nothing counts
inside a fenced block.
"""

import re
from collections.abc import Callable, Iterable

from dsh.capabilities.skills import Skill
from dsh.session.message import Message

_WORD = re.compile(r"(?<!\S)/([a-z0-9]+(?:-[a-z0-9]+)*)(?!\S)")
_FENCED = re.compile(r"^[ ]{0,3}(```+|~~~+).*?(?:^[ ]{0,3}\1|\Z)", re.DOTALL | re.MULTILINE)


def called_up(
    messages: Iterable[Message], skills: Iterable[Skill], is_path: Callable[[str], bool]
) -> list[str]:
    """The names of the skills that these messages call up, each once, as they are first mentioned.

    Args:
        is_path: whether such a path exists, asked with a leading slash.
    """
    names = {skill.name for skill in skills if skill.for_user}
    found: dict[str, None] = {}
    for message in messages:
        if message["source"].get("kind") != "user" or not names:
            continue
        for block in message["content"]:
            if block["type"] != "text":
                continue
            text = _FENCED.sub("", block["text"])
            for word in _WORD.finditer(text):
                is_first = not text[: word.start()].strip()
                if word[1] in names and (is_first or not is_path(f"/{word[1]}")):
                    found[word[1]] = None
    return list(found)


def has_any(messages: Iterable[Message]) -> bool:
    """Whether a person's words hold anything that could call up a skill."""
    return any(
        block["type"] == "text" and _WORD.search(block["text"]) is not None
        for message in messages
        if message["source"].get("kind") == "user"
        for block in message["content"]
    )
