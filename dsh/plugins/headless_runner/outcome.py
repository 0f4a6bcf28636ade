"""What a run came to: the answer, how it ended, and the exit code. Pure, from the log alone."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from dsh.composition.home import home_label
from dsh.errors import CredentialError
from dsh.llm.failure import CREDENTIAL_CODES
from dsh.session.chunk_run import ChunkRun
from dsh.session.event import SessionEvent
from dsh.session.inbox_fold import consumed_work
from dsh.session.log import Session
from dsh.session.message import text_of

FAILED = 1
AT_LIMIT = 5
OUT_OF_TIME = 124
_LIMITS = {
    "limit:steps": ("steps", "headless-runner.maxSteps or agent-loop.maxStepsPerTurn", AT_LIMIT),
    "limit:tokens": ("tokens", "headless-runner.maxTokensTotal or agent-loop.maxTokensPerTurn", AT_LIMIT),
    "limit:timeout": ("time", "headless-runner.timeoutMs or agent-loop.maxTurnMs", OUT_OF_TIME),
    "limit:repeat": ("equal calls in a row", "repeat-tool-reminder.endTurnAt", AT_LIMIT),
}
"""What a limit counts, the rows and keys that set it, and the exit code."""
NO_ANSWER = "dsh: the task ended without an answer; dsh sessions show last tells what was done"


class Outcome(NamedTuple):
    """What an idle-to-idle interval of a log came to."""

    text: str
    reason: dict[str, Any] | None
    """The `turn/end` reason of the last turn; None where no turn ended."""
    has_begun: bool = True
    """Whether any turn was begun."""
    is_cut: bool = False
    """Whether the text is the beginning of a reply that was broken off in the last turn."""


def fold_outcome(entries: Iterable[SessionEvent | ChunkRun]) -> Outcome:
    """The last assistant text that is not empty, and how the last turn ended.

    Nothing before the first `turn/start` counts. A message without text (tool calls, reasoning) leaves
    the earlier text standing; text blocks are joined without a separator (`spec/front-ends.md` §1.4).
    """
    text, reason, has_begun, is_cut = "", None, False, False
    for entry in entries:
        if isinstance(entry, ChunkRun):
            continue
        if entry.type == "turn/start":
            has_begun, reason, is_cut = True, None, False
        elif has_begun and entry.type == "assistant/message":
            if said := text_of(entry.data["message"]):
                text, is_cut = said, entry.data.get("interrupted") is True
        elif has_begun and entry.type == "turn/end":
            reason = entry.data["reason"]
    return Outcome(text, reason, has_begun, is_cut)


def account(session: Session, first: int) -> Outcome:
    """What the log came to from seq `first` on. A turn that did nothing does not cover up one that failed."""
    outcome = fold_outcome(session.entries(first))
    if outcome.reason is not None and outcome.reason["kind"] == "completed":
        worked = consumed_work(session, first).end
        if worked is not None:
            return outcome._replace(reason=worked.data["reason"])
    return outcome


def judge(outcome: Outcome) -> tuple[int, str | None]:
    """The exit code, and the line for standard error where there is something to say."""
    reason = outcome.reason
    if reason is None:
        if outcome.has_begun:
            return FAILED, "dsh: the turn has no end in the log"
        return FAILED, "dsh: the task was never taken up: no turn ran"
    match reason["kind"]:
        case "completed":
            return 0, None if outcome.text.strip() else NO_ANSWER
        case "error":
            return _judge_error(reason["error"], is_cut=outcome.is_cut)
        case "max-tokens":
            return FAILED, "dsh: the answer is cut off: the model reached its limit of output tokens"
        case "blocked":
            return FAILED, "dsh: the task was refused before the model was asked"
        case kind:
            return _judge_cause(kind, reason.get("reason") or {})


def _judge_error(error: dict[str, Any], *, is_cut: bool) -> tuple[int, str]:
    code = error["code"]
    line = f"dsh: {code}: {' '.join(str(error['message']).split())}"
    if is_cut:
        line += "; the answer is cut off there"
    if code == "AUTH":  # the provider's words; those of a key that was never sent name the remedy themselves
        line += f"; export a valid key, or put it into {home_label()}/.credentials.yaml"
    return (CredentialError.exit_code if code in CREDENTIAL_CODES else FAILED), line


def _judge_cause(kind: str, cause: dict[str, Any]) -> tuple[int, str]:
    name = cause.get("reason") or cause.get("kind")
    if name in _LIMITS:
        what, where, code = _LIMITS[name]
        return code, f"dsh: stopped at the limit of {what} ({where}); a higher one lets it go on"
    because = f" ({name})" if name else ""
    return (AT_LIMIT if str(name).startswith("limit:") else FAILED), f"dsh: the turn ended {kind}{because}"
