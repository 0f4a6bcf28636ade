"""Payloads of turns and steps, and the reasons for which a turn ends."""

from typing import Any, Literal, TypedDict

from dsh.session.payload.request import LlmFailure
from dsh.session.payload.shape import Misfit, Ordinal, Payload, at, choice, payload, shape
from dsh.session.value import JsonObject, safe_int

_PLAIN_REASONS = ("completed", "blocked", "max-tokens", "interrupted")
"""Turn end reasons that are a `kind` alone."""


class TurnStart(TypedDict):
    """A turn begins, before its input is claimed."""

    turn: Ordinal
    """From 1, without a gap, over resume and fork."""


class TurnEnd(TypedDict):
    """A turn is over, one for each start. Readers refuse a log with any further key here."""

    turn: Ordinal
    reason: JsonObject
    """`{kind}`: `completed`, `blocked`, `max-tokens`, `interrupted` (repair only), `aborted` with a cause in
    `reason`, `error` with a failure in `error`; readers let other kinds pass."""


class PlainCause(TypedDict):
    """Who aborted a turn: `user`, `parent`, `disposed` or `legacy` (of an early log that does not say)."""

    kind: Literal["user", "parent", "disposed", "legacy"]


class HookCause(TypedDict):
    """A hook, a limit or a signal aborted a turn."""

    kind: Literal["hook"]
    reason: str


class AbortedReason(TypedDict):
    """Somebody ended the turn."""

    kind: Literal["aborted"]
    reason: JsonObject


class ErrorReason(TypedDict):
    """A failure ended the turn."""

    kind: Literal["error"]
    error: LlmFailure


class StepStart(TypedDict):
    """One model request, and the tool calls it asks for, begin."""

    turn: Ordinal
    step: Ordinal
    """From 1 in each turn."""


class StepEnd(TypedDict):
    """A step is over, one for each that was entered."""

    turn: Ordinal
    step: Ordinal


def _closed_turn_end(data: Any) -> None:
    """The part of a turn's end that readers check to the letter."""
    if not isinstance(data, dict) or data.keys() != {"turn", "reason"}:
        raise Misfit("data is exactly turn and reason")
    turn, reason = safe_int(data["turn"]), data["reason"]
    if turn is None or turn < 1:
        raise Misfit(f"counts from 1, found {data['turn']!r:.60}", ".turn")
    if not isinstance(reason, dict) or type(reason.get("kind")) is not str:
        raise Misfit("the reason is an object with a kind", ".reason")
    if reason["kind"] in _PLAIN_REASONS and len(reason) > 1:
        raise Misfit(f"reason {reason['kind']} has no other keys", ".reason")


_CAUSES = {
    **dict.fromkeys(("user", "parent", "disposed", "legacy"), shape(PlainCause)),
    "hook": shape(HookCause),
}
_REASONS = {
    "aborted": shape(AbortedReason, at("reason", choice("kind", _CAUSES))),
    "error": shape(ErrorReason),
}

PAYLOADS: dict[str, Payload] = {
    "turn/start": payload(TurnStart),
    "turn/end": payload(
        TurnEnd,
        _closed_turn_end,
        at("reason", choice("kind", _REASONS, is_open=True)),
        refuse=_closed_turn_end,
    ),
    "step/start": payload(StepStart),
    "step/end": payload(StepEnd),
}
"""By event type."""
