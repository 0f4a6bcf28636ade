"""The model requests of a session one by one: what each used and cost."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dsh.cli.sessions.output import line
from dsh.masking import masked
from dsh.session.projection.price import PriceOf
from dsh.session.projection.request_usage import RequestUsage

KINDS = {
    "input": "input",
    "output": "output",
    "cacheRead": "cache read",
    "cacheWrite": "cache write",
    "reasoning": "reasoning",
}
"""Kinds of tokens, and their heads in a table."""


def as_json(requests: Iterable[RequestUsage], price_of: PriceOf) -> list[dict[str, Any]]:
    """`{turn, step, attempt}` or `{purpose}`, then `{route, tokens, costUsd, costFrom}`.

    `costFrom` says where the cost is from: `log`, or `price` for the one that holds now; null without a cost.
    """
    return [_as_json(request, price_of) for request in requests]


def _as_json(request: RequestUsage, price_of: PriceOf) -> dict[str, Any]:
    places = ("turn", "step", "attempt", "purpose")
    place = {key: value for key in places if (value := getattr(request, key)) is not None}
    cost, origin = request.cost_usd, "log"
    if cost is None and (price := price_of(request.route)) is not None:
        cost, origin = request.tokens.cost_usd(price), "price"
    return {
        **place,
        "route": request.route,
        "tokens": msgspec.to_builtins(request.tokens),
        "costUsd": cost,
        "costFrom": None if cost is None else origin,
    }


def with_costs(figures: Mapping[str, Any], requests: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of a session with the costs of its requests, which know how long each was."""
    known: dict[str, float] = {}
    unknown: set[str] = set()
    for request in requests:
        route, cost = request["route"], request["costUsd"]
        known[route] = known.get(route, 0.0) + (cost or 0.0)
        if cost is None:
            unknown.add(route)
    tokens = {
        route: {**used, "costUsd": None if route in unknown else known.get(route)}
        for route, used in figures["tokens"].items()
    }
    total = math.fsum(known.values())
    is_known = bool(known) and not unknown
    return {**figures, "tokens": tokens, "costUsd": total if is_known else None, "knownCostUsd": total}


def table(requests: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """The rows of a table, head first; kinds of tokens that nobody used have no column."""
    shown = list(requests)
    kinds = [kind for kind in KINDS if any(request["tokens"][kind] for request in shown)]
    rows = [["request", "route", *(KINDS[kind] for kind in kinds), "cost"]]
    for request in shown:
        counts = [f"{request['tokens'][kind]:,}" for kind in kinds]
        cost = "-" if request["costUsd"] is None else usd(request["costUsd"])
        rows.append([line(_name(request)), line(masked(request["route"])), *counts, cost])
    return rows


def _name(request: Mapping[str, Any]) -> str:
    if "purpose" in request:
        return str(request["purpose"])
    if "turn" not in request:
        return "-"
    again = f" retry {request['attempt'] - 1}" if request.get("attempt", 1) > 1 else ""
    return f"{request['turn']}.{request.get('step', '-')}{again}"


def usd(cost: float) -> str:
    """An amount as people read it, with as many digits as a small one needs."""
    if cost >= 1:
        return f"${cost:,.2f}"
    digits = 4 if cost < 1e-12 or cost >= 0.001 else 1 - math.floor(math.log10(cost))
    return f"${cost:.{digits}f}"
