"""What the hooks of one event come to together: deny beats ask beats allow beats nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dsh.agent.hooks.answer import Answer, Decision
from dsh.kernel.foreign import bounded

_RANKS: Mapping[Decision | None, int] = {"deny": 3, "ask": 2, "allow": 1, None: 0}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The merged answers, in the order of the file however they came in."""

    decision: Decision | None = None
    reason: str = ""
    """Why, where it is a denial or a question; empty where no hook said."""
    contexts: tuple[str, ...] = ()
    stop_reason: str | None = None
    """Not None: some hook wants the agent to stop."""
    updated_input: Mapping[str, Any] | None = None
    """The arguments that the first hook to say so wants the tool to be called with."""
    has_failed_closed: bool = False
    """A hook has failed whose failure is an objection."""


NOTHING = Outcome()


def merged(answers: Sequence[Answer]) -> Outcome:
    """One outcome of all answers; those that failed closed are denials here already."""
    rank = max((_RANKS[one.decision] for one in answers), default=0)
    winners = [one for one in answers if _RANKS[one.decision] == rank] if rank else []
    stops = [one.stop_reason for one in answers if one.stop_reason is not None]
    updates = [one.updated_input for one in answers if one.updated_input is not None]
    return Outcome(
        decision=winners[0].decision if winners else None,
        reason=bounded("\n\n".join(one.reason for one in winners if one.reason)) if rank > 1 else "",
        contexts=tuple(one.context for one in answers if one.context),
        stop_reason=bounded("\n\n".join(filter(None, stops))) if stops else None,
        updated_input=updates[0] if updates else None,
        has_failed_closed=any(one.failed_closed for one in answers),
    )
