"""What is said of a model that a route does not have: the nearest names it has, and where it was chosen."""

import difflib
import re
from collections.abc import Iterable
from itertools import islice

import msgspec

from dsh.llm.failure import LlmError, LlmFailure

MAX_NAMED = 3
MAX_COMPARED = 2000
MAX_NAME_CHARS = 100
CHOSEN = "the model is chosen by agent-default-model, in the settings or as a row"

_SAYS = re.compile(
    r"""
    not[ ]exist | not[ ]found | unknown[ ]model | no[ ]such[ ]model | not[ ]have[ ]access
  | (?:invalid|not[ ]a[ ]valid|unsupported)[ ]model | no[ ]endpoints[ ]found
  | model\b[^.;:]{0,80}\bnot[ ](?:available|supported)  # and no parameter "with this model"
    """,
    re.IGNORECASE | re.VERBOSE,
)


def is_unknown_model(failure: LlmFailure, model: str) -> bool:
    """Whether a refusal says that there is no such model: by status, and by its words."""
    said = failure.message.replace(model, "model") if model else failure.message
    if failure.status == 404 and failure.message.startswith("model:"):  # Anthropic's whole answer
        return True
    return failure.status in (400, 404, 422) and "model" in said.lower() and _SAYS.search(said) is not None


def closest(model: str, known: Iterable[str]) -> list[str]:
    """The names nearest to this one, nearest first, at most `MAX_NAMED`."""
    by_lower = {name.lower(): name for name in _presentable(known)}
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


def _presentable(known: Iterable[str]) -> list[str]:
    """The names that can be shown: a server may list anything."""
    return [
        name for name in islice(known, MAX_COMPARED) if name.isprintable() and len(name) <= MAX_NAME_CHARS
    ]


def _nearest(model: str, known: Iterable[str]) -> str:
    names = _presentable(known)
    near = closest(model, names)
    if near:
        return f"; nearest: {', '.join(near)}"
    return (
        f"; it has: {', '.join(names[:MAX_NAMED])}{', …' if len(names) > MAX_NAMED else ''}" if names else ""
    )
