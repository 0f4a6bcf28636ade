"""What can be done with a context, a fiber and a token: their public members with the first line of each."""

import inspect
from collections.abc import Iterator
from typing import Any

from docs.generate.markdown import code, table
from docs.generate.source import first_paragraph


def members(cls: type) -> Iterator[tuple[str, str]]:
    """Public methods and properties of a class itself, in the order of its source, each with its text."""
    for name, member in _own_and_inherited(cls).items():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            yield name, first_paragraph(inspect.getdoc(member) or "")


def _own_and_inherited(cls: type) -> dict[str, Any]:
    """The members of a class and of the classes of ours that it is made of, the basic ones first."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("dsh."):
            found.update(vars(base))
    return found


def member_table(cls: Any, shown: str) -> str:
    """Args: shown: what an instance is called on the page."""
    rows = []
    for name, doc in members(cls):
        call = "" if isinstance(inspect.getattr_static(cls, name), property) else "()"
        prefix = "await " if inspect.iscoroutinefunction(inspect.getattr_static(cls, name)) else ""
        rows.append((code(f"{prefix}{shown}.{name}{call}"), doc))
    return table(("call", "what it does"), rows)
