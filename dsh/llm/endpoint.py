"""Where and how a provider is asked."""

from collections.abc import Mapping

import msgspec

from dsh.llm.watchdog import StreamLimits


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how to ask: one snapshot of the settings, taken before anything is awaited."""

    url: str
    headers: Mapping[str, str]
    provider: str
    """Display name."""
    shown_url: str
    """The base URL as it may appear in messages."""
    secret: str
    limits: StreamLimits
    key_origin: str
    """The variable or file that the key came from, for the message of a refused one."""
    longest_wait_ms: float | None = None
    """Longer waits that the provider asks for end the turn; the message then names the wait."""

    def __repr__(self) -> str:
        return f"Endpoint({self.shown_url})"  # neither the key nor the headers that hold it
