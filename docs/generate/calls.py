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


KERNELS_OWN = frozenset(
    (
        *("admit", "attend", "evaluate", "is_run_by", "keep", "leads_to", "logger_named", "marked"),
        *("note_failure", "own", "realm_of", "refresh", "release", "released", "run_disposers", "spawn"),
    )
)
"""What the modules of the kernel ask of a fiber among themselves; a plugin has the calls of its context."""


def member_table(cls: Any, shown: str, *, without: frozenset[str] = frozenset()) -> str:
    """The members as a table.

    Args:
        shown: what an instance is called on the page.
        without: members that have no line.
    """
    rows = []
    for name, doc in members(cls):
        if name not in without:
            member = inspect.getattr_static(cls, name)
            call = "" if isinstance(member, property) else _parameters(member)
            prefix = "await " if inspect.iscoroutinefunction(member) else ""
            rows.append((code(f"{prefix}{shown}.{name}{call}"), doc))
    return table(("call", "what it does"), rows)


def _parameters(function: Any) -> str:
    """The parameters as they are written in a call, optional ones with their default."""
    words = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        has_default = parameter.default is not parameter.empty
        word = str(parameter.replace(annotation=parameter.empty, default=parameter.empty))
        words.append(f"{word}={_default(parameter.default)}" if has_default else word)
    return f"({', '.join(words)})"


def _default(value: object) -> str:
    return repr(value) if value is None or isinstance(value, str | int | float) else "…"
