"""What one model request used and cost, as the log keeps it: `request/usage`, an ignorable event of ours.

There is one for each attempt of a step that reported usage, failed ones too, written before the message that
came of it; and one for each call beside the turns (a title, a summary, a search), which names its purpose
instead.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from dsh.session.projection.price import Price, Tokens
from dsh.session.value import safe_int

REQUEST_USAGE = "request/usage"
MOST_USD = 1e18
"""What a request may cost at most; by a price that is one it always costs less."""


def usage_payload(
    usage: Mapping[str, Any],
    *,
    provider: str,
    model: str,
    price: Price | None,
    turn: int | None = None,
    step: int | None = None,
    attempt: int | None = None,
    purpose: str | None = None,
) -> dict[str, Any]:
    """The payload: `{turn, step, attempt}` or `{purpose}`, then `{provider, model, usage, costUsd, price}`.

    Args:
        usage: a `TokenUsage`, as the provider reported it.
        price: what the tokens cost when the request was made; None writes null for it and for the cost.
        attempt: 1 for the first request of the step, one more for each retry.
        purpose: of a call beside the turns: `compaction`, `session-title`, `web-search`.
    """
    data: dict[str, Any] = {}
    for key, value in (("turn", turn), ("step", step), ("attempt", attempt), ("purpose", purpose)):
        if value is not None:
            data[key] = value
    cost = None if price is None else Tokens.of_usage(usage).cost_usd(price)
    said = None if price is None else msgspec.to_builtins(price)
    return {**data, "provider": provider, "model": model, "usage": usage, "costUsd": cost, "price": said}


class RequestUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one request used, and what it is known to have cost."""

    turn: int | None = None
    step: int | None = None
    attempt: int | None = None
    purpose: str | None = None
    """Of a call beside the turns."""
    route: str
    """`<provider>/<model>`."""
    tokens: Tokens
    cost_usd: float | None = None
    """As the log has it; None where no price was known, or nothing was logged."""


def logged_usage(data: object) -> RequestUsage | None:
    """The record in a payload that may be of any shape; None where there is none in it."""
    if not isinstance(data, dict) or not isinstance(data.get("usage"), dict):
        return None
    provider, model, purpose, cost = (data.get(key) for key in ("provider", "model", "purpose", "costUsd"))
    if not (isinstance(provider, str) and isinstance(model, str) and provider and model):
        return None
    return RequestUsage(
        turn=safe_int(data.get("turn")),
        step=safe_int(data.get("step")),
        attempt=safe_int(data.get("attempt")),
        purpose=purpose if isinstance(purpose, str) else None,
        route=f"{provider}/{model}",
        tokens=Tokens.of_usage(data["usage"]),
        cost_usd=_cost(cost),
    )


def _cost(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_USD:
        return None
    return float(value)
