"""A fork: a session that begins with a part of another one's log (`spec/session-log.md` §12).

Pure: the source is read and stays as it is, and nothing is stored or published here. What the fork takes over
is immutable and shared, packed runs stay packed.
"""

from typing import Literal, NoReturn, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from dsh.session.entry_list import HeldEntries
from dsh.session.error import SessionForkError
from dsh.session.header import SessionHeader, header_from_json
from dsh.session.log import Clock, Session, now_ms
from dsh.session.value import MAX_SAFE_INT, safe_int

ForkCode: TypeAlias = Literal[
    "SESSION_ALREADY_EXISTS", "SESSION_NOT_FOUND", "SESSION_NOT_LIVE", "INVALID_BOUNDARY", "OPEN_TURN"
]
"""Why a fork is refused, in the order in which it is found out. The first three are the store's to tell."""


class ForkSeed(Struct, frozen=True, kw_only=True):
    """What a fork begins with."""

    parent: SessionHeader
    """The fork takes over all that is not about the parent alone."""
    seed_length: int
    """The number of inherited events."""
    entries: HeldEntries

    def header(self, child_id: str, created_at: int) -> SessionHeader:
        """The header of the fork.

        Args:
            created_at: epoch milliseconds.

        Raises:
            InvalidHeader: the id is empty, or a field of the parent breaks its rule.
        """
        made = replace(
            self.parent,
            id=child_id,
            created_at=created_at,
            parent_session=self.parent.id,
            seed_length=self.seed_length,
        )
        return header_from_json(made.to_json(), child_id)

    def session(self, child_id: str, *, clock: Clock = now_ms) -> Session:
        """The fork as a session of its own, which ends with `session/end-seed`; nobody hears of it.

        Raises:
            InvalidHeader: as `header`.
        """
        session = Session(self.header(child_id, clock()), clock=clock)
        for entry, line in self.entries.lines():
            session.load(entry, line=line)
        session.end_seed()
        return session


def fork_of(session: Session, boundary: int | None = None) -> ForkSeed:
    """What a fork of a session begins with.

    Args:
        session: live, or the session behind the view of a stored log.
        boundary: seq of the last event that is inherited; without it all of them are.

    Raises:
        SessionForkError: `INVALID_BOUNDARY`, there is no such event; `OPEN_TURN`, the boundary lies inside a
            turn that had not ended there.
    """
    stop = _stop(session, boundary)
    _check_balanced(session, stop)
    return ForkSeed(parent=session.header, seed_length=stop, entries=session.snapshot(stop))


def boundary_of_turn(session: Session, turn: int) -> int:
    """The seq of the `turn/end` of a turn: the boundary of a fork that ends with that turn.

    Raises:
        SessionForkError: `INVALID_BOUNDARY`, the session has no such turn; `OPEN_TURN`, it has not ended.
    """
    found: int | None = None
    started = False
    for event in session.select("turn/start", "turn/end"):
        if isinstance(event.data, dict) and safe_int(event.data.get("turn")) == turn:
            started = True
            found = event.seq if event.type == "turn/end" else found
    if found is not None:
        return found
    if started:
        raise SessionForkError(
            "OPEN_TURN", f"turn {turn} of session {session.id} has not ended", hint="choose an earlier turn"
        )
    last = session.last_turn
    has = f"its turns are 1 to {last}" if last else "it has no turns"
    raise SessionForkError(
        "INVALID_BOUNDARY", f"session {session.id} has no turn {turn}: {has}", hint="choose one of its turns"
    )


def _stop(session: Session, boundary: int | None) -> int:
    length = session.length
    if boundary is None:
        return length
    if type(boundary) is not int or not 0 <= boundary <= MAX_SAFE_INT or boundary >= length:
        _no_boundary(session, boundary)
    return boundary + 1


def _no_boundary(session: Session, boundary: object) -> NoReturn:
    has = f"its events are 0 to {session.length - 1}" if session.length else "it has no events"
    raise SessionForkError(
        "INVALID_BOUNDARY",
        f"the boundary of a fork of session {session.id} is the seq of one of its events, "
        f"found {boundary!r:.60}: {has}",
        hint="leave the boundary out to take over the whole log",
    )


def _check_balanced(session: Session, stop: int) -> None:
    """Refuse a boundary whose last turn bracket opens: a fork continues between turns only."""
    event = session.last_before(stop, "turn/start", "turn/end")
    if event is None or event.type == "turn/end":
        return
    turn = event.data.get("turn") if isinstance(event.data, dict) else None
    raise SessionForkError(
        "OPEN_TURN",
        f"turn {turn!r:.20} of session {session.id} is open at seq {stop - 1}",
        hint="fork at the end of a turn, or wait until this one has ended",
    )
