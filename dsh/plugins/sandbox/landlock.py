"""The backend `landlock`: the launcher walls itself in before it becomes the command.

Always partial. Landlock knows paths that are opened, not what lies below them: it cannot close a part of an
open tree, nor keep a process from changing the mode, the owner or the times of a file outside, nor from
talking to a socket that has a path.
"""

import os
from collections.abc import Iterator, Sequence

from dsh.capabilities import launcher
from dsh.capabilities.confined_end import status_pipe
from dsh.capabilities.local_fs.fence import writable_roots
from dsh.capabilities.local_fs.path import is_within
from dsh.capabilities.sandbox import BackendReport, Confined, SandboxPolicy, SandboxUnavailable
from dsh.plugins.sandbox.backend import Prober

DENIALS = ("permission denied",)
DEVICES = (
    "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx",
    "/dev/pts", "/dev/shm",
)  # fmt: skip
NETWORK_ABI = 4
GAPS = (
    (2, "files cannot be moved between directories"),
    (3, "a file outside can be emptied"),
    (5, "devices can be controlled"),
    (6, "signals and abstract sockets reach other processes"),
)
"""What is missing below each version."""
ALWAYS = "modes, owners and times of files outside can be changed, .git/hooks and .dsh are not protected"


class Landlock:
    """Implements `dsh.plugins.sandbox.backend.Backend`."""

    name = "landlock"

    def __init__(self) -> None:
        self._abi = 0

    async def probe(self, prober: Prober) -> BackendReport:
        with status_pipe() as pipe:
            argv = launcher.command(
                launcher.probe_command(),
                status_fd=pipe.fd,
                readable=("/",),
                writable=_devices(),
            )
            trial = await prober.run(argv, pipe)
        if trial is None:
            return BackendReport(self.name, None, f"it did not answer within {prober.timeout_ms} ms")
        failure = launcher.read_status(trial.status)
        version = trial.stdout.strip().removeprefix(launcher.PROBE_PREFIX)
        if failure is not None or trial.exit_code != 0 or not version.isdecimal() or version == "0":
            reason = failure or trial.words or "it answered something else than its version"
            return BackendReport(self.name, None, reason, "boot a kernel from 5.13 on with lsm=landlock")
        self._abi = int(version)
        gaps = [text for abi, text in GAPS if self._abi < abi]
        return BackendReport(self.name, "partial", "; ".join((f"ABI {self._abi}", ALWAYS, *gaps)))

    def confine(
        self, argv: Sequence[str], policy: SandboxPolicy, *, cwd: str | None, status_fd: int | None
    ) -> Confined:
        if not policy.is_network_open and self._abi < NETWORK_ABI:
            raise SandboxUnavailable(
                f"Landlock cannot close the network before ABI {NETWORK_ABI}, this is {self._abi}; "
                "the command was not run",
                hint="install bubblewrap, or open the network (sandbox-policy.network)",
            )
        roots = [root for root in writable_roots(policy) if os.path.isdir(root)]
        _refuse_hidden(policy, roots)
        hidden = [path for path in policy.hidden_paths if os.path.lexists(path)]
        words = launcher.command(
            list(argv),
            status_fd=status_fd,
            readable=() if hidden else ("/",),
            readable_if_there=tuple(_beside(hidden)) if hidden else (),
            writable=(*_devices((policy.workspace_root, *policy.extra_roots)), *roots),
            is_network_open=policy.is_network_open,
        )
        return Confined(
            argv=tuple(words),
            enforcement="partial",
            runner=self.name,
            status="launcher" if status_fd is not None else "none",
            denial_signatures=DENIALS,
            failure_signatures=(launcher.PREFIX,),
        )


def _devices(projects: Sequence[str] = ()) -> tuple[str, ...]:
    """The devices that are open in every mode, but for a folder of theirs in which a project lies."""
    return tuple(
        path
        for path in DEVICES
        if os.path.exists(path) and not any(is_within(path, root) for root in projects)
    )


def _refuse_hidden(policy: SandboxPolicy, roots: Sequence[str]) -> None:
    for path in policy.hidden_paths:
        for root in roots:
            if is_within(root, path) or is_within(path, root):
                raise SandboxUnavailable(
                    f"Landlock cannot hide {path!r} and let {root!r} be changed, one lies in the other; "
                    "the command was not run",
                    hint="install bubblewrap, or take the path out of sandbox-policy.hiddenPaths",
                )


def _beside(hidden: Sequence[str]) -> Iterator[str]:
    """All that lies beside the ways to what is hidden: to hide something is to open all the rest."""
    pending = ["/"]
    while pending:
        folder = pending.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:  # what cannot be listed stays closed
            continue
        for entry in entries:
            if entry.path in hidden:
                continue
            if any(is_within(entry.path, path) for path in hidden):
                pending.append(entry.path)
            elif not entry.is_symlink():
                yield entry.path
