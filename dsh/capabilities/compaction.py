"""Making a history shorter: a summary in place of its beginning, long tool results cut to their ends."""

from collections.abc import Awaitable
from typing import Protocol

import msgspec

from dsh.capabilities.agent import AgentRef
from dsh.errors import DshError
from dsh.kernel import CancelToken, ServiceKey
from dsh.session.log import Session


class CompactionError(DshError):
    """A compaction that was asked for did not happen; the history is as it was. `code` says why:
    `busy`, `cancelled`, `changed`, `summary`, `commit` or `persistence` (the summary is in the log then)."""


class Compacted(msgspec.Struct, frozen=True):
    """What a compaction did."""

    compaction_id: str
    seq: int
    """Of the checkpoint message on the surface."""
    shadowed: int
    """How many surface nodes it stands for."""
    tokens_before: int
    """Estimated size of those."""
    tokens_after: int
    """Estimated size of the checkpoint."""


class Compaction(Protocol):
    """The compaction service (`spec/tools.md` §9)."""

    def compact_now(
        self, agent: AgentRef, *, command_id: str | None = None, signal: CancelToken | None = None
    ) -> Awaitable[Compacted | None]:
        """Summarise everything but the end of an idle agent's history, as maintenance, and flush.

        None: there is nothing to summarise; nothing was written.

        Args:
            command_id: of the command that asked for it, for the log.
            signal: ends it, as a cancellation of the agent does.

        Raises:
            CompactionError: with one of its codes.
        """


class ToolResultPruner(Protocol):
    """Cuts over-long tool results on the surface to their beginning and end; where nothing else helps,
    prompts of earlier turns too."""

    def prune(
        self,
        session: Session,
        *,
        spare_from: int | None = None,
        share: float = 1.0,
        prompts_before: int | None = None,
    ) -> int:
        """Cut every result over the budget; answers how many messages were cut.

        Args:
            spare_from: results with this seq or a later one stay whole: no request has carried them yet.
            share: part of the configured budget that a message may have.
            prompts_before: cut the messages of users with a lower seq as well.
        """


COMPACTION: ServiceKey[Compaction] = ServiceKey("compaction")
TOOL_RESULT_PRUNER: ServiceKey[ToolResultPruner] = ServiceKey("toolResultPruner")
