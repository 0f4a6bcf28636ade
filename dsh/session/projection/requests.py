"""The model requests of a session that reported usage, one by one, in the order of the log.

Each counts once: by its `request/usage`, where the log has one, else by what the message, the stream or the
summary says. Their tokens add up to those of the unit `sessionStats`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from dsh.session.chunk_run import ChunkRun, Entry
from dsh.session.event import SessionEvent
from dsh.session.projection.price import Tokens
from dsh.session.projection.request_usage import REQUEST_USAGE, RequestUsage, logged_usage
from dsh.session.projection.unit import object_at, text_at
from dsh.session.value import safe_int

UNKNOWN_ROUTE = "unknown"
"""Where usage counts for which no log entry names a route."""


def requests(entries: Iterable[Entry]) -> list[RequestUsage]:
    """What each request used and is known to have cost."""
    walk = _Walk()
    for entry in entries:
        if not isinstance(entry, ChunkRun) and isinstance(entry.data, dict):
            walk.see(entry, entry.data)
    return walk.found


def route_of(where: Mapping[str, Any] | None) -> str | None:
    """The route that an object of the log names by `provider` and `model`."""
    provider, model = text_at(where, "provider"), text_at(where, "model")
    return f"{provider}/{model}" if provider and model else None


class _Walk:
    """State: the open step and its attempt, what the attempt's stream reported, what counts already."""

    def __init__(self) -> None:
        self.found: list[RequestUsage] = []
        self._route: str | None = None
        self._at: tuple[int | None, int | None] | None = None
        self._attempt = 1
        self._streamed: Mapping[str, Any] | None = None
        self._is_counted = self._is_summary_counted = False

    def see(self, event: SessionEvent, data: dict[str, Any]) -> None:
        match event.type:
            case "step/start":
                self._at, self._attempt = (safe_int(data.get("turn")), safe_int(data.get("step"))), 0
                self._next_attempt()
            case "step/end" | "turn/end":
                self._give_up()
                self._at = None
            case "llm/retry":
                self._give_up()
            case "request/header":
                config = object_at(object_at(data, "header"), "config")
                self._route = route_of(config) or self._route
            case "assistant/chunk":
                chunk = object_at(data, "chunk")
                usage = object_at(chunk, "usage") if text_at(chunk, "type") == "usage" else None
                if self._at is not None and usage is not None:
                    self._streamed = usage
            case "assistant/message":
                source = object_at(object_at(data, "message"), "source")
                reported = object_at(data, "usage")
                self._take(reported if reported is not None else self._streamed, route_of(source))
                self._next_attempt()
            case "compaction/start":
                self._is_summary_counted = False
            case "compaction/summary":
                usage = object_at(data, "usage")
                if not self._is_summary_counted and usage is not None:
                    self._add(usage, route_of(data), purpose="compaction")
                self._is_summary_counted = False
            case kind if kind == REQUEST_USAGE:
                self._record(logged_usage(data))

    def _record(self, record: RequestUsage | None) -> None:
        if record is None:
            return
        self.found.append(record)
        if record.purpose is None:
            self._is_counted = self._at is not None
        elif record.purpose == "compaction":
            self._is_summary_counted = True

    def _next_attempt(self) -> None:
        self._attempt, self._streamed, self._is_counted = self._attempt + 1, None, False

    def _give_up(self) -> None:
        self._take(self._streamed, None)
        self._next_attempt()

    def _take(self, usage: Mapping[str, Any] | None, route: str | None) -> None:
        if usage is not None and not self._is_counted:
            turn, step = self._at or (None, None)
            attempt = None if self._at is None else self._attempt
            self._add(usage, route or self._route, turn=turn, step=step, attempt=attempt)

    def _add(self, usage: Mapping[str, Any], route: str | None, **place: Any) -> None:
        tokens = Tokens.of_usage(usage)
        self.found.append(RequestUsage(route=route or UNKNOWN_ROUTE, tokens=tokens, **place))
