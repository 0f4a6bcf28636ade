"""Row `fs-observation-policy`: a session may change a file only in the version that it has seen.

An event-only row. It remembers for each live session which version of which file it saw last, and
answers the two intents from that. Nothing is persisted: a resumed session reads again.
"""

from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

import msgspec

from dsh.capabilities.fs import (
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
    FsWriteIntent,
    Present,
    ReplaceIfVersion,
)
from dsh.kernel import Context, ServiceKey
from dsh.session.log import Session

OBSERVATIONS: ServiceKey["Observations"] = ServiceKey("fsObservations")
"""Provided so that there is one: the first answers every intent, a second would never be asked."""

provide = [OBSERVATIONS]


class Config(msgspec.Struct, forbid_unknown_fields=True):
    """The row has no options."""


class Observations:
    """What each session saw last of each file. Sessions are told apart by identity and held weakly."""

    def __init__(self) -> None:
        self._seen: WeakKeyDictionary[Session, dict[str, FsObservation]] = WeakKeyDictionary()

    def of(self, actor: FsActor, target_key: str) -> FsObservation | None:
        """The last observation; None for a file not seen and for an actor without an agent."""
        owner = actor.agent
        return self._seen.get(owner.session, {}).get(target_key) if owner is not None else None

    def record(self, observed: FsObserved) -> None:
        owner = observed.actor.agent
        if owner is not None:
            self._seen.setdefault(owner.session, {})[observed.target.target_key] = observed.observation

    async def write_intent(
        self, request: FsIntent, _next: Callable[[], Awaitable[FsWriteIntent | None]]
    ) -> FsWriteIntent:
        """Over the version that was seen, else only where nothing is."""
        match self.of(request.actor, request.target.target_key):
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
        match self.of(request.actor, request.target.target_key):
            case Present(version):
                return FsEditIntent(version)
            case None:
                raise FsError("FS_NOT_OBSERVED", f'edit requires reading "{shown}" first')
            case _:
                raise FsError("FS_NOT_FOUND", f'cannot edit "{shown}": not found')


def apply(ctx: Context, config: Config) -> None:
    seen = Observations()
    ctx.provide(OBSERVATIONS, seen)
    ctx.on(FS_WRITE_INTENT, seen.write_intent)
    ctx.on(FS_EDIT_INTENT, seen.edit_intent)
    ctx.on(FS_OBSERVED, seen.record)
