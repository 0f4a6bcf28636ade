"""Which files a call lets be found at all, where its pattern alone would not keep to that.

To the search program a glob that names a file outweighs every rule that leaves it out. That is what a call
wants which says nothing of hidden and ignored files, but not one that says no.
"""

import msgspec

from dsh.kernel import CancelToken
from dsh.plugins.tool_fs_search.program import SearchProgram
from dsh.tools.definition import Args

_SHARE = 0.45
"""Of the time of the call: it is searched after that."""


class Allowed(msgspec.Struct, frozen=True):
    """The files as the search program spells them; None: all."""

    paths: frozenset[str] | None = None
    notes: tuple[str, ...] = ()

    def admits(self, path: str) -> bool:
        return self.paths is None or path in self.paths


async def allowed(program: SearchProgram, args: Args, root: str, cwd: str, signal: CancelToken) -> Allowed:
    """What a call that says no to hidden or to ignored files may find.

    Raises:
        SearchError: see its codes.
    """
    hidden = args.get("include_hidden") is not False
    ignored = args.get("include_ignored") is not False
    if hidden and ignored:
        return Allowed()
    rules = [*(["--no-ignore"] if ignored else []), *(["--hidden"] if hidden else [])]
    found = await program.paths(rules, root, cwd, signal, program.cut_at(_SHARE))
    return Allowed(frozenset(found.paths), found.notes)
