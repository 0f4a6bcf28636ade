"""Puts the chunks of one reply together again (`spec/llm.md` §2.1)."""

from collections.abc import Mapping
from typing import Any

from dsh.session.chunk import Chunk


class BlockAssembler:
    """Collects the chunks of one reply: blocks in order of first appearance, usage, finish, replay state."""

    def push(self, chunk: Chunk) -> None:
        raise NotImplementedError

    def blocks(self) -> tuple[Mapping[str, Any], ...]:
        """The content blocks. After a `max-tokens` finish without its tool calls, which are cut off."""
        raise NotImplementedError

    def interrupted_blocks(self) -> tuple[Mapping[str, Any], ...]:
        """Text and reasoning that are not blank, for a message that was interrupted."""
        raise NotImplementedError

    @property
    def finish(self) -> Mapping[str, Any]:
        """The finish reason; `{"kind": "stop"}` where the stream ended without one."""
        raise NotImplementedError

    @property
    def usage(self) -> Mapping[str, Any] | None:
        raise NotImplementedError

    @property
    def replay_state(self) -> Mapping[str, Any] | None:
        """The provider's own state, pruned with dropped blocks; None where it does not fit the blocks."""
        raise NotImplementedError
