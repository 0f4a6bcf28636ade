"""What one hook answered, read from its exit and its two streams. Total: there is an answer to any bytes."""

import json
from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec

from dsh.agent.hooks.dialect import Point
from dsh.capabilities.terminal_text import readable
from dsh.kernel.foreign import bounded
from dsh.session.error import JsonError
from dsh.session.value import clean, freeze
from dsh.unicode import valid

Decision = Literal["deny", "ask", "allow"]
"""From the strongest to the weakest; none is weaker still."""
_DECISIONS: Mapping[str, Decision] = {
    "block": "deny",
    "deny": "deny",
    "ask": "ask",
    "approve": "allow",
    "allow": "allow",
}
PLAIN_CONTEXT: frozenset[Point] = frozenset({"SessionStart", "UserPromptSubmit"})
"""Where standard output that is no JSON is for the model to read."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook wants. Texts are valid Unicode without terminal control, and trimmed; empty: nothing."""

    said: str | None = None
    """The decision in the hook's own word: `approve`, `block`, `allow`, `deny`, `ask`."""
    reason: str = ""
    context: str = ""
    """For the model."""
    message: str = ""
    """For the person at the screen."""
    stop_reason: str | None = None
    """Not None: the agent is to stop (`continue: false`)."""
    updated_input: Mapping[str, Any] | None = None
    problem: str = ""
    """Why the hook counts as failed; it has decided nothing then, or not all that it meant to."""
    failed_closed: bool = False
    """It has failed, and that is an objection."""

    @property
    def decision(self) -> Decision | None:
        return _DECISIONS[self.said] if self.said is not None else None

    @property
    def logged(self) -> str:
        """The word for the log."""
        return self.said or ("stop" if self.stop_reason is not None else "pass")


def read_answer(point: Point, exit_code: int, stdout: str, stderr: str) -> Answer:
    """The answer of a hook that ended by itself."""
    stdout, stderr = _trimmed(stdout), _trimmed(stderr)
    if exit_code == 2:
        return Answer(said="block", reason=stderr)
    if exit_code != 0:
        return Answer(problem=_exit_problem(exit_code, stderr))
    if stdout.startswith("{"):
        return _Fields(point, stdout).answer()
    return Answer(context=stdout if point in PLAIN_CONTEXT else "")


def _exit_problem(code: int, stderr: str) -> str:
    said = f": {bounded(stderr.splitlines()[-1])}" if stderr else ""
    match code:
        case 126:
            return f"the command is not executable (exit code 126){said}"
        case 127:
            return f"the command was not found (exit code 127){said}"
        case _:
            return f"it ended with exit code {code}{said}"


class _Fields:
    """Reads the fields of one JSON answer. State: what is wrong with them."""

    def __init__(self, point: Point, text: str) -> None:
        self._point = point
        self._text = text
        self._problems: list[str] = []

    def answer(self) -> Answer:
        try:
            found = json.loads(self._text)
        except (ValueError, RecursionError) as error:
            return Answer(problem=bounded(f"its output starts with {{ and is no JSON: {error}"))
        said, reason = self._word(found, "decision", ("approve", "block")), _text(found, "reason")
        context, updated = "", None
        nested = self._nested(found)
        if nested is not None:
            permission = self._word(nested, "permissionDecision", ("allow", "deny", "ask"))
            said = permission or said
            reason = _text(nested, "permissionDecisionReason") or reason
            context = _text(nested, "additionalContext")
            updated = self._arguments(nested.get("updatedInput"))
        return Answer(
            said=said,
            reason=reason,
            context=context,
            message=_text(found, "systemMessage"),
            stop_reason=_text(found, "stopReason") if self._stops(found) else None,
            updated_input=updated,
            problem="; ".join(self._problems),
        )

    def _nested(self, found: Mapping[str, Any]) -> Mapping[str, Any] | None:
        nested = found.get("hookSpecificOutput")
        if nested is None:
            return None
        if not isinstance(nested, dict):
            self._problems.append("hookSpecificOutput is no object")
            return None
        if (name := nested.get("hookEventName")) == self._point:
            return nested
        if "permissionDecision" in nested:
            self._problems.append(
                f"hookSpecificOutput.hookEventName is {_shown(name)} and the event is {self._point}"
            )
        return None

    def _word(self, found: Mapping[str, Any], key: str, words: tuple[str, ...]) -> str | None:
        value = found.get(key)
        if value is None:
            return None
        for word in words:
            if value == word:
                return word
        self._problems.append(f"{key} is {_shown(value)}, expected {' or '.join(words)}")
        return None

    def _arguments(self, found: object) -> Mapping[str, Any] | None:
        """Arguments as the log could hold them. The decision beside what is none stands all the same."""
        if not isinstance(found, dict):
            return None
        try:
            return cast(Mapping[str, Any], clean(freeze(found, "updatedInput")))
        except (JsonError, RecursionError) as error:
            self._problems.append(bounded(str(error)))
            return None

    def _stops(self, found: Mapping[str, Any]) -> bool:
        value = found.get("continue")
        if value is not None and not isinstance(value, bool):
            self._problems.append(f"continue is {_shown(value)}, expected true or false")
        return value is False


def _text(found: Mapping[str, Any], key: str) -> str:
    value = found.get(key)
    return _trimmed(readable(valid(value))) if isinstance(value, str) else ""


def _trimmed(text: str) -> str:
    return text.strip().strip("\ufeff").strip()


def _shown(value: object) -> str:
    return valid(f"{value!r:.40}")
