"""The step that is open: what its requests were made of, and what was streamed in it."""

from bisect import bisect_left
from typing import Any

from dsh.plugins.token_meter.output import OutputWeight, Piece
from dsh.session.chunk_run import ChunkRun
from dsh.session.event import SessionEvent
from dsh.session.value import safe_int


class OpenStep:
    """State: the weight of the surface as it changed in the step, and the pieces of its stream."""

    __slots__ = ("_changes", "_pieces", "dispatched", "where")

    def __init__(self, where: tuple[int, int], weight: int) -> None:
        self.where = where
        """Turn and step."""
        self.dispatched: int | None = None
        """The event that was logged last when a request was complete."""
        self._changes = [(-1, weight)]
        """Seq, and the weight of the surface from there on."""
        self._pieces: list[Piece] = []

    def holds(self, data: Any) -> bool:
        """Whether a payload names this step."""
        return (safe_int(data.get("turn")), safe_int(data.get("step"))) == self.where

    def surface_changed(self, seq: int, weight: int) -> None:
        """The surface has another weight from event `seq` on."""
        self._changes.append((seq, weight))

    def add_run(self, run: ChunkRun) -> None:
        """A packed run, as far as it goes now."""
        if (run.turn, run.step) == self.where:
            self._pieces.append(Piece(run, run.seq0, run.stop))

    def add_chunk(self, event: SessionEvent) -> None:
        """A chunk that stands alone."""
        if isinstance(event.data, dict) and self.holds(event.data):
            self._pieces.append(Piece(event, event.seq, event.seq + 1))

    def sent_weight(self, reply: SessionEvent) -> int:
        """What the surface weighed when the request was built that a message answers.

        The log says when that was by the request's digest, else by the first piece that came back.
        """
        moment = reply.sources[0] if reply.sources else reply.seq
        if self.dispatched is not None:
            moment = self.dispatched
        return next(weight for seq, weight in reversed(self._changes) if seq < moment)

    def streamed(self, reply: SessionEvent) -> OutputWeight | None:
        """What the chunks that a message cites make; None where it cites other events."""
        cited = sorted(reply.sources or ())
        output, found = OutputWeight(), 0
        for entry, start, stop in self._pieces:
            first, last = bisect_left(cited, start), bisect_left(cited, stop)
            if first == last:
                continue
            found += last - first
            if isinstance(entry, ChunkRun):
                output.add_run(entry, [entry.texts[seq - entry.seq0] for seq in cited[first:last]])
            else:
                output.add_chunk(entry.data.get("chunk"))
        return output if found == len(cited) else None
