"""What tokens cost, and what they are counted in."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

import msgspec

from dsh.session.value import MAX_SAFE_INT, safe_int

UsdPerMillion = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]
"""So that what any count of tokens costs is a number that JSON can say."""


class Rates(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """US dollars per million tokens. Reasoning is a part of the output."""

    input: UsdPerMillion
    """Of input that was not cached."""
    output: UsdPerMillion
    """Of output, reasoning included."""
    cache_read: UsdPerMillion | None = None
    """Of input read from the provider's cache; unset: as other input."""
    cache_write: UsdPerMillion | None = None
    """Of input written to that cache; unset: as other input."""


class LongRates(Rates, frozen=True, kw_only=True, rename="camel"):
    """Rates of a request whose input is long; they hold for all of it."""

    above_input_tokens: Annotated[int, msgspec.Meta(ge=1)]
    """Input of more tokens than this is long; cached input counts."""


class Price(Rates, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the tokens of one model cost."""

    long: LongRates | None = None
    """Of requests with long input, where they cost more."""


PriceOf: TypeAlias = Callable[[str], Price | None]
"""The price of a route, `<provider>/<model>`; None where none is known."""


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

    def without(self, part: "Tokens") -> "Tokens":
        """The rest, when a part of them is taken away."""
        return Tokens(
            input=self.input - part.input,
            output=self.output - part.output,
            cache_read=self.cache_read - part.cache_read,
            cache_write=self.cache_write - part.cache_write,
            reasoning=self.reasoning - part.reasoning,
        )

    @property
    def total_input(self) -> int:
        """Input, cached or not."""
        return self.input + self.cache_read + self.cache_write

    def cost_usd(self, price: Price) -> float:
        """What they cost in US dollars, taken as those of one request."""
        rates: Rates = price
        if price.long is not None and self.total_input > price.long.above_input_tokens:
            rates = price.long
        read = rates.input if rates.cache_read is None else rates.cache_read
        write = rates.input if rates.cache_write is None else rates.cache_write
        per_million = (
            self.input * rates.input
            + self.cache_read * read
            + self.cache_write * write
            + self.output * rates.output
        )
        return per_million / 1e6


def added(left: int, right: int) -> int:
    """The sum, as far as JSON can say it: times and counts of a foreign log may be of any size."""
    return min(left + right, MAX_SAFE_INT)


def _count(value: object) -> int:
    return max(safe_int(value) or 0, 0)
