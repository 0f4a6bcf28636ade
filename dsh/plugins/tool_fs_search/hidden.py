"""What the session's sandbox policy keeps from being read, kept out of searches too."""

import os

import msgspec

from dsh.capabilities.local_fs.fence import is_hidden
from dsh.capabilities.local_fs.path import is_within
from dsh.capabilities.sandbox import SandboxPolicy
from dsh.plugins.tool_fs_search.error import SearchError

NOTE = "What the sandbox policy hides was left out."


class Hidden(msgspec.Struct, frozen=True):
    """Where a search starts, and the hidden places below that, spelled as its results are."""

    root: str
    """Relative to the working directory. It leads the search program to where it was judged, which a path
    such as `/proc/self/cwd` would not."""
    places: tuple[str, ...] = ()

    def admits(self, path: str) -> bool:
        """Whether a result, as the search program printed it, may be shown. It follows no link."""
        return not any(is_within(place, path) for place in self.places)

    @property
    def notes(self) -> tuple[str, ...]:
        return (NOTE,) if self.places else ()


def hidden_below(policy: SandboxPolicy | None, root: str, cwd: str) -> Hidden:
    """What a search that starts at `root`, relative to `cwd`, may not show.

    Raises:
        SearchError: all of it is hidden.
    """
    if policy is None or policy.mode == "danger-full-access" or not policy.hidden_paths:
        return Hidden(root)
    here, real = os.path.realpath(cwd), os.path.realpath(os.path.join(cwd, root))
    if is_hidden(policy, real):
        raise SearchError("SEARCH_FAILED", f'cannot search "{root}": it is hidden by the sandbox policy')
    start = os.path.relpath(real, here) if is_within(here, real) else real
    hidden = {path for each in policy.hidden_paths for path in (each, os.path.realpath(each))}
    below = sorted(os.path.relpath(path, real) for path in hidden if is_within(real, path))
    return Hidden(start, tuple(os.path.join(start, path) for path in below))
