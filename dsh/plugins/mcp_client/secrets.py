"""What a row was given in confidence, taken out of every text that is told."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from dsh.masking import MASK, masked
from dsh.plugins.mcp_client.config import Config

SHORTEST = 4
"""A shorter value is no secret: `1` and `yes` stand in every other line."""
SHORTEST_WORD = 8
"""The same for one word of a header, such as the token behind `Bearer`."""


class Secrets:
    """The values of `env` and `headers`, and what the URL holds besides the place."""

    def __init__(self, config: Config) -> None:
        found = {secret for secret in _values(config) if len(secret) >= SHORTEST}
        self._longest_first = sorted(found, key=lambda secret: (-len(secret), secret))

    def hide(self, text: str) -> str:
        """The text without them, or the part before a cut (`…`), and without what looks like a key."""
        for secret in self._longest_first:
            text = text.replace(secret, MASK)
        if "…" in text:
            for secret in self._longest_first:
                for size in range(len(secret) - 1, SHORTEST - 1, -1):
                    text = text.replace(f"{secret[:size]}…", f"{MASK}…")
        return masked(text)


def _values(config: Config) -> Iterator[str]:
    for value in config.env.values():
        yield from _forms(value)
    for value in config.headers.values():
        yield from _forms(value)
        yield from (word for word in value.split() if len(word) >= SHORTEST_WORD)
    if config.url:
        parts = urlsplit(config.url)
        yield from filter(None, (parts.username, parts.password, parts.query))


def _forms(value: str) -> Iterator[str]:
    """A value as it is, in one line, and each of its lines: told are single lines."""
    yield value
    yield " ".join(value.split())
    yield from (line.strip() for line in value.splitlines())
