"""The live sessions of the program, as a service, and the events about them.

A session is built unpublished (`prepare`), registered (`enter`) and made known (`announce`); `create` does
all three as one effect of the caller (`spec/session-log.md` §15).
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal

from msgspec import Struct

from dsh.kernel import Context, Effect, Event, ScopeTarget, Service, ServiceKey
from dsh.session.chunk_run import Entry
from dsh.session.error import SessionError, SessionExists, SessionForkError, SessionNotLive
from dsh.session.event import SessionEvent
from dsh.session.fork import fork_of
from dsh.session.header import SessionHeader, header_from_json
from dsh.session.log import Clock, Session, now_ms
from dsh.session.value import JsonObject


class Appended(Struct, frozen=True):
    """What observers of a log get after the commit of an event."""

    session: Session
    seq: int
    event: SessionEvent


class DeltaAppended(Struct, frozen=True):
    """What observers of streams get after the commit of a packed delta."""

    session: Session
    seq: int
    """`session.event(seq)` makes its event, at a price."""


SESSION_CREATED: Event[Session, None] = Event("session/created", "emit", scoped=True)
"""A session is live. A listener that raises vetoes it."""
SESSION_EVENT: Event[Appended, None] = Event("session/event", "emit", contained=True, scoped=True)
"""An event is in the log, and it is no packed delta. Appending to the same session from here is refused."""
SESSION_DELTA: Event[DeltaAppended, None] = Event("session/delta", "emit", contained=True, scoped=True)
"""A packed delta of a stream is in the log. Told for every piece of a reply: each listener costs as often."""
SESSION_DISPOSED: Event[Session, None] = Event("session/disposed", "emit", contained=True, scoped=True)
"""An announced session has left the store."""
SESSION_FLUSH: Event[Session, None] = Event("session/flush", "parallel", scoped=True)
"""Make everything logged so far durable."""

SESSIONS: "ServiceKey[SessionStore]" = ServiceKey("sessions")

Detach = Callable[[], None]


class _Live:
    """One registered session: who hears of it, and what is going on with it right now."""

    __slots__ = ("announced", "announcing", "detached", "publishing", "session", "subject", "wanted")

    def __init__(self, session: Session, subject: ScopeTarget) -> None:
        self.session = session
        self.subject = subject
        self.announced = self.announcing = self.publishing = self.detached = False
        self.wanted = False
        """A detach was asked for during a dispatch and waits for its end."""


class SessionStore(Service):
    """The sessions that are live in this process, by id."""

    provide = SESSIONS

    def __init__(self, ctx: Context, *, clock: Clock = now_ms) -> None:
        self._live: dict[str, _Live] = {}
        self._kept: dict[str, Effect] = {}
        self._clock = clock
        super().__init__(ctx)

    def get(self, session_id: str) -> Session | None:
        """The live session with this id."""
        live = self._live.get(session_id)
        return None if live is None else live.session

    def list(self) -> "tuple[Session, ...]":
        """The live sessions in the order they were registered."""
        return tuple(live.session for live in self._live.values())

    def prepare(
        self,
        session_id: str | None = None,
        *,
        cwd: str | None = None,
        parent_session: str | None = None,
        seed_length: int | None = None,
        origin: Literal["subagent"] | None = None,
        delegation_depth: int | None = None,
        agent_preset: str | None = None,
        seed: Iterable[JsonObject | Entry] | None = None,
    ) -> Session:
        """Build a session that nobody hears of yet. Without an id it is `session-<n>`, the next one free.

        Raises:
            SessionExists: the id is live.
            InvalidHeader, InvalidEvent: a header field or a seed event breaks a rule.
        """
        if session_id is None:
            session_id = self._free_id()
        self._refuse_live(session_id)
        made = SessionHeader(
            id=session_id,
            created_at=self._clock(),
            cwd=cwd,
            parent_session=parent_session,
            seed_length=seed_length,
            origin=origin,
            delegation_depth=delegation_depth,
            agent_preset=agent_preset,
        )
        header = header_from_json(made.to_json(), session_id)
        if seed is None:
            return Session(header, clock=self._clock)
        return Session.seeded(header, seed, clock=self._clock)

    def enter(self, session: Session) -> Detach:
        """Register a session under the caller's scope; the answer takes it out again, once.

        A detach during an announcement or an append waits until that dispatch is over.

        Raises:
            SessionExists: the id is live, or the session belongs to a store.
        """
        self._refuse_live(session.id)
        if session.on_append is not None:
            raise SessionExists(f"session {session.id} is registered already")
        live = _Live(session, ScopeTarget(self.ctx.scope))
        self._live[session.id] = live
        ctx = self.owner_ctx

        def publish(seq: int, event: SessionEvent | None) -> None:
            live.publishing = True
            try:
                if event is None:
                    ctx.emit(SESSION_DELTA, DeltaAppended(session, seq), subject=live.subject)
                else:
                    ctx.emit(SESSION_EVENT, Appended(session, seq, event), subject=live.subject)
            finally:
                live.publishing = False
                if live.wanted and not live.announcing:
                    self._detach(live)

        session.on_append = publish

        def detach() -> None:
            if live.announcing or live.publishing:
                live.wanted = True
            else:
                self._detach(live)

        return detach

    def announce(self, session: Session) -> None:
        """Tell everybody that a registered session is there, once.

        Raises:
            SessionNotLive: it is not registered here.
            Exception: what a listener raised; the session has then been detached again.
        """
        live = self._require(session)
        if live.announced:
            raise SessionError(f"session {session.id} has been announced already")
        live.announced = live.announcing = True
        try:
            self.owner_ctx.emit(SESSION_CREATED, session, subject=live.subject)
        except BaseException:
            live.wanted = True
            raise
        finally:
            live.announcing = False
            if live.wanted:
                self._detach(live)

    def create(
        self,
        session_id: str | None = None,
        *,
        cwd: str | None = None,
        seed: Iterable[JsonObject | Entry] | None = None,
    ) -> "tuple[Session, Effect]":
        """Prepare, register and announce as one effect of the caller; undoing it takes the session out."""
        session = self.prepare(session_id, cwd=cwd, seed=seed)
        return session, self._publish(session)

    def _publish(self, session: Session) -> Effect:
        def setup() -> Detach:
            detach = self.enter(session)
            self.announce(session)
            return detach

        return self.ctx.effect(setup, f"session {session.id}")

    def fork(
        self, source: Session | str, boundary: int | None = None, child_id: str | None = None
    ) -> "tuple[Session, Effect]":
        """Create a session that begins with the log of a live one; as `create`, an effect of the caller.

        The child takes over workspace, preset, delegation depth and origin, but nothing that waits in the
        inbox. What either side appends afterwards the other one never sees.

        Args:
            boundary: seq of the last inherited event; without it all of them.

        Raises:
            SessionForkError: in this order of codes: `SESSION_ALREADY_EXISTS`, the id of the child is live;
                `SESSION_NOT_FOUND`, the source is not; `SESSION_NOT_LIVE`, its id is, for another object;
                `INVALID_BOUNDARY`; `OPEN_TURN`.
        """
        if child_id is not None and child_id in self._live:
            raise SessionForkError(
                "SESSION_ALREADY_EXISTS",
                f"a session with id {child_id!r} is live",
                hint="choose another id for the fork",
            )
        session_id = source if isinstance(source, str) else source.id
        live = self._live.get(session_id)
        if live is None:
            raise SessionForkError(
                "SESSION_NOT_FOUND",
                f"there is no live session with id {session_id!r}",
                hint="a stored session is forked through its storage",
            )
        if not isinstance(source, str) and live.session is not source:
            raise SessionForkError(
                "SESSION_NOT_LIVE",
                f"the live session with id {session_id!r} is another object",
                hint="ask the store for it",
            )
        seed = fork_of(live.session, boundary)
        child = seed.session(self._free_id() if child_id is None else child_id, clock=self._clock)
        return child, self._publish(child)

    async def flush(self, session: Session) -> bool:
        """Wait until every listener of `session/flush` is done; True when there was one.

        True is no proof of durability: any listener counts.

        Raises:
            SessionNotLive: the session is not registered here.
            Exception: the first failure, in the order of listeners, after all of them have settled.
        """
        live = self._require(session)
        took_part = bool(self.owner_ctx.kernel.events.select(SESSION_FLUSH.name, live.subject))
        try:
            await self.owner_ctx.parallel(SESSION_FLUSH, session, subject=live.subject)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        return took_part

    async def keep(self, name: str, setup: Callable[[Context], Any]) -> None:
        """Do something that lasts as long as the store and is undone after all who use the store have gone.

        So it sees the last events of every session, in whatever order the rows stand and fall. There is one
        of a name: a new one comes when the former is undone.

        Args:
            setup: what an effect is made of, given the store's own context to register listeners in.
        """
        if (former := self._kept.pop(name, None)) is not None:
            try:
                await former()
            except Exception as error:
                self.owner_ctx.logger.error("ending %s failed: %s", name, error, exc_info=error)
        ctx = self.owner_ctx
        self._kept[name] = ctx.effect(lambda: setup(ctx), name)

    def _detach(self, live: _Live) -> None:
        if live.detached:
            return
        live.detached = True
        live.session.on_append = None
        if self._live.get(live.session.id) is live:
            del self._live[live.session.id]
        if live.announced:
            self.owner_ctx.emit(SESSION_DISPOSED, live.session, subject=live.subject)

    def _free_id(self) -> str:
        number = 1
        while f"session-{number}" in self._live:
            number += 1
        return f"session-{number}"

    def _refuse_live(self, session_id: str) -> None:
        if session_id in self._live:
            raise SessionExists(f"a session with id {session_id!r} is live", code="SESSION_ALREADY_EXISTS")

    def _require(self, session: Session) -> _Live:
        live = self._live.get(session.id)
        if live is None or live.session is not session:
            raise SessionNotLive(
                f"session {session.id!r} is not registered in this store", code="SESSION_NOT_LIVE"
            )
        return live
