"""What tokens cost, and what they are counted in."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec

from dsh.session.value import MAX_SAFE_INT, safe_int

UsdPerMillion = Annotated[float, msgspec.Meta(ge=0)]


class Price(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Prices of one model in US dollars per million tokens. Reasoning is a part of the output."""

    input: UsdPerMillion
    """Of input that was not cached."""
    output: UsdPerMillion
    """Of output, reasoning included."""
    cache_read: UsdPerMillion | None = None
    """Of input read from the provider's cache; unset: as other input."""
    cache_write: UsdPerMillion | None = None
    """Of input written to that cache; unset: as other input."""


Prices: TypeAlias = Mapping[str, Price]
"""By route, `<provider>/<model>`."""


class Tokens(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Tokens as providers report them. `input`, `cache_read` and `cache_write` do not overlap."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    """A part of `output`."""

    @classmethod
    def of_usage(cls, usage: Mapping[str, Any]) -> "Tokens":
        """What a `TokenUsage` of the log says; what is no count is 0."""
        return cls(
            input=_count(usage.get("inputTokens")),
            output=_count(usage.get("outputTokens")),
            cache_read=_count(usage.get("cacheReadTokens")),
            cache_write=_count(usage.get("cacheWriteTokens")),
            reasoning=_count(usage.get("reasoningTokens")),
        )

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(
            input=added(self.input, other.input),
            output=added(self.output, other.output),
            cache_read=added(self.cache_read, other.cache_read),
            cache_write=added(self.cache_write, other.cache_write),
            reasoning=added(self.reasoning, other.reasoning),
        )

    def cost_usd(self, price: Price) -> float:
        """What they cost, in US dollars."""
        read = price.input if price.cache_read is None else price.cache_read
        write = price.input if price.cache_write is None else price.cache_write
        per_million = (
            self.input * price.input
            + self.cache_read * read
            + self.cache_write * write
            + self.output * price.output
        )
        return per_million / 1e6


def added(left: int, right: int) -> int:
    """The sum, as far as JSON can say it: times and counts of a foreign log may be of any size."""
    return min(left + right, MAX_SAFE_INT)


def _count(value: object) -> int:
    return max(safe_int(value) or 0, 0)
