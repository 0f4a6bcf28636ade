"""Where and how a provider is asked."""

from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

import msgspec

from dsh.llm.transport.watchdog import StreamLimits
from dsh.masking import masked_value


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how to ask: one snapshot of the settings, taken before anything is awaited."""

    url: str
    headers: Mapping[str, str]
    provider: str
    """Display name."""
    shown_url: str
    """The base URL as it may appear in messages."""
    secret: str
    """The key in use, masked wherever it is echoed; empty: none is sent."""
    limits: StreamLimits
    key_origin: str
    """The variable or file that the key came from, for the message of a refused one."""
    longest_wait_ms: float | None = None
    """Longer waits that the provider asks for end the turn; the message then names the wait."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What is masked wherever it is echoed: key, headers called a secret; longest first."""
        named = [value for name, value in self.headers.items() if masked_value(name, value) != value]
        return tuple(sorted({self.secret, *named}, key=len, reverse=True))

    def __repr__(self) -> str:
        return f"Endpoint({self.shown_url})"  # neither the key nor the headers that hold it


def base_url_problem(url: str) -> str | None:
    """Why this cannot be the base of an endpoint; None where it can. Holds no part of the URL."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or not url.isprintable() or " " in url:
        return "is not an http or https URL"
    if "@" in parts.netloc:
        return "holds a user name or password, which would take the place of the key"
    return "holds a fragment (#…)" if parts.fragment else None


def joined(base_url: str, path: str, query: str = "") -> str:
    """The URL of an endpoint below a base; a query of the base stays, before that of the endpoint."""
    parts = urlsplit(base_url)
    both = "&".join(filter(None, (parts.query, query)))
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{path}", query=both))
