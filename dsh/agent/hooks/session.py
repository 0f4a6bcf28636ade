"""What the hooks of one row share for each session: the way to run them, and what is remembered of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from dsh.agent.hooks import payload
from dsh.agent.hooks.config import HookConfig
from dsh.agent.hooks.dialect import Dialect, Point
from dsh.agent.hooks.outcome import NOTHING, Outcome
from dsh.agent.hooks.runner import HookRunner
from dsh.agent.hooks.start import Beginning
from dsh.kernel import CancelToken, Context
from dsh.persistence.service import PERSISTENCE
from dsh.session.log import Session
from dsh.session.message import Message, text_block, user_message
from dsh.session.store import SESSIONS
from dsh.session.value import JsonValue


class Memory:
    """What is remembered of one agent."""

    def __init__(self) -> None:
        self.beginning: Beginning | None = None
        """The hooks of the session's start, until their context is delivered."""
        self.stop: tuple[int, str] | None = None
        """A hook wants this turn to stop, and why."""
        self.forced: tuple[int, int] = (0, 0)
        """How often in a row a turn was kept going: turn and times."""
        self.proposed: list[JsonValue] = []
        """Calls that hooks have asked for in place of others: name and arguments."""


class SessionHooks:
    """Runs hooks for sessions. State: a memory for each live agent, by its session."""

    def __init__(
        self, ctx: Context, dialect: Dialect, runner: HookRunner, config: HookConfig, model: str
    ) -> None:
        """`model` is told to hooks that ask for it; empty: the one the agent began with."""
        self.ctx, self.dialect, self.runner, self.config = ctx, dialect, runner, config
        self._model = model
        self._memories: WeakKeyDictionary[Session, Memory] = WeakKeyDictionary()

    def memory(self, session: Session) -> Memory:
        return self._memories.setdefault(session, Memory())

    def forget(self, session: Session) -> None:
        """The agent is gone; nobody waits for the hooks of its start."""
        memory = self._memories.pop(session, None)
        if memory is not None and memory.beginning is not None:
            memory.beginning.token.cancel("the agent is gone")

    async def run(
        self,
        point: Point,
        query: str,
        fields: Mapping[str, Any],
        *,
        session: Session,
        signal: CancelToken,
        turn: int | None = None,
        model: str | None = None,
    ) -> Outcome:
        """Run the hooks of a point for one session; `fields` are those that only this point has."""
        if not self.runner.has(point):
            return NOTHING
        whose = session
        if point in ("SubagentStart", "SubagentStop"):
            whose = self._parent(session)
        common = payload.common(
            self.dialect,
            point,
            session_id=whose.id,
            transcript_path=self._transcript(whose),
            cwd=session.header.cwd or str(Path.cwd()),
            model=self._model or model or "",
            turn=turn,
        )
        return await self.runner.run(
            point, query, {**common, **fields}, session=session, signal=signal, turn=turn
        )

    def message(self, texts: Sequence[str]) -> Message:
        """What hooks tell the model. A text ends before the next one begins, on every wire."""
        *first, last = texts
        blocks = [text_block(text if text.endswith("\n\n") else f"{text}\n\n") for text in first]
        return user_message([*blocks, text_block(last)], {"kind": "plugin", "plugin": self.dialect.owner})

    def request_stop(self, session: Session, point: Point, reason: str) -> str:
        """End the open turn at its next step; answers why, in words for model and log."""
        why = f"{point} hook: {reason}" if reason else f"a {point} hook ended the turn"
        self.memory(session).stop = (session.open_turn or 0, why)
        return why

    def _transcript(self, session: Session) -> str | None:
        persistence = self.ctx.get(PERSISTENCE)
        place = None if persistence is None else persistence.locate(session.header)
        return None if place is None else str(place)

    def _parent(self, session: Session) -> Session:
        sessions, parent = self.ctx.get(SESSIONS), session.header.parent_session
        found = None if sessions is None or parent is None else sessions.get(parent)
        return session if found is None else found
