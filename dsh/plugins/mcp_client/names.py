"""Public names of tools, and which server names are taken.

A public name is `mcp__<server>__<tool>`, at most 64 characters of `[A-Za-z0-9_-]`, as model APIs demand. It
depends on the two raw names alone, so it is the same in every run (`spec/capabilities-more.md` §5).
"""

import hashlib
import re
from collections.abc import Callable
from weakref import WeakKeyDictionary

from dsh.errors import CompositionError
from dsh.kernel import Context

MAX_NAME = 64
KEPT_CHARS = 51
HASH_DIGITS = 12

_taken: "WeakKeyDictionary[Context, set[str]]" = WeakKeyDictionary()
"""Server names by the root of the tree; a process has one, tests have more."""


def public_name(server: str, tool: str) -> str:
    """What the model calls the tool: other characters become `_`, and a hash follows then or if it is long.

    Source of the form: `spec/capabilities-more.md` §5; the hash is SHA-256 of `server NUL tool`.
    """
    plain = f"mcp__{server}__{tool}"
    name = re.sub(r"[^A-Za-z0-9_-]", "_", plain)
    if name == plain and len(name) <= MAX_NAME:
        return name
    raw = f"{server}\0{tool}".encode("utf-8", "surrogatepass")
    return f"{name[:KEPT_CHARS]}_{hashlib.sha256(raw).hexdigest()[:HASH_DIGITS]}"


def claim(ctx: Context, server: str) -> Callable[[], None]:
    """Take a server name for as long as the row is mounted; answers the undo.

    Raises:
        CompositionError: another row has it.
    """
    names = _taken.setdefault(ctx.root, set())
    if server in names:
        raise CompositionError(
            f"serverName {server!r} is taken by another row", hint="give each MCP server a name of its own"
        )
    names.add(server)
    return lambda: names.discard(server)


def owner_of(ctx: Context, public: str) -> str | None:
    """The mounted server with the longest name that this public name may belong to.

    `mcp__a__b__c` is tool `c` of server `a__b` as well as tool `b__c` of server `a`: the longer name has it,
    whichever server came up first.
    """
    fitting = [name for name in _taken.get(ctx.root, ()) if public.startswith(f"mcp__{name}__")]
    return max(fitting, key=len, default=None)
