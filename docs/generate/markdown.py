"""Markdown, and the parts of a page that a generator owns."""

import re
from collections.abc import Iterable, Mapping

OPEN = "<!-- generated: {} -->"
CLOSE = "<!-- end of generated: {} -->"
_SECTION = re.compile(r"<!-- generated: ([a-z-]+) -->\n.*?<!-- end of generated: \1 -->\n", re.DOTALL)


class UnknownSection(ValueError):
    """A page asks for a generated section that nobody makes."""


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table; bars inside of cells are escaped."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def fenced(text: str, language: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def code(text: str) -> str:
    return f"`{text}`"


def listed(names: Iterable[str]) -> str:
    """Names in code type, with commas."""
    return ", ".join(map(code, names))


def sections(page: str) -> list[str]:
    """The names of the generated sections of a page."""
    return [found[1] for found in _SECTION.finditer(page)]


def filled(page: str, made: Mapping[str, str]) -> str:
    """The page with every generated section replaced by what was made.

    Raises:
        UnknownSection: there is a section that was not made.
    """

    def section(found: re.Match[str]) -> str:
        name = found[1]
        if name not in made:
            raise UnknownSection(f"nothing generates the section {name!r}")
        return f"{OPEN.format(name)}\n\n{made[name].strip()}\n\n{CLOSE.format(name)}\n"

    return _SECTION.sub(section, page)
