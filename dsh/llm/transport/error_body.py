"""What the error of a provider says, whatever shape it comes in: the facts that the classifiers judge.

There is no standard. Known shapes are an `error` member (an object, or plain words), the members of one at
the top, a list around either, FastAPI's `detail`, and the bodies of gateways in front of a server.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dsh.llm.transport.wait import details_wait_ms
from dsh.unicode import valid

MAX_JUDGED_CHARS = 4000
_MESSAGES = ("message", "error_description", "detail", "msg", "Message", "errorMessage", "title")
_NAMES = ("code", "type", "status", "reason", "error_code")


class ErrorFacts(msgspec.Struct, frozen=True):
    """What an error says. Every field is empty where it says nothing usable."""

    message: str = ""
    names: tuple[str, ...] = ()
    """The error's own names for itself: its code first, then its type and what is more special."""
    status: int | None = None
    """The HTTP status that it holds, 400 to 599."""
    wait_ms: float | None = None
    """How long it says to wait, apart from its message."""
    headers: Mapping[str, str] = {}
    """Headers of the answer that a router got and hands on within its own, names in lower case."""
    request_id: str = ""

    @property
    def text(self) -> str:
        """All of it, as far as the classifiers look."""
        return " ".join(part for part in (*self.names, self.message) if part)[:MAX_JUDGED_CHARS]


def read_body(text: str) -> ErrorFacts:
    """The facts of the body of an error answer."""
    value = _decoded(text)
    if isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, Mapping):
        return ErrorFacts()
    errors = value.get("errors")
    if isinstance(errors, list) and errors and "error" not in value:
        value = {**value, "error": errors[0]}
    facts = read_error(value.get("error"))
    if not isinstance(value.get("error"), Mapping):
        # words in its place are the message, or its name where the message stands beside it
        outer = read_error(value)
        said = (facts.message,) if facts.message and outer.message else ()
        facts = msgspec.structs.replace(
            outer, message=outer.message or facts.message, names=(*said, *outer.names)
        )
    found = value.get("request_id")
    if isinstance(found, str) and not facts.request_id:
        facts = msgspec.structs.replace(facts, request_id=valid(found))
    return facts


def read_error(value: Any) -> ErrorFacts:
    """The facts of an `error` member: an object, or plain words."""
    if isinstance(value, str):
        return ErrorFacts(message=valid(value))
    if not isinstance(value, Mapping):
        return ErrorFacts()
    names = [name for key in _NAMES if (name := _name(value.get(key)))]
    details = [found for found in _sequence(value.get("details")) if isinstance(found, Mapping)]
    names += [name for detail in details if (name := _name(detail.get("reason")))]
    names += _inner_names(value.get("innererror"))
    message = next((text for key in _MESSAGES if (text := _words(value.get(key)))), "")
    metadata = value.get("metadata")
    if isinstance(metadata, Mapping) and (name := _name(metadata.get("error_type"))):
        names.append(name)
    if isinstance(metadata, Mapping) and (below := _below(metadata.get("raw"))) is not None:
        # a router that hands on another provider's error: its own message only says so
        names += below.names
        message = f"{message}: {below.message}" if message and below.message else message or below.message
    return ErrorFacts(
        message=message,
        names=tuple(dict.fromkeys(names)),
        status=_status(value),
        wait_ms=details_wait_ms(details),
        headers=_headers(metadata),
        request_id=_text(value.get("request_id")),
    )


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _below(raw: Any) -> ErrorFacts | None:
    """The error behind `metadata.raw`: JSON text of any shape, the object itself, or words."""
    if isinstance(raw, Mapping):
        return read_body(json.dumps(raw))
    if not isinstance(raw, str) or not raw.strip():
        return None
    return read_body(raw) if raw.lstrip()[:1] in "{[" else ErrorFacts(message=valid(raw))


def _headers(metadata: Any) -> Mapping[str, str]:
    found = metadata.get("headers") if isinstance(metadata, Mapping) else None
    if not isinstance(found, Mapping):
        return {}
    return {name.lower(): value for name, value in found.items() if isinstance(value, str)}


def _status(value: Mapping[str, Any]) -> int | None:
    for key in ("code", "status", "statusCode", "status_code"):
        found = value.get(key)
        if isinstance(found, str) and found.isascii() and found.isdigit():
            found = int(found[:4])
        if type(found) is int and 400 <= found <= 599:
            return found
    return None


def _name(value: Any) -> str:
    """A name as text. A number is one as well, unless it is an HTTP status."""
    if type(value) is int:
        value = str(value) if abs(value) < 10**9 else ""
    text = _text(value).strip()
    return "" if len(text) > 100 or (text.isdigit() and 100 <= int(text) <= 599) else text


def _inner_names(value: Any) -> list[str]:
    return [name] if isinstance(value, Mapping) and (name := _name(value.get("code"))) else []


def _words(value: Any) -> str:
    """A message; of a list of problems, such as FastAPI's, the first few."""
    if isinstance(value, Mapping):
        return _text(value.get("message") or value.get("msg") or value.get("error"))
    parts = [_words(part) for part in _sequence(value)[:3]]
    return "; ".join(part for part in parts if part) if parts else _text(value)


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _text(value: Any) -> str:
    return valid(value) if isinstance(value, str) else ""
