"""A provider with a window of its own: it counts what it is sent and refuses what is too large."""

import json
from collections.abc import Callable
from typing import Any

from tests.e2e.reply import Reply, failure

Body = dict[str, Any]
FRAME_BYTES = 14


def is_for_summary(body: Body) -> bool:
    return "call no tool" in str(body["messages"][-1]["content"])


def is_valid(body: Body) -> bool:
    """Whether each call is answered once, in order, right after its message, and no text is blank."""
    owed: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if owed[:1] != [message["tool_call_id"]] or not message["content"]:
                return False
            owed.pop(0)
            continue
        calls = [call["id"] for call in message.get("tool_calls", ())]
        if owed or not (calls or str(message["content"]).strip()):
            return False
        owed = calls
    return not owed


class Provider:
    """An entry for the mock server's script. Keeps what it was asked, in order."""

    def __init__(
        self,
        turn: Callable[[int], Reply],
        summary: Callable[[int], Reply],
        *,
        window: int,
        bytes_per_token: float = 3.5,
        tells_usage: bool = True,
    ) -> None:
        """
        Args:
            turn: the reply to the nth request of the turns, from 1; `summary`: the same for summaries.
        """
        self._turn, self._summary = turn, summary
        self._window, self._ratio, self._tells_usage = window, bytes_per_token, tells_usage
        self.bodies: list[Body] = []
        self.turns: list[Body] = []
        """Those of the turns that were taken."""
        self.summaries: list[Body] = []
        self.refused = 0

    def __call__(self, body: Body) -> Reply:
        self.bodies.append(body)
        tokens = self._tokens(body)
        if tokens > self._window:
            self.refused += 1
            return failure(400, f"This model's maximum context length is {self._window} tokens.")
        is_summary = is_for_summary(body)
        kept, reply = (self.summaries, self._summary) if is_summary else (self.turns, self._turn)
        kept.append(body)
        answer = reply(len(kept))
        if not self._tells_usage or "status" in answer:
            return answer
        usage = {"prompt_tokens": tokens, "completion_tokens": 10, "total_tokens": tokens + 10}
        return {"usage": usage, **answer}

    def _tokens(self, body: Body) -> int:
        size = len(json.dumps(body["tools"], ensure_ascii=False).encode())
        for message in body["messages"]:
            size += len(str(message.get("content") or "").encode()) + FRAME_BYTES
            size += sum(len(str(call["function"]).encode()) for call in message.get("tool_calls", ()))
        return int(size / self._ratio)
