"""Row `fs-observation-policy`: a session may change a file only in the version that it has seen.

An event-only row. It remembers for each live session which version of which file it saw last, and answers
the two intents from that. Versions are logged as `fs/observation` (ignorable), so that a session that is
resumed, or a row that is mounted again, knows them: as long as the file still has that version.
"""

from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

import msgspec

from dsh.capabilities.fs import (
    FS,
    FS_EDIT_INTENT,
    FS_OBSERVED,
    FS_WRITE_INTENT,
    CreateIfAbsent,
    FsActor,
    FsEditIntent,
    FsError,
    FsIntent,
    FsObservation,
    FsObserved,
    FsTarget,
    FsWriteIntent,
    Present,
    ReplaceIfVersion,
)
from dsh.kernel import Context, ServiceKey
from dsh.session.log import Session
from dsh.unicode import valid

OBSERVATIONS: ServiceKey["Observations"] = ServiceKey("fsObservations")
"""Provided so that there is one: the first answers every intent, a second would never be asked."""

provide = [OBSERVATIONS]

OBSERVATION = "fs/observation"
"""`{targetKey, version}`: the session has seen this version of this file, by reading or writing it."""


class Config(msgspec.Struct, forbid_unknown_fields=True):
    """The row has no options."""


class _Seen:
    """What one session saw: in this life of the row, and what its log says of earlier ones."""

    __slots__ = ("logged", "now")

    def __init__(self, session: Session) -> None:
        self.now: dict[str, FsObservation] = {}
        self.logged: dict[str, str] = {}
        """The last logged version of each file."""
        for event in session.select(OBSERVATION):
            match event.data:
                case {"targetKey": str(key), "version": str(version)}:
                    self.logged[key] = version
                case _:  # ignorable: another program may mean something else by it
                    continue


class Observations:
    """What each session saw last of each file. Sessions are told apart by identity and held weakly."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._seen: WeakKeyDictionary[Session, _Seen] = WeakKeyDictionary()

    async def of(self, actor: FsActor, target: FsTarget) -> FsObservation | None:
        """The last observation; None for a file not seen and for an actor without an agent.

        What only the log tells counts where the file still is as it was then.
        """
        owner = actor.agent
        if owner is None:
            return None
        seen = self._of_session(owner.session)
        now = seen.now.get(target.target_key)
        if now is not None:
            return now
        version = seen.logged.get(target.target_key)
        if version is None or version != await self._version(target):
            return None
        return Present(version)

    def record(self, observed: FsObserved) -> None:
        """A listener of `fs/observed`. A version that is new to the log is logged."""
        owner = observed.actor.agent
        if owner is None:
            return
        key, seen = observed.target.target_key, self._of_session(owner.session)
        seen.now[key] = observed.observation
        match observed.observation:
            case Present(version) if seen.logged.get(key) != version and valid(key) == key:
                owner.session.append(OBSERVATION, {"targetKey": key, "version": version}, ignorable=True)
                seen.logged[key] = version
            case _:
                pass

    async def write_intent(
        self, request: FsIntent, _next: Callable[[], Awaitable[FsWriteIntent | None]]
    ) -> FsWriteIntent:
        """Over the version that was seen, else only where nothing is."""
        match await self.of(request.actor, request.target):
            case Present(version):
                return ReplaceIfVersion(version)
            case _:
                return CreateIfAbsent()

    async def edit_intent(
        self, request: FsIntent, _next: Callable[[], Awaitable[FsEditIntent | None]]
    ) -> FsEditIntent:
        """The version that was seen.

        Raises:
            FsError: `FS_NOT_OBSERVED`, or `FS_NOT_FOUND` where the file was seen to be missing.
        """
        shown = request.target.display_path
        match await self.of(request.actor, request.target):
            case Present(version):
                return FsEditIntent(version)
            case None:
                raise FsError("FS_NOT_OBSERVED", f'edit requires reading "{shown}" first')
            case _:
                raise FsError("FS_NOT_FOUND", f'cannot edit "{shown}": not found')

    def _of_session(self, session: Session) -> _Seen:
        seen = self._seen.get(session)
        if seen is None:
            seen = self._seen[session] = _Seen(session)
        return seen

    async def _version(self, target: FsTarget) -> str | None:
        """The version of the file as it is; None where that cannot be told."""
        files = self._ctx.get(FS)
        if files is None:
            return None
        try:
            info = await files.stat(target)
        except FsError:
            return None
        return info.version if info is not None else None


def apply(ctx: Context, config: Config) -> None:
    seen = Observations(ctx)
    ctx.provide(OBSERVATIONS, seen)
    ctx.on(FS_WRITE_INTENT, seen.write_intent)
    ctx.on(FS_EDIT_INTENT, seen.edit_intent)
    ctx.on(FS_OBSERVED, seen.record)
