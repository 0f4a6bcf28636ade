"""The one place that starts processes, as a service: what to start, what comes back, how it ends."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from dsh.errors import DshError
from dsh.kernel import CancelToken, ServiceKey


class SpawnError(DshError):
    """The process could not be started: no such program, no such directory, already cancelled."""


class Collect(msgspec.Struct, frozen=True):
    """Keep the last `max_bytes` of a stream in memory; on overflow write all of it to a file too."""

    max_bytes: int
    spill_max_bytes: int | None = None
    """A stream longer than this leaves no file at all; unset: no file."""


PIPE: Literal["pipe"] = "pipe"
"""A stream that the starter reads or writes itself, piece by piece and without a limit of its own."""


class SpawnSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a process to start; nothing is guessed."""

    argv: Sequence[str]
    cwd: str
    """Absolute; must be a directory."""
    stdin: Literal["ignore", "pipe"] | bytes = "ignore"
    stdout: Collect | Literal["pipe"]
    stderr: Collect
    grace_ms: int
    """From SIGTERM to SIGKILL, and how long a pipe may stay open after the leader has exited."""
    env: Mapping[str, str | None] = msgspec.field(default_factory=dict)
    """Over the scrubbed parent environment; None removes a name."""
    signal: CancelToken | None = None
    """Cancelling it terminates the group."""
    pass_fds: tuple[int, ...] = ()
    """Descriptors that the child inherits under the same numbers."""
    dies_with_parent: bool = True
    """The child is killed when this program dies without having ended it.

    It costs a start of the interpreter. What is said to be wrong with the program before the start is the
    same; what shows only at the start makes `ProcessHandle.done` raise.
    """


class ExitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How the leader ended: by code, or by signal (`SIGTERM`). Neither: it could not be killed."""

    exit_code: int | None
    signal: str | None
    left_running: bool = False
    """Members of the group live on in the background."""
    detached: bool = False
    """A process that left the group held a pipe when it was given up: it runs on and is not ours to end."""


class Captured(msgspec.Struct, frozen=True):
    """A piece of a collected stream, decoded as UTF-8 with U+FFFD for what is not.

    It ends at a whole character: the start of one that is still coming in belongs to the next read.
    """

    text: str
    raw: bytes
    next_offset: int
    """Where the next incremental read starts, in bytes of the whole stream."""
    lossy: bool
    """Earlier bytes are no longer in memory."""
    spill_path: str | None
    """A file with the complete stream, where there is one."""


class CollectedStream(Protocol):
    """A stream that is kept while it comes in; reads consume nothing and work after the exit."""

    def read_from(self, offset: int) -> Captured: ...

    def read(self) -> Captured:
        """All that is in memory."""


class ByteWriter(Protocol):
    """Standard input of a child, in pipe mode."""

    async def write(self, data: bytes) -> None:
        """Write all of it, as fast as the child reads. A child that closed its input takes no notice."""

    def close(self) -> None: ...


class ByteReader(Protocol):
    """Standard output of a child, in pipe mode. Not read means held back: the child waits."""

    async def read(self) -> bytes:
        """The next piece; empty at the end."""

    def close(self) -> None:
        """Read no more of it. The end of the service closes it, too."""


class ProcessHandle(Protocol):
    """A started process and its group. A stream in the other mode is a `RuntimeError`."""

    @property
    def pid(self) -> int: ...

    @property
    def writer(self) -> ByteWriter:
        """Standard input; only with `stdin="pipe"`."""

    @property
    def reader(self) -> ByteReader:
        """Standard output; only with `stdout="pipe"`."""

    @property
    def stdout(self) -> CollectedStream: ...

    @property
    def stderr(self) -> CollectedStream: ...

    @property
    def done(self) -> Awaitable[ExitStatus]:
        """Ends when the leader has exited and its pipes are closed or given up; await it at will.

        Raises:
            SpawnError: the system refused the program after all (`SpawnSpec.dies_with_parent`).
        """

    async def finish(self) -> ExitStatus:
        """Wait for `done` as its owner: if the waiting task is cancelled, the group is terminated."""

    def terminate(self) -> None:
        """SIGTERM to the group, SIGKILL after the grace period. Idempotent."""

    async def wait_for_exit(self) -> bool:
        """Return when the whole group is gone; False when it was terminated and would not go."""


class TerminalSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A process to start on a terminal of its own. It dies with this program."""

    argv: Sequence[str]
    cwd: str
    """Absolute; must be a directory."""
    grace_ms: int
    """From SIGTERM to SIGKILL."""
    max_bytes: int
    """Kept of its output in memory."""
    env: Mapping[str, str | None] = msgspec.field(default_factory=dict)
    """Over the scrubbed parent environment; None removes a name."""
    columns: int = 200
    rows: int = 50


class Terminal(Protocol):
    """A started process on a pseudo-terminal, and everything in its session.

    The terminal does not echo, changes no line ends and, at first, gives input on as it comes.
    """

    @property
    def pid(self) -> int: ...

    @property
    def output(self) -> CollectedStream: ...

    @property
    def done(self) -> Awaitable[ExitStatus]:
        """As `ProcessHandle.done`."""

    async def write(self, data: bytes) -> None:
        """Type this. An interrupt or an end of input is the byte that stands for it, in line mode."""

    def set_lines(self, is_in_lines: bool) -> None:
        """Whether programs get whole lines, of at most 4,096 bytes, and the end of input can be typed."""

    async def changed(self, offset: int) -> bool:
        """Wait for output beyond the offset; False if none will come."""

    def waits_for_input(self) -> bool | None:
        """Whether a process of the session waits to read from the terminal; None if that cannot be seen."""

    def terminate(self) -> None:
        """As `ProcessHandle.terminate`, for the whole session."""

    async def wait_for_exit(self) -> bool:
        """As `ProcessHandle.wait_for_exit`."""


class Subprocess(Protocol):
    """The service."""

    def spawn(self, spec: SpawnSpec) -> ProcessHandle:
        """Start the process in a session of its own.

        Raises:
            SpawnError: it could not be started; nothing runs.
        """

    def spawn_terminal(self, spec: TerminalSpec) -> Terminal:
        """Start the process on a terminal, in a session of its own.

        Raises:
            SpawnError: it could not be started; nothing runs.
        """

    def hide(self, name: str) -> None:
        """Keep one more variable out of every child's environment while the caller is mounted."""


SUBPROCESS: ServiceKey[Subprocess] = ServiceKey("subprocess")
