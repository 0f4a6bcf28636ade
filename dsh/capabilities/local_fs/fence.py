"""Which paths a sandbox policy lets file operations and commands change.

For the file tools it is a fence in trusted code around paths that a model chose, no boundary of the system.
The backends that confine commands take the same lists, so that all of them mean the same.
"""

import os

from dsh.capabilities.local_fs.path import is_within
from dsh.capabilities.sandbox import SandboxPolicy

PROTECTED_NAMES = (".git/hooks", ".dsh")
"""In the workspace and in each extra root: what lies there is run or obeyed later, outside of the walls."""


def writable_roots(policy: SandboxPolicy) -> tuple[str, ...]:
    """Canonical directories below which `workspace-write` may write; none in the other modes.

    The workspace first, then the extra roots, last the session's temporary folder.
    """
    if policy.mode != "workspace-write":
        return ()
    return tuple(dict.fromkeys((*_projects(policy), *((policy.temp_folder,) if policy.temp_folder else ()))))


def protected_paths(policy: SandboxPolicy) -> tuple[str, ...]:
    """What may not be changed although it lies in a writable root. Absolute; whether it exists or not."""
    if policy.mode != "workspace-write":
        return ()
    named = [os.path.join(root, name) for root in _projects(policy) for name in PROTECTED_NAMES]
    roots = writable_roots(policy)
    more = [
        path
        for path in policy.protected_paths
        if path not in roots and any(is_within(root, path) for root in roots)
    ]
    return tuple(dict.fromkeys((*named, *more)))


def may_change(policy: SandboxPolicy, key: str) -> bool:
    """Whether a policy lets a canonical path be written."""
    if policy.mode == "danger-full-access":
        return True
    if not any(is_contained(root, key) for root in writable_roots(policy)):
        return False
    return not is_hidden(policy, key) and not any(_covers(path, key) for path in protected_paths(policy))


def _projects(policy: SandboxPolicy) -> tuple[str, ...]:
    return (policy.workspace_root, *policy.extra_roots)


def is_hidden(policy: SandboxPolicy, key: str) -> bool:
    """Whether a policy keeps a canonical path from being read. Only what confines hides anything."""
    if policy.mode == "danger-full-access":
        return False
    return any(_covers(path, key) for path in policy.hidden_paths)


def _covers(path: str, key: str) -> bool:
    """As `is_contained`, of `path` and of what it leads to if it is a link."""
    return is_contained(path, key) or is_contained(os.path.realpath(path), key)


def is_contained(root: str, key: str) -> bool:
    """Whether a canonical path lies at or below `root`, by spelling or by the identity of an ancestor.

    A root that is a link contains nothing: what a command has put in a root's place is not followed.
    """
    if is_within(root, key):
        return True
    try:
        wanted = os.lstat(root)
    except OSError:
        return False
    at = key
    while True:
        try:
            info = os.stat(at)
        except OSError:
            pass
        else:
            if os.path.samestat(wanted, info):
                return True
        parent = os.path.dirname(at)
        if parent == at:
            return False
        at = parent
