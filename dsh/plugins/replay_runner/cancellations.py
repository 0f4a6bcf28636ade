"""Where somebody stopped a turn of the recording, the replayed turn is stopped."""

from collections import deque
from typing import cast

from dsh.agent.contract import Agent, CancelCause
from dsh.session.replay.cursor import Cursor
from dsh.session.replay.recording import Life, Recording


class Cancellations:
    """State: those of one life that are to come."""

    def __init__(self, recording: Recording, life: Life, cursor: Cursor) -> None:
        self._waiting = deque(c for c in recording.cancellations if life.start <= c.seq < life.stop)
        self._cursor = cursor

    @property
    def is_in_tool(self) -> bool:
        """Whether the next one came while a tool was at work."""
        return bool(self._waiting) and self._waiting[0].is_in_tool

    def cancel(self, agent: Agent, *, in_body: bool) -> bool:
        """Stop the turn where it was stopped; one that a limit of its own has stopped meanwhile is over.

        Args:
            in_body: a tool is at work.
        """
        waiting, position = self._waiting, self._cursor.position
        while waiting and agent.session.open_turn != waiting[0].turn and position > waiting[0].seq:
            waiting.popleft()
        if not self.is_due(agent) or (waiting[0].is_in_tool and not in_body):
            return False
        cancellation = waiting.popleft()
        agent.cancel(cast(CancelCause, dict(cancellation.cause)), keep_inbox=cancellation.keeps_inbox)
        return True

    def is_due(self, agent: Agent) -> bool:
        """What comes next is there because of a cancellation, which may wait for its tool."""
        waiting = self._waiting
        is_reached = bool(waiting) and self._cursor.position >= waiting[0].seq
        return is_reached and agent.session.open_turn == waiting[0].turn

    def cancel_at_once(self, agent: Agent) -> None:
        """Stop the turn right behind the last event before, where the loop does not wait for anybody.

        An append is being told of, so nothing may be dropped from the inbox here.
        """
        waiting = self._waiting
        if not waiting or self._cursor.position != waiting[0].seq or waiting[0].is_in_tool:
            return
        if waiting[0].keeps_inbox or not agent.inbox.has_pending:
            self.cancel(agent, in_body=False)
