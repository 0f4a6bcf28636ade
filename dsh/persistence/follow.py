"""What every persistence row does with its coordinator: it follows the live sessions, to their end.

The row decides which sessions are followed. Those that are, are followed to their end, which may come after
the row's own: an agent that is mounted before it and ends with the tree still has its last events stored.
"""

from collections.abc import Awaitable, Callable, Iterator

from dsh.kernel import Context, Effect
from dsh.persistence.coordinator import Coordinator
from dsh.persistence.service import PERSISTENCE
from dsh.session.log import Session
from dsh.session.store import (
    SESSION_CREATED,
    SESSION_DELTA,
    SESSION_DISPOSED,
    SESSION_EVENT,
    SESSION_FLUSH,
    SESSIONS,
    Appended,
    DeltaAppended,
)


async def follow_sessions(ctx: Context, coordinator: Coordinator, name: str) -> None:
    """Provide `sessionPersistence` and store every live session. `name` says where, for the journal."""

    def created(session: Session) -> None:
        coordinator.attach(session, is_new=True)

    def appended(told: Appended | DeltaAppended) -> None:
        coordinator.appended(told.session)

    def serve(store: Context) -> Iterator[Effect | Callable[[], Awaitable[None]]]:
        yield coordinator.close
        yield store.on(SESSION_EVENT, appended)
        yield store.on(SESSION_DELTA, appended)
        yield store.on(SESSION_FLUSH, coordinator.flush)
        yield store.on(SESSION_DISPOSED, coordinator.retire)

    ctx.provide(PERSISTENCE, coordinator)
    sessions = ctx.use(SESSIONS)
    await sessions.keep("session persistence", serve)
    ctx.effect(lambda: coordinator.leave, f"follow sessions for {name}")
    ctx.on(SESSION_CREATED, created)
    for session in sessions.list():
        coordinator.attach(session)
