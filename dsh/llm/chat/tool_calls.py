"""Which tool call a fragment belongs to, for servers that number their calls well, badly or not at all.

The rules (`spec/llm.md` §4.4, §5.2): an index names a call; without one the id does, else the call that is
being written. A new id with a name under an old index is a new call. Null and empty values say nothing.
"""

from collections.abc import Callable

from dsh.llm.chat.event import WireToolCall, arguments_text
from dsh.llm.failure import LlmError


class ToolCall:
    """One call while it arrives."""

    __slots__ = ("arguments", "block", "call_id", "name", "slot", "wire_id")

    def __init__(self, block: int, slot: int | None, call_id: str) -> None:
        self.block = block
        """Index of the block."""
        self.slot = slot
        self.wire_id = ""
        """The id as the server gave it."""
        self.call_id = call_id
        """The id as we pass it on: unique within the reply."""
        self.name = ""
        self.arguments: list[str] = []


class ToolCallMerge:
    """The tool calls of one reply, in order of first appearance."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self.calls: list[ToolCall] = []
        self._new_id = new_id
        self._slots: dict[int, ToolCall] = {}

    def take(self, fragment: WireToolCall, next_block: int) -> tuple[ToolCall, str, bool]:
        """Add a fragment: its call, its piece of argument text, and whether the call is new.

        Raises:
            LlmError: `MALFORMED_RESPONSE`, it may belong to several calls.
        """
        function = fragment.function
        name = (function.name if function is not None else None) or ""
        wire_id = fragment.id or ""
        call = self._find(fragment.index, wire_id, name)
        is_new = call is None
        if call is None:
            call = ToolCall(next_block, fragment.index, self._new_id())
            self.calls.append(call)
        if fragment.index is not None:
            self._slots[fragment.index] = call
        if wire_id and not call.wire_id:
            taken = any(other.wire_id == wire_id for other in self.calls)
            call.wire_id = wire_id
            if not taken:
                call.call_id = wire_id
        if name:
            call.name = name
        text = arguments_text(function.arguments if function is not None else None)
        call.arguments.append(text)
        return call, text, is_new

    def _find(self, index: int | None, wire_id: str, name: str) -> ToolCall | None:
        if index is not None:
            return self._by_index(index, wire_id, name)
        if wire_id and (known := self._by_id(wire_id)) is not None:
            return None if _begins_next(known, name) else known
        last = self.calls[-1] if self.calls else None
        if last is None or (wire_id and last.wire_id) or _begins_next(last, name):
            return None
        return last

    def _by_index(self, index: int, wire_id: str, name: str) -> ToolCall | None:
        call = self._slots.get(index)
        if call is not None:
            if not wire_id or not call.wire_id or wire_id == call.wire_id:
                return call
            same_slot = [c for c in self.calls if c.slot == index and c.wire_id == wire_id]
            if same_slot:
                return same_slot[-1]
            return None if name else call
        if wire_id or name or not self.calls:
            return None
        if len(self.calls) == 1:
            return self.calls[0]
        raise LlmError.of(
            "MALFORMED_RESPONSE",
            f"a tool call fragment with index {index} but without id and name may belong to any of "
            f"{len(self.calls)} calls",
        )

    def _by_id(self, wire_id: str) -> ToolCall | None:
        return next((call for call in reversed(self.calls) if call.wire_id == wire_id), None)


def _begins_next(call: ToolCall, name: str) -> bool:
    """Whether a fragment of this name opens another call: the name is new, or this call is complete."""
    return bool(name and call.name) and (name != call.name or _is_complete(call.arguments))


def _is_complete(pieces: list[str]) -> bool:
    """Whether the argument text closes as many objects as it opens: cheap, and enough to tell calls apart."""
    text = "".join(pieces).strip()
    return text.startswith("{") and text.endswith("}") and text.count("{") <= text.count("}")
