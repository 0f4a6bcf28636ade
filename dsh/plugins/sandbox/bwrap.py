"""The backend `bwrap`: bubblewrap, which gives a command its own view of the file system and of processes.

The whole system is bound read-only, the host's `/tmp` and `/run` are hidden since the sockets there are ways
out, and what the policy opens is bound again at its own path (`design.md` §10.26).
"""

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence

from dsh.capabilities import scratch
from dsh.capabilities.confined_end import status_pipe
from dsh.capabilities.local_fs.fence import protected_paths, writable_roots
from dsh.capabilities.local_fs.path import is_within
from dsh.capabilities.sandbox import BackendReport, Confined, SandboxPolicy
from dsh.plugins.sandbox.backend import Prober

DENIALS = ("read-only file system",)
ROOT_CAPABILITIES = ("CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_CHOWN")
"""What root keeps: to work on other users' files where it may write at all."""
HIDDEN = ("/tmp", "/run", "/var/run")
NEEDED_OF_RUN = ("/run/current-system", "/run/booted-system", "/run/opengl-driver", "/run/wrappers")
"""Where some distributions keep their programs."""
NAME_RESOLUTION = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf")
HINT = "install bubblewrap (Debian: apt-get install bubblewrap)"
REMOUNTED = 9
TRIAL = f"""
while read -r name value; do [ "$name" = CapEff: ] && set -- "$value"; done < /proc/self/status
[ $((0x$1 & 0x200000)) = 0 ] || exit {REMOUNTED}
mount -o remount,bind,rw / 2>/dev/null && exit {REMOUNTED}
exit 0
"""
"""Run inside: neither the capability to change mounts may be there nor a remount succeed."""


class Bwrap:
    """Implements `dsh.plugins.sandbox.backend.Backend`."""

    name = "bwrap"

    def __init__(self) -> None:
        self._program = ""

    async def probe(self, prober: Prober) -> BackendReport:
        program = shutil.which("bwrap")
        if program is None:
            return BackendReport(self.name, None, "the program is not installed", HINT)
        self._program = program
        policy = SandboxPolicy("read-only", "/")
        with status_pipe() as pipe:
            argv = self.confine(["sh", "-c", TRIAL], policy, cwd="/", status_fd=pipe.fd).argv
            trial = await prober.run(argv, pipe)
        if trial is None:
            return BackendReport(self.name, None, f"it did not answer within {prober.timeout_ms} ms")
        if trial.exit_code == REMOUNTED:
            return BackendReport(
                self.name, None, "its walls can be taken down from inside: a remount succeeds"
            )
        if trial.exit_code != 0 or b"exit-code" not in trial.status:
            reason = trial.words or f"it ended with exit code {trial.exit_code}"
            return BackendReport(self.name, None, reason, "let users make user namespaces, or use Landlock")
        return BackendReport(self.name, "full")

    def confine(
        self, argv: Sequence[str], policy: SandboxPolicy, *, cwd: str | None, status_fd: int | None
    ) -> Confined:
        words = [self._program, *profile(policy, cwd=cwd)]
        if status_fd is not None:
            words += ["--json-status-fd", str(status_fd)]
        return Confined(
            argv=(*words, "--", *argv),
            enforcement="full",
            runner=self.name,
            status="bwrap",
            denial_signatures=DENIALS,
            ends_children=True,
        )


def profile(policy: SandboxPolicy, *, cwd: str | None) -> list[str]:
    """The arguments, without program and command. Order matters: a later mount lies over an earlier one."""
    return list(_profile(policy, cwd or policy.workspace_root))


def _profile(policy: SandboxPolicy, cwd: str) -> Iterator[str]:
    roots = _outermost(writable_roots(policy))
    yield from ("--bind" if "/" in roots else "--ro-bind", "/", "/")
    yield from ("--dev", "/dev", "--unshare-pid", "--unshare-ipc", "--proc", "/proc")
    yield from ("--ro-bind", "/proc/sys", "/proc/sys", "--die-with-parent", "--cap-drop", "ALL")
    if os.geteuid() == 0:
        for capability in ROOT_CAPABILITIES:
            yield from ("--cap-add", capability)
    if not policy.is_network_open:
        yield "--unshare-net"
    covered = [path for path in _places() if not any(is_within(root, path) for root in roots)]
    for path in covered:
        yield from ("--tmpfs", path)
    for path in _needed(covered, policy):
        yield from ("--ro-bind-try", path, path)
    for root in roots:
        if root != "/" and os.path.isdir(root):
            yield from ("--bind", root, root)
    for path in _pinned(policy, roots):
        yield from ("--bind", path, path)
    for path in map(os.path.realpath, protected_paths(policy)):  # nothing can be mounted over a link
        if os.path.exists(path) and any(is_within(root, path) for root in roots):
            yield from ("--ro-bind-try", path, path)
    for path in policy.hidden_paths:
        yield from _hidden(path)
    for path in covered:
        yield from ("--remount-ro", path)
    yield from ("--chdir", cwd)


def _pinned(policy: SandboxPolicy, roots: Sequence[str]) -> list[str]:
    """The directories between a root and what a configuration hides or protects in it, outer ones first. As
    mounts of their own they cannot be moved away, so that the next command finds all in its place.
    """
    found = set[str]()
    for path in (*policy.hidden_paths, *policy.protected_paths):
        for root in roots:
            if is_within(root, path) and os.path.lexists(path):
                above = os.path.dirname(path)
                while above != root and is_within(root, above):
                    found.add(above)
                    above = os.path.dirname(above)
    return sorted(found)


def _hidden(path: str) -> Iterator[str]:
    if os.path.isdir(path):
        yield from ("--perms", "0000", "--tmpfs", path, "--remount-ro", path)
    elif os.path.lexists(path):
        yield from ("--ro-bind", "/dev/null", path)


def _places() -> list[str]:
    return _outermost(sorted({os.path.realpath(path) for path in HIDDEN if os.path.isdir(path)}))


def _needed(covered: Sequence[str], policy: SandboxPolicy) -> Iterator[str]:
    """What lies in a covered place and is needed all the same. What may be changed is bound anew later."""
    with contextlib.suppress(OSError):  # no room for temporary files: then there are none to see
        yield str(scratch.shared_root())
    resolution = {os.path.realpath(path) for path in NAME_RESOLUTION}
    own = [path for path in (policy.workspace_root, *policy.extra_roots, policy.temp_folder) if path]
    for path in (*sorted(resolution), *NEEDED_OF_RUN, *own):
        if os.path.exists(path) and any(is_within(place, path) for place in (*covered, "/dev")):
            yield path


def _outermost(roots: Sequence[str]) -> list[str]:
    """The roots that lie in no other: those in them are open with them, and binding one anew would follow
    a link that a command has put in its place.
    """
    return [root for root in roots if not any(is_within(other, root) for other in roots if other != root)]
