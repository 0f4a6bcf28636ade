"""What a copy of the log that leaves the machine is made of, and the event through which rules change it."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from dsh.kernel import Event

FEEDBACK = "feedback/record"
"""The event with which somebody says what they think of a session."""

Severity = Literal["info", "warn", "error"]


class TelemetryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record as it is handed to the exporter. `body` is JSON; strings in it may be masked later."""

    channel: Literal["ledger", "ops"]
    """`ledger`: a copy of a logged event. `ops`: something that happened to the session."""
    time: int
    """Epoch milliseconds."""
    severity: Severity
    attributes: Mapping[str, str | int]
    body: Any


TELEMETRY_RECORD: Event[TelemetryRecord, TelemetryRecord | None] = Event(
    "session-telemetry/record", "waterfall"
)
"""A record is about to leave. A listener answers what is sent in its place, or None to withhold it.

`next()` gives the record as the listeners behind it left it. A listener that raises withholds the record.
"""
