"""The parameters that `glob` and `grep` share: what is left out, and which page of the results is shown."""

from collections.abc import Mapping
from typing import Any

import msgspec

from dsh.tools.definition import Args
from dsh.tools.error import ToolError

VERSION_CONTROL = (".git", ".svn", ".hg", ".bzr", ".jj", ".sl")
_NO_VERSION_CONTROL = tuple(f"--glob=!**/{name}{rest}" for name in VERSION_CONTROL for rest in ("", "/**"))


class Page(msgspec.Struct, frozen=True):
    """Which results are shown."""

    offset: int
    """Results that are passed over."""
    limit: int

    @property
    def stop(self) -> int:
        return self.offset + self.limit


def page_of(args: Args, cap: int) -> Page:
    """The page that the arguments ask for; the first of `cap` results where they say nothing.

    Raises:
        ToolError: a value rule is broken.
    """
    offset, limit = whole_number(args, "offset", 0), whole_number(args, "limit", cap)
    if offset < 0:
        raise ToolError(f"offset must not be negative, got {offset}")
    if not 1 <= limit <= cap:
        raise ToolError(f"limit must be between 1 and {cap}, got {limit}")
    return Page(offset, limit)


def named(glob: str) -> str:
    """The argument of the search program for files that a glob names. A `#` in front would be a comment."""
    return "--glob=" + ("\\" if glob.startswith("#") else "") + glob


def coverage(args: Args, *, by_default: bool) -> list[str]:
    """Arguments of the search program for hidden and ignored files, behind those that name files.

    Version control is never searched, whatever names it.
    """
    hidden = args.get("include_hidden", by_default)
    ignored = args.get("include_ignored", by_default)
    return [
        *(["--no-ignore"] if ignored else []),
        *(["--hidden"] if hidden else []),
        *_NO_VERSION_CONTROL,
    ]


def parameters(what: str, cap: int, *, by_default: bool) -> dict[str, Mapping[str, Any]]:
    """The shared parameters; `what` names the results."""
    default = "true" if by_default else "false"
    return {
        "include_hidden": {
            "type": "boolean",
            "description": f"Whether names that begin with a dot count. Default {default}.",
        },
        "include_ignored": {
            "type": "boolean",
            "description": f"Whether files that .gitignore leaves out count. Default {default}.",
        },
        "offset": {"type": "number", "description": f"{what} to pass over, to see later ones. Default 0."},
        "limit": {"type": "number", "description": f"{what} to show, at most {cap}, which is the default."},
    }


def whole_number(args: Args, name: str, default: int) -> int:
    """An argument that JSON may write as 1 or 1.0.

    Raises:
        ToolError: it is no integer.
    """
    value = args.get(name)
    if value is None:
        return default
    if value != int(value):
        raise ToolError(f"{name} must be an integer, got {value}")
    return int(value)
