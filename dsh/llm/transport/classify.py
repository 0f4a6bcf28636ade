"""From what a provider answered to a failure code: by status, by error object, by wording, in that order."""

import email.utils
import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from dsh.llm.failure import LlmFailure
from dsh.llm.transport.wording import (
    kind_of,
    looks_like_html,
    page_text,
    presentable,
    says_overflow,
    says_quota,
)
from dsh.unicode import valid

MAX_JUDGED_CHARS = 4000
_NO_LIMIT_LEFT = ("x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens")
_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d{1,6})?(?:ms|s|m|h))+")
_DURATION_PART = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h)")
_UNITS_MS = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0, "h": 3_600_000.0}


class ErrorFacts(msgspec.Struct, frozen=True):
    """What an error object of a provider says. Every field is empty where it says nothing usable."""

    message: str = ""
    type: str = ""
    code: str = ""

    @property
    def text(self) -> str:
        """All of it, as far as the classifiers look."""
        return " ".join(part for part in (self.code, self.type, self.message) if part)[:MAX_JUDGED_CHARS]


def read_error(value: Any) -> ErrorFacts:
    """The facts of an `error` member: an object with any of message, type and code, or a plain string."""
    if isinstance(value, str):
        return ErrorFacts(message=valid(value))
    if not isinstance(value, Mapping):
        return ErrorFacts()
    code = value.get("code")
    return ErrorFacts(
        message=_as_text(value.get("message")),
        type=_as_text(value.get("type")),
        code=str(code) if type(code) is int else _as_text(code),
    )


def _as_text(value: Any) -> str:
    return valid(value) if isinstance(value, str) else ""


def code_for(status: int, text: str) -> str:
    """The code of an HTTP answer that is no success (`spec/llm.md` §4.5, in its order)."""
    if status in (401, 403):
        return "AUTH"
    if status == 413:
        return "INVALID_REQUEST"
    if says_quota(text):
        return "QUOTA"
    if status == 429:
        return "RATE_LIMIT"
    if status == 400:
        return "CONTEXT_WINDOW_EXCEEDED" if says_overflow(text) else "INVALID_REQUEST"
    return "SERVER" if status >= 500 else f"HTTP_{status}"


def classify_status(
    status: int,
    body: bytes,
    headers: Mapping[str, str],
    *,
    provider: str,
    host: str,
    now_s: float,
    secret: str = "",
) -> LlmFailure:
    """The failure behind an HTTP answer with an error status.

    Args:
        headers: names in lower case.
        provider: display name, for a message where the provider gives none.
        host: the endpoint as it may be shown.
        now_s: seconds since the epoch, for dates in `Retry-After`.
        secret: the key in use, masked wherever it is echoed.
    """
    text = decode_body(body, headers.get("content-type", ""))
    facts = _facts_of(text)
    message = presentable(facts.message, secret)
    if not message:
        generic = f"{provider} API error (HTTP {status}) from {host}"
        said = presentable(page_text(text), secret) if looks_like_html(text) else ""
        message = f"{generic}: {said}" if said else generic
        if 300 <= status < 400:
            message += "; the endpoint redirects, and redirects are not followed: check the base URL"
    return LlmFailure(
        message=message,
        code=code_for(
            status, facts.text or (page_text(text) if looks_like_html(text) else text)[:MAX_JUDGED_CHARS]
        ),
        status=status if 100 <= status <= 599 else None,
        provider_retry_after_ms=retry_after_ms(headers, now_s),
        request_id=request_id(headers, secret),
    )


def _facts_of(text: str) -> ErrorFacts:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return ErrorFacts()
    return read_error(value.get("error")) if isinstance(value, dict) else ErrorFacts()


def classify_error_object(
    value: Any, *, provider: str, headers: Mapping[str, str], secret: str = ""
) -> LlmFailure:
    """The failure behind an error that came inside a stream or with status 200."""
    facts = read_error(value)
    text = facts.text
    status = int(facts.code) if facts.code.isdecimal() and 400 <= int(facts.code[:4]) <= 599 else None
    if status is not None:
        code = code_for(status, text)
    elif says_quota(text):
        code = "QUOTA"
    elif says_overflow(text):
        code = "CONTEXT_WINDOW_EXCEEDED"
    else:
        code = kind_of(text) or "SERVER"
    return LlmFailure(
        message=presentable(facts.message or text, secret)
        or f"{provider} reported an error within the stream",
        code=code,
        status=status,
        request_id=request_id(headers, secret),
    )


def decode_body(body: bytes, content_type: str) -> str:
    """A body as text, in the charset it names if Python knows it; wrong bytes are replaced."""
    _, _, charset = content_type.lower().partition("charset=")
    name = charset.split(";")[0].strip().strip("\"'") or "utf-8"
    try:
        return valid(body.decode(name, "replace"))
    except (LookupError, ValueError):
        return body.decode("utf-8", "replace")


def request_id(headers: Mapping[str, str], secret: str = "") -> str | None:
    """The provider's name for the request."""
    found = headers.get("x-request-id") or headers.get("x-deepseek-request-id") or ""
    return presentable(found, secret) or None


def retry_after_ms(headers: Mapping[str, str], now_s: float) -> float | None:
    """How long the provider asks to wait, in milliseconds; None where it says nothing usable.

    `Retry-After-Ms` before `Retry-After` (whole seconds or an HTTP date), then the reset of a used-up
    rate limit. Zero, negative, fractional and past values do not count.

    Source: RFC 9110 §10.2.3; the `x-ratelimit-reset-*` durations of OpenAI-compatible servers.
    """
    exact = headers.get("retry-after-ms", "").strip()
    if exact.isascii() and exact.isdigit() and int(exact[:15]) > 0:
        return int(exact[:15])
    given = headers.get("retry-after", "").strip()
    if given:
        if given.isascii() and given.isdigit():
            return int(given[:12]) * 1000 or None
        return _until(given, now_s)
    waits = [
        _duration_ms(headers.get(name.replace("remaining", "reset"), ""))
        for name in _NO_LIMIT_LEFT
        if headers.get(name, "").strip() == "0"
    ]
    return max((wait for wait in waits if wait), default=None)


def _until(date: str, now_s: float) -> float | None:
    if not any(char.isalpha() for char in date):
        return None
    try:
        moment = email.utils.parsedate_to_datetime(date)
    except ValueError:
        return None
    wait_ms = round((moment.timestamp() - now_s) * 1000)
    return wait_ms if wait_ms > 0 else None


def _duration_ms(text: str) -> float | None:
    """`1s`, `6m0s`, `250ms` in milliseconds."""
    if not _DURATION.fullmatch(text.strip()):
        return None
    total = sum(float(number) * _UNITS_MS[unit] for number, unit in _DURATION_PART.findall(text))
    return round(total) if total > 0 else None
