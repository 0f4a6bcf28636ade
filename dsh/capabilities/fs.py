"""The files of one execution world, as a service: twelve primitives, their errors, and the policy events.

There is no delete, rename, copy, watch or recursive listing here. `target_key` and `version` are opaque
to everyone but the provider: compare them, keep them, never read anything out of them.
"""

from collections.abc import AsyncGenerator, Awaitable
from typing import Literal, Protocol

import msgspec

from dsh.capabilities.agent import AgentRef
from dsh.capabilities.sandbox import SandboxMode, SandboxPolicy
from dsh.errors import DshError
from dsh.kernel import CancelToken, Event, ServiceKey

FsErrorCode = Literal[
    "FS_NOT_FOUND",
    "FS_NOT_DIRECTORY",
    "FS_NOT_TEXT",
    "FS_NOT_REGULAR_FILE",
    "FS_TOO_LARGE",
    "FS_PERMISSION_DENIED",
    "FS_SANDBOX_DENIED",
    "FS_IO_ERROR",
    "FS_STALE_VERSION",
    "FS_NOT_OBSERVED",
    "FS_AMBIGUOUS_EDIT",
    "FS_EDIT_NOT_FOUND",
    "FS_ABORTED",
]

FsType = Literal["file", "directory", "other"]


class FsError(DshError):
    """A file operation was refused or failed. Always has a code; the message names the path."""

    def __init__(self, code: FsErrorCode, message: str, *, hint: str = "") -> None:
        super().__init__(message, code=code, hint=hint)
        self.fs_code: FsErrorCode = code


class FsTarget(msgspec.Struct, frozen=True, rename="camel"):
    """One file or directory, whether it exists or not. Aliases of it share `target_key`."""

    target_key: str
    display_path: str
    """Absolute, links not resolved: what people and models are shown."""

    def __post_init__(self) -> None:
        if not self.target_key or not self.display_path:
            raise AssertionError("a file target has neither an empty key nor an empty path")


class FsInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a target is, links followed."""

    version: str
    """Changes whenever content or metadata do."""
    type: FsType
    size: int | None = None
    """Bytes; regular files only."""


class FsPathInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a path is, its last component not followed."""

    version: str
    type: Literal["file", "directory", "other", "symlink"]
    size: int | None = None


class FsDirEntry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A direct child of a directory. One that vanished meanwhile is `other` without a version."""

    name: str
    type: FsType
    target: FsTarget
    version: str | None = None
    size: int | None = None


class CreateIfAbsent(msgspec.Struct, frozen=True, tag_field="kind", tag="createIfAbsent"):
    """Write only where nothing is."""


class ReplaceIfVersion(msgspec.Struct, frozen=True, tag_field="kind", tag="replaceIfVersion"):
    """Write only over this version."""

    version: str


FsWriteIntent = CreateIfAbsent | ReplaceIfVersion


class FsEditIntent(msgspec.Struct, frozen=True):
    """Edit only this version."""

    version: str


class FsWriteOutcome(msgspec.Struct, frozen=True):
    """A write that was published."""

    operation: Literal["create", "update"]
    version: str
    before: str | None
    """Old text with LF line breaks, for a diff; None for a new file and where it is not to be had."""
    after: str
    note: str | None = None
    """Something the caller should know about how it was written (hard links)."""


class FsEditRequest(msgspec.Struct, frozen=True, rename="camel"):
    """A literal replacement."""

    old_string: str
    new_string: str
    replace_all: bool = False


class FsEditOutcome(msgspec.Struct, frozen=True):
    """An edit that was published. Both texts have LF line breaks."""

    version: str
    before: str
    after: str
    note: str | None = None


class Present(msgspec.Struct, frozen=True, tag_field="kind", tag="present"):
    """A file was seen in this version."""

    version: str

    def __post_init__(self) -> None:
        if not self.version:
            raise AssertionError("an observed version is not empty")


class Absent(msgspec.Struct, frozen=True, tag_field="kind", tag="absent"):
    """A file was looked for and was not there."""


FsObservation = Present | Absent


class FileSystem(Protocol):
    """The service. Every method raises `FsError` alone; a cancelled signal is `FS_ABORTED`.

    A provider that confines asks `sandbox_policy`, its default policy where none is given: what the policy
    does not let a call read or change is `FS_SANDBOX_DENIED`.
    """

    @property
    def sandbox_mode(self) -> SandboxMode | None:
        """The default mode of a provider that confines writes, else None."""

    async def resolve(
        self, path: str, cwd: str | None = None, *, signal: CancelToken | None = None
    ) -> FsTarget:
        """The identity of a path, relative to `cwd` or to the provider's default directory."""

    def target_of(self, path: str, cwd: str | None = None) -> FsTarget:
        """`resolve` at once, on the calling thread: a few metadata calls. For the scheduler's keys."""

    def process_path(self, target: FsTarget) -> str:
        """An absolute path that a child process may open."""

    def file_url(self, target: FsTarget) -> str:
        """The canonical `file:` URI."""

    def contains(self, parent: FsTarget, child: FsTarget) -> bool:
        """Whether `child` is `parent` or lies below it."""

    async def stat(
        self,
        target: FsTarget,
        *,
        signal: CancelToken | None = None,
        sandbox_policy: SandboxPolicy | None = None,
    ) -> FsInfo | None:
        """What it is; None where nothing is (a parent that is a file included)."""

    async def lstat(
        self, path: str, cwd: str | None = None, *, signal: CancelToken | None = None
    ) -> FsPathInfo | None:
        """The same without following the last component."""

    async def read_text(
        self,
        target: FsTarget,
        *,
        signal: CancelToken | None = None,
        sandbox_policy: SandboxPolicy | None = None,
    ) -> str:
        """A whole regular UTF-8 file. Line breaks and a byte order mark stay as they are."""

    def stream_text(
        self,
        target: FsTarget,
        *,
        signal: CancelToken | None = None,
        sandbox_policy: SandboxPolicy | None = None,
    ) -> AsyncGenerator[str, None]:
        """The same in pieces and bounded memory. Close the iterator when leaving it early."""

    async def read_bytes(
        self,
        target: FsTarget,
        *,
        max_bytes: int,
        signal: CancelToken | None = None,
        sandbox_policy: SandboxPolicy | None = None,
    ) -> bytes:
        """A whole regular file of at most `max_bytes`; a longer one is `FS_TOO_LARGE`."""

    async def list_dir(
        self,
        target: FsTarget,
        *,
        signal: CancelToken | None = None,
        sandbox_policy: SandboxPolicy | None = None,
    ) -> list[FsDirEntry]:
        """Direct children by name."""

    async def write_text(
        self,
        target: FsTarget,
        content: str,
        *,
        expected: FsWriteIntent | None = None,
        signal: CancelToken | None = None,
        sandbox_policy: SandboxPolicy | None = None,
    ) -> FsWriteOutcome:
        """Create or replace a file with exactly this content, atomically."""

    async def edit_text(
        self,
        target: FsTarget,
        edit: FsEditRequest,
        *,
        expected: FsEditIntent | None = None,
        signal: CancelToken | None = None,
        sandbox_policy: SandboxPolicy | None = None,
    ) -> FsEditOutcome:
        """Check the version, match and replace in one critical section. Other bytes stay as they are."""


FS: ServiceKey[FileSystem] = ServiceKey("fs")


class FsActor(Protocol):
    """Who touches a file: a tool's execution, or anything else that may belong to an agent."""

    @property
    def agent(self) -> AgentRef | None: ...


class FsIntent(msgspec.Struct, frozen=True, eq=False):
    """Payload of the two intent events."""

    target: FsTarget
    actor: FsActor


class FsObserved(msgspec.Struct, frozen=True, eq=False):
    """Payload of `fs/observed`."""

    target: FsTarget
    observation: FsObservation
    actor: FsActor


FS_WRITE_INTENT: Event[FsIntent, Awaitable[FsWriteIntent | None]] = Event(
    "fs/write-intent", "waterfall", scoped=lambda intent: intent.actor.agent
)
"""Under which condition may this file be written? A listener that answers without calling next decides."""

FS_EDIT_INTENT: Event[FsIntent, Awaitable[FsEditIntent | None]] = Event(
    "fs/edit-intent", "waterfall", scoped=lambda intent: intent.actor.agent
)
"""Which version may be edited? May raise `FsError`."""

FS_OBSERVED: Event[FsObserved, None] = Event("fs/observed", "emit", scoped=lambda seen: seen.actor.agent)
"""A file was seen, or seen to be missing. Listeners record synchronously; one that raises fails the call."""
