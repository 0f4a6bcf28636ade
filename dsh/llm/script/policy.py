"""The retry policy of a recorded run: a replay repeats the requests that it repeated, and no others."""

from collections.abc import Iterable
from typing import Any

import msgspec

from dsh.errors import DshError
from dsh.llm.adapter import DEFAULT_RETRYABLE_CODES, RetryPolicy
from dsh.llm.retry import Backoff, RetryConfig
from dsh.llm.script.route import RouteReader
from dsh.session.event import SessionEvent


def recorded_policies(events: Iterable[SessionEvent]) -> dict[str, RetryPolicy]:
    """The last known policy of each provider.

    `llm/retry` names it. Where a failure that the default policy repeats ended its turn and the log holds no
    retry of that provider, there were none. A provider without an entry had no failure to tell by.
    """
    named: dict[str, RetryPolicy] = {}
    without: set[str] = set()
    routes, failed = RouteReader(), ""
    for event in events:
        data = event.data
        if event.type in ("request/header", "request/context"):
            routes.see(event)
        elif event.type == "llm/retry":
            failed = ""
            if (policy := policy_from_key(str(data.get("policyKey")))) is not None:
                named[str(data.get("provider"))] = policy
        elif event.type == "assistant/chunk":
            chunk = data["chunk"]
            if chunk.get("type") == "finish":
                failed = str((chunk["reason"].get("failure") or {}).get("code", ""))
        elif event.type == "turn/end":
            if failed in DEFAULT_RETRYABLE_CODES and data["reason"].get("kind") == "error":
                without.add("" if routes.model is None else routes.model.provider)
            failed = ""
    return {**{name: RetryPolicy(max_retries=0) for name in without}, **named}


def policy_from_key(key: str) -> RetryPolicy | None:
    """The policy that a `policyKey` names; None where it names none."""
    try:
        parts: Any = msgspec.json.decode(key)
        mode, (initial, most, jitter) = parts[0], parts[-3:]
        backoff = Backoff(initial_delay_ms=initial, max_delay_ms=most, jitter_ratio=jitter)
        if mode == "always" and len(parts) == 4:
            return RetryConfig(mode="always", backoff=backoff).policy()
        if mode == "normal" and len(parts) == 6:
            return RetryConfig(max_retries=parts[1], retryable_codes=parts[2], backoff=backoff).policy()
    except (msgspec.DecodeError, TypeError, ValueError, AttributeError, KeyError, IndexError, DshError):
        return None
    return None
