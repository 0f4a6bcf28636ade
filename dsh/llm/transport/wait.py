"""How long a provider asks to wait: from the headers of its answer, its error object, its words.

Source: RFC 9110 §10.2.3; `retry-after-ms` of OpenAI and Azure; `x-ratelimit-reset-*` of OpenAI and the
servers that speak its dialect; `anthropic-ratelimit-*-reset`; `google.rpc.RetryInfo`.
"""

import email.utils
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

_REMAINING = re.compile(r"(x|anthropic)-ratelimit-(?:(.+)-)?remaining(?:-(.+))?\Z")
_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0, "h": 3_600_000.0, "d": 86_400_000.0}
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_EPOCH_S, _EPOCH_MS = 1e9, 1e12
_SPOKEN = re.compile(
    r"(?:try again in|retry (?:after|in))\s+(?:about\s+)?"
    r"(?:((?:\d{1,6}(?:\.\d{1,9})?(?:ms|s|m|h|d))+)\b|(\d{1,6}(?:\.\d{1,9})?)\s*(millisecond|second|minute|hour)s?\b)",
    re.IGNORECASE,
)
_SPOKEN_MS = {"millisecond": 1.0, "second": 1_000.0, "minute": 60_000.0, "hour": 3_600_000.0}


def header_wait_ms(headers: Mapping[str, str], now_s: float) -> float | None:
    """How long the headers ask to wait, in milliseconds; None where they say nothing usable.

    `Retry-After-Ms` before `Retry-After` (whole seconds or an HTTP date), then the reset of each rate limit
    of which nothing remains. Zero, negative and past values do not count, nor does a fractional
    `Retry-After`.

    Args:
        headers: names in lower case.
        now_s: seconds since the epoch.
    """
    exact = headers.get("retry-after-ms", "").strip()
    if _NUMBER.fullmatch(exact) and exact.isascii() and (wait_ms := math.ceil(float(exact))) > 0:
        return wait_ms
    given = headers.get("retry-after", "").strip()
    if given:
        if given.isascii() and given.isdigit():
            return int(given[:12]) * 1000 or None
        return _until(given, now_s)
    waits = [
        reset_ms(headers.get(name, ""), now_s)
        for remaining, left in headers.items()
        if left == "0"
        for name in _reset_names(remaining)
    ]
    return max((wait for wait in waits if wait), default=None)


def details_wait_ms(details: Sequence[Mapping[str, Any]]) -> float | None:
    """How long the details of an error object ask to wait (`"retryDelay": "23s"`)."""
    given = [detail.get("retryDelay") for detail in details]
    waits = [_duration_ms(text) for text in given if isinstance(text, str)]
    return max((wait for wait in waits if wait), default=None)


def spoken_wait_ms(message: str) -> float | None:
    """The wait that a message names: "Please try again in 6m0s", "retry after 26 seconds"."""
    found = _SPOKEN.search(message)
    if found is None:
        return None
    if found[1]:
        return _duration_ms(found[1].lower())
    return math.ceil(float(found[2]) * _SPOKEN_MS[found[3].lower()]) or None


def reset_ms(text: str, now_s: float) -> float | None:
    """Until a limit is reset: a duration (`6m0s`), seconds, a moment (RFC 3339, or since the epoch)."""
    text = text.strip()
    if (wait := _duration_ms(text)) is not None:
        return wait
    if _NUMBER.fullmatch(text) and text.isascii():
        number = float(text)
        if number >= _EPOCH_MS:
            number = number / 1000 - now_s
        elif number >= _EPOCH_S:
            number -= now_s
        return _ahead(number)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _until(text, now_s)
    return _ahead(moment.timestamp() - now_s) if moment.tzinfo is not None else None


def _reset_names(remaining: str) -> tuple[str, ...]:
    """The header that tells the reset of the limit whose rest this header tells, if it is one."""
    found = _REMAINING.fullmatch(remaining)
    if found is None:
        return ()
    family, before, after = found.groups()
    if before:
        return (f"{family}-ratelimit-{before}-reset",)
    return (f"{family}-ratelimit-reset-{after}" if after else f"{family}-ratelimit-reset",)


def _until(date: str, now_s: float) -> float | None:
    if not any(char.isalpha() for char in date):
        return None
    try:
        moment = email.utils.parsedate_to_datetime(date)
        return _ahead(moment.timestamp() - now_s)
    except (ValueError, OverflowError):
        return None


def _ahead(seconds: float) -> float | None:
    return round(seconds * 1000) if seconds * 1000 >= 0.5 else None


def _duration_ms(text: str) -> float | None:
    """`1s`, `6m0s`, `250ms` in milliseconds."""
    if not _DURATION.fullmatch(text.strip()):
        return None
    total = sum(float(number) * _UNITS_MS[unit] for number, unit in _DURATION_PART.findall(text))
    return math.ceil(total) if total > 0 else None
