"""What the session's sandbox policy keeps from being read, kept out of searches too."""

import os

import msgspec

from dsh.capabilities.local_fs.fence import is_hidden
from dsh.capabilities.local_fs.path import is_within
from dsh.capabilities.sandbox import SANDBOX_POLICY, SandboxPolicy
from dsh.kernel import Context
from dsh.plugins.tool_fs_search.error import SearchError
from dsh.tools.execution import ToolExecution

NOTE = "What the sandbox policy hides was left out."


class Hidden(msgspec.Struct, frozen=True):
    """The hidden places below the root of one search, spelled as its results are. Links are not followed."""

    places: tuple[str, ...] = ()

    def admits(self, path: str) -> bool:
        """Whether a result, as the search program printed it, may be shown."""
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
        return Hidden()
    real = os.path.realpath(os.path.join(cwd, root))
    if is_hidden(policy, real):
        raise SearchError("SEARCH_FAILED", f'cannot search "{root}": it is hidden by the sandbox policy')
    below = [path for path in policy.hidden_paths if is_within(real, path)]
    return Hidden(tuple(os.path.join(root, os.path.relpath(path, real)) for path in below))


def policy_of(ctx: Context, execution: ToolExecution) -> SandboxPolicy | None:
    """The policy of the session; None where nothing confines."""
    service = ctx.get(SANDBOX_POLICY)
    return service.resolve(execution.session) if service is not None else None
