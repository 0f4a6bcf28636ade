"""What is said of a model that a route does not have: the nearest names it has, and where it was chosen."""

import difflib
import re
from collections.abc import Iterable

import msgspec

from dsh.llm.failure import LlmError, LlmFailure

MAX_NAMED = 3
MAX_COMPARED = 2000
CHOSEN = "the model is chosen by agent-default-model, in the settings or as a row"

_SAYS = re.compile(
    r"""
    not[ ]exist | not[ ]found | not[ ]available | not[ ]supported | unknown[ ]model | no[ ]such[ ]model
  | (?:invalid|not[ ]a[ ]valid|unsupported)[ ]model | no[ ]endpoints[ ]found | not[ ]have[ ]access
    """,
    re.IGNORECASE | re.VERBOSE,
)


def is_unknown_model(failure: LlmFailure, model: str) -> bool:
    """Whether a refusal says that there is no such model: by status, and by its words."""
    said = failure.message
    return (
        failure.status in (400, 404, 422)
        and _SAYS.search(said) is not None
        and ("model" in said.lower() or (bool(model) and model in said))
    )


def closest(model: str, known: Iterable[str]) -> list[str]:
    """The names nearest to this one, nearest first, at most `MAX_NAMED`."""
    by_lower = {name.lower(): name for name in list(known)[:MAX_COMPARED]}
    wanted = model.lower()
    near = difflib.get_close_matches(wanted, by_lower, MAX_NAMED, 0.5)
    if wanted:
        near += [name for name in by_lower if (wanted in name or name in wanted) and name not in near]
    return [by_lower[name] for name in near[:MAX_NAMED]]


def unknown_model(route: str, model: str, known: Iterable[str]) -> LlmError:
    """The failure of a model that a route's own configuration excludes."""
    return LlmError.of(
        "UNKNOWN_MODEL", f"route {route} has no model {model!r}{_nearest(model, known)}; {CHOSEN}"
    )


def told(error: LlmError, route: str, model: str, known: Iterable[str]) -> LlmError:
    """A provider's refusal of a model, with route, model and what may have been meant. Its code stays."""
    said = error.failure.message.rstrip(". ")
    message = f"route {route} has no model {model!r}: {said}{_nearest(model, known)}; {CHOSEN}"
    made = LlmError(msgspec.structs.replace(error.failure, message=message), hint=error.hint)
    made.__cause__ = error
    return made


def _nearest(model: str, known: Iterable[str]) -> str:
    names = list(known)
    near = closest(model, names)
    if near:
        return f"; nearest: {', '.join(near)}"
    return (
        f"; it has: {', '.join(names[:MAX_NAMED])}{', …' if len(names) > MAX_NAMED else ''}" if names else ""
    )
