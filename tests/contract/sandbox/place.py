"""Where the escapes are tried: a workspace, and beside it what no command may touch."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities import launcher, scratch
from dsh.capabilities.sandbox import SANDBOX_POLICY, BackendReport, SandboxMode
from dsh.capabilities.shell import SHELL, Shell, ShellProcess, ShellRequest, ShellResult
from dsh.capabilities.subprocess import SUBPROCESS
from dsh.kernel import Context
from dsh.plugins import bash_sandbox, sandbox, sandbox_policy
from dsh.plugins import subprocess as subprocess_row
from dsh.plugins.sandbox.backend import Backend, Prober
from dsh.plugins.sandbox.bwrap import Bwrap
from dsh.plugins.sandbox.landlock import Landlock
from tests.nobody import NOBODY, unprivileged

BACKENDS: dict[str, type[Backend]] = {"bwrap": Bwrap, "landlock": Landlock}
USERS = ("root", "nobody") if os.geteuid() == 0 else ("nobody",)
SYSTEM_PYTHON = "/usr/bin/python3"


class Place:
    """`ws` is the workspace. All else in `outside` belongs to somebody else, and so does the victim."""

    def __init__(self, root: Path) -> None:
        self.outside = root
        self.ws = root / "ws"
        self.ws.mkdir()
        self.file = root / "file"
        self.file.write_text("theirs")
        self.file.chmod(0o644)
        os.utime(self.file, (1_000_000, 1_000_000))
        (self.ws / "linked").hardlink_to(self.file)
        (self.ws / "out").symlink_to(root)
        (root / "secret").write_text("hush")
        self.victim = subprocess.Popen(
            ["sleep", "300"], env={"SECRET": "hush", "PATH": os.environ["PATH"]}, cwd="/var/tmp"
        )
        self.number = os.urandom(4).hex()
        self.size = 100_000 + int(self.number, 16) % 900_000
        self.sockets: list[socket.socket] = []

    def listen(self, address: str) -> None:
        """A socket of the host's that something may come through."""
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(address)
        listening.listen()
        self.sockets.append(listening)

    def listen_tcp(self) -> int:
        """The port of a server on the loopback address, of both kinds."""
        while True:
            listening = socket.socket()
            listening.bind(("127.0.0.1", 0))
            port = int(listening.getsockname()[1])
            self.datagrams = socket.socket(type=socket.SOCK_DGRAM)
            self.sockets += [listening, self.datagrams]
            with contextlib.suppress(OSError):  # somebody else has this port of the other kind
                self.datagrams.bind(("127.0.0.1", port))
                listening.listen()
                return port

    def has_datagram(self) -> bool:
        """Whether one came to that port. On the loopback device it is there when it was sent."""
        self.datagrams.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            return bool(self.datagrams.recv(16))
        return False

    def is_untouched(self) -> bool:
        """Whether everything outside is as it was."""
        names = {path.name for path in self.outside.iterdir()}
        if names != {"ws", "file", "secret"}:
            return False
        info = self.file.stat()
        return (
            self.file.read_text() == "theirs"
            and info.st_mode & 0o777 == 0o644
            and info.st_mtime == 1_000_000
            and self.victim.poll() is None
        )

    def close(self) -> None:
        for listening in self.sockets:
            listening.close()
        with contextlib.suppress(ProcessLookupError):
            self.victim.send_signal(signal.SIGKILL)
        self.victim.wait()


@contextmanager
def user(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For the length of the block this process is that user's, temporary folder and interpreter included."""
    is_other = name == "nobody" and os.geteuid() == 0
    monkeypatch.setattr(scratch, "_folder", None)
    if is_other:
        monkeypatch.setattr(sys, "executable", _reachable_python())
    try:
        with unprivileged() if is_other else contextlib.nullcontext():
            try:
                yield
            finally:
                scratch.remove()
    finally:
        monkeypatch.undo()


def _reachable_python() -> str:
    for path in (os.path.realpath(sys.executable), SYSTEM_PYTHON):
        folders = Path(path).resolve().parents
        if Path(path).exists() and all(folder.stat().st_mode & 0o001 for folder in folders):
            return path
    pytest.skip("no Python interpreter that another user may run")


@contextmanager
def place(base: str = "/var/tmp") -> Iterator[Place]:
    """A place of the user that this process is, in a folder that no backend opens by itself."""
    root = Path(os.path.realpath(tempfile.mkdtemp(prefix="dsh-escape-", dir=base)))
    made = Place(root)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(root, ignore_errors=True)


class Walls:
    """The shell under one policy."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx

    async def run(self, command: str, workdir: str, mode: SandboxMode | None = None) -> ShellResult:
        shell, request = self._asked(command, workdir, mode)
        return await shell.run(request)

    async def start(self, command: str, workdir: str) -> ShellProcess:
        shell, request = self._asked(command, workdir, None)
        return await shell.start(request)

    def _asked(self, command: str, workdir: str, mode: SandboxMode | None) -> tuple[Shell, ShellRequest]:
        shell, policies = self.ctx.get(SHELL), self.ctx.get(SANDBOX_POLICY)
        assert shell is not None and policies is not None
        policy = policies.resolve(mode=mode)
        return shell, ShellRequest(command=command, workdir=workdir, sandbox_policy=policy, timeout_ms=20_000)


async def report_of(ctx: Context, backend: str) -> BackendReport:
    service = ctx.get(SUBPROCESS)
    assert service is not None
    return await BACKENDS[backend]().probe(Prober(service, 10_000))


@asynccontextmanager
async def walls(backend: str, monkeypatch: pytest.MonkeyPatch, **policy: Any) -> AsyncIterator[Walls]:
    """The rows with this backend alone. Skips where it does not work, with the reason."""
    ctx = Context()
    monkeypatch.setattr(sandbox, "backends_of", lambda config: (BACKENDS[backend](),))
    try:
        await ctx.plugin(subprocess_row)
        report = await report_of(ctx, backend)
        if report.enforcement is None:
            pytest.skip(f"{backend} does not work here: {report.reason}")
        await ctx.plugin(sandbox)
        await ctx.plugin(sandbox_policy, {"mode": "workspace-write", **policy})
        await ctx.plugin(bash_sandbox, {"graceMs": 300})
        yield Walls(ctx)
    finally:
        await ctx.dispose()


def landlock_abi() -> int:
    """The version of Landlock here, 0 without."""
    done = subprocess.run(launcher.probe_command(), capture_output=True, text=True, check=False)
    return int(done.stdout.strip().removeprefix(launcher.PROBE_PREFIX) or 0)


__all__ = ["BACKENDS", "NOBODY", "USERS", "Place", "Walls", "landlock_abi", "place", "user", "walls"]
