"""One compaction in the log: its bracket, the summary, and the checkpoint that takes the history's place.

Between the start and the end of the bracket nothing of the surface changes but by the checkpoint, which is
written right after the summary that prices it. Whatever fails, the bracket is closed, and the history is as
it was (`spec/tools.md` §9).
"""

import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from dsh.agent.failure import render_causes
from dsh.capabilities.compaction import CompactionError
from dsh.kernel import Cancelled
from dsh.kernel.foreign import contained
from dsh.plugins.compaction_basic.instruction import checkpoint
from dsh.plugins.compaction_basic.span import Span
from dsh.plugins.compaction_basic.summary import Summary
from dsh.session.error import InvalidEvent
from dsh.session.estimate import log_price
from dsh.session.log import Session
from dsh.session.message import Message
from dsh.session.value import JsonObject
from dsh.unicode import valid


class Written(msgspec.Struct, frozen=True):
    """What stands in the log."""

    compaction_id: str
    span: Span
    seq: int
    """Of the checkpoint."""


class Transaction:
    """Writes compactions to one session's log. State: nothing but the session."""

    def __init__(self, session: Session, logger: logging.Logger, *, command_id: str | None = None) -> None:
        self._session, self._logger = session, logger
        self._bracket: dict[str, Any] = {"compactionId": str(uuid.uuid4())}
        if command_id is not None:
            self._bracket["sourceCommandId"] = command_id

    async def run(
        self, summarize: Callable[[], Awaitable[tuple[Span, Summary]]], *, whole_surface: bool
    ) -> Written:
        """Open the bracket, wait for the summary, put it in place, close the bracket.

        Args:
            whole_surface: the surface may not have changed at all meanwhile; else only the summarised part.

        Raises:
            CompactionError: `busy`, `cancelled`, `changed`, `summary` or `commit`.
        """
        session = self._session
        start = self._open()
        with self._closing():
            surface = session.surface_nodes
            try:
                span, summary = await summarize()
            except Cancelled:
                raise CompactionError("the compaction was cancelled", code="cancelled") from None
            except CompactionError:
                raise
            except BaseException as raised:
                error = contained(raised, "what asks for summaries")
                raise CompactionError(f"no summary was made: {_told(error)}", code="summary") from error
            now = session.surface_nodes
            length = len(span.seqs)
            if now != surface if whole_surface else now[:length] != span.seqs:
                raise CompactionError("the history changed while it was summarised", code="changed")
            message = self._checked(span, summary)
            try:
                seq = self._put(span, summary, message, start)
            except Exception as error:
                raise CompactionError(f"the log refused the summary: {error}", code="commit") from error
        return Written(self._bracket["compactionId"], span, seq)

    def _open(self) -> int:
        session = self._session
        try:
            event = session.append("compaction/start", {**self._bracket, "turn": session.open_turn})
        except InvalidEvent as error:
            raise CompactionError(
                f"session {session.id} is being compacted already",
                code="busy",
                hint="wait until that is over and ask again",
            ) from error
        except Exception as error:
            raise CompactionError(f"the log takes no compaction: {error}", code="commit") from error
        return event.seq

    @contextmanager
    def _closing(self) -> Iterator[None]:
        """Close the bracket, with what failed where something did; it is given on. A task that goes down
        leaves it open, as a killed process does."""
        turn = self._session.open_turn
        try:
            yield
        except Exception as error:
            self._close({**self._bracket, "turn": turn, "error": _told(error.__cause__ or error)})
            raise
        self._close({**self._bracket, "turn": turn})

    def _close(self, data: JsonObject) -> None:
        try:
            self._session.append("compaction/end", data)
        except Exception as error:
            self._logger.error("a compaction could not be closed in the log: %s", error)

    def _checked(self, span: Span, summary: Summary) -> Message:
        message = checkpoint(summary.blocks, self._bracket)
        price = log_price(message)
        if price >= span.log_tokens:
            raise CompactionError(
                f"the summary takes {price} tokens and what it stands for only {span.log_tokens}",
                code="summary",
            )
        return message

    def _put(self, span: Span, summary: Summary, message: Message, start: int) -> int:
        """Summary and checkpoint, without anything between them."""
        seqs = span.seqs
        data: dict[str, Any] = {
            **self._bracket,
            "summary": summary.blocks,
            "rawOutput": summary.raw_output,
            "llmStreamCall": True,
            "shadowedRange": {"start": seqs[0], "end": seqs[-1]},
            "shadowedSeqs": seqs,
            "shadowedTokenCount": span.log_tokens,
            "provider": summary.provider,
            "model": summary.model,
            "maxTokens": summary.max_tokens,
        }
        if summary.usage is not None:
            data["usage"] = summary.usage
        noted = self._session.append("compaction/summary", data)
        replaced = self._session.append(
            "user/message",
            message,
            surface={"op": "replace", "start": seqs[0], "end": seqs[-1]},
            sources=(start, noted.seq, *seqs),
        )
        return replaced.seq


def _told(error: BaseException) -> str:
    return valid(render_causes(error))
