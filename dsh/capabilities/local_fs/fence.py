"""Which paths a sandbox policy lets file operations change.

A fence in trusted code around paths that a model chose, not a boundary of the system.
"""

import os
import tempfile

from dsh.capabilities.local_fs.path import is_within
from dsh.capabilities.sandbox import SandboxPolicy


def writable_roots(policy: SandboxPolicy) -> tuple[str, ...]:
    """Canonical directories below which `workspace-write` may write; none in the other modes."""
    if policy.mode != "workspace-write":
        return ()
    roots = (policy.workspace_root, "/tmp", tempfile.gettempdir())
    return tuple(dict.fromkeys(os.path.realpath(root) for root in roots))


def is_hidden(policy: SandboxPolicy, key: str) -> bool:
    """Whether a policy keeps a canonical path from being read. Only what confines hides anything."""
    if policy.mode == "danger-full-access":
        return False
    return any(is_contained(path, key) for path in policy.hidden_paths)


def is_contained(root: str, key: str) -> bool:
    """Whether a canonical path lies at or below `root`, by spelling or by the identity of an ancestor."""
    if is_within(root, key):
        return True
    try:
        wanted = os.stat(root)
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
