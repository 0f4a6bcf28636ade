"""From what a provider answered to a failure code: by status, by the error's own names, by wording."""

from collections.abc import Mapping, Sequence
from typing import Any

from dsh.llm.failure import LlmFailure
from dsh.llm.transport.error_body import MAX_JUDGED_CHARS, ErrorFacts, read_body, read_error
from dsh.llm.transport.named import code_of
from dsh.llm.transport.wait import header_wait_ms, spoken_wait_ms
from dsh.llm.transport.wording import (
    kind_of,
    looks_like_html,
    looks_like_words,
    page_text,
    presentable,
    says_bad_key,
    says_overflow,
    says_quota,
)
from dsh.unicode import valid

_REQUEST_IDS = ("x-request-id", "request-id", "x-deepseek-request-id", "apim-request-id")


def code_for(status: int, text: str, named: str | None = None) -> str:
    """The code of an HTTP answer that is no success (`spec/llm.md` §4.5, in its order).

    Args:
        text: what the answer says, for what only wording tells.
        named: the code behind the error's own names, which goes before wording.
    """
    if status in (401, 403):
        return "AUTH"
    if status == 413:
        return "INVALID_REQUEST"
    if status == 402 or named == "QUOTA":
        return "QUOTA"
    if named == "CONTEXT_WINDOW_EXCEEDED" or (named == "AUTH" and status < 500):
        return named
    if says_quota(text):
        return "QUOTA"
    if status == 429 or (named == "RATE_LIMIT" and status < 500):
        return "RATE_LIMIT"
    if status in (400, 422) and says_overflow(text):
        return "CONTEXT_WINDOW_EXCEEDED"
    if status == 400:
        return "AUTH" if says_bad_key(text) else "INVALID_REQUEST"
    return "SERVER" if status >= 500 else f"HTTP_{status}"


def classify_status(
    status: int,
    body: bytes,
    headers: Mapping[str, str],
    *,
    provider: str,
    host: str,
    now_s: float,
    secrets: Sequence[str] = (),
) -> LlmFailure:
    """The failure behind an HTTP answer with an error status.

    Args:
        headers: names in lower case.
        provider: display name, for a message where the provider gives none.
        host: the endpoint as it may be shown.
        now_s: seconds since the epoch, for dates in `Retry-After`.
        secrets: masked wherever they are echoed.
    """
    text = decode_body(body, headers.get("content-type", ""))
    facts = read_body(text)
    message = presentable(facts.message, secrets)
    page = page_text(text, secrets) if looks_like_html(text) else ""
    said = facts.text or (page or text)[:MAX_JUDGED_CHARS]
    if not message:
        message = f"{provider} API error (HTTP {status}) from {host}"
        words = page or (text if looks_like_words(text) else "")
        if words := presentable(words, secrets):
            message += f": {words}"
        if 300 <= status < 400:
            message += "; the endpoint redirects, and redirects are not followed: check the base URL"
    if status == 407:
        message += "; a proxy wants user and password: set them in the URL of HTTP_PROXY"
    named = code_of(facts.names)
    code = code_for(status, said, named)
    if code == "QUOTA" and status == 429 and facts.wait_ms is not None and named != "QUOTA":
        code = "RATE_LIMIT"  # a quota of the minute: the error itself says when to come back
    wait_ms = header_wait_ms(headers, now_s) or _body_wait_ms(facts, code, said, now_s)
    return LlmFailure(
        message=message,
        code=code,
        status=status if 100 <= status <= 599 else None,
        provider_retry_after_ms=wait_ms,
        request_id=request_id(headers, secrets) or presentable(facts.request_id, secrets) or None,
    )


def classify_error_object(
    value: Any,
    *,
    provider: str,
    headers: Mapping[str, str],
    now_s: float = 0.0,
    secrets: Sequence[str] = (),
) -> LlmFailure:
    """The failure behind an error that came inside a stream or with status 200."""
    facts = read_error(value)
    code = _code_in_band(facts)
    return LlmFailure(
        message=presentable(facts.message or facts.text, secrets)
        or f"{provider} reported an error within the stream",
        code=code,
        status=facts.status,
        provider_retry_after_ms=_body_wait_ms(facts, code, facts.message, now_s),
        request_id=request_id(headers, secrets) or presentable(facts.request_id, secrets) or None,
    )


def _body_wait_ms(facts: ErrorFacts, code: str, said: str, now_s: float) -> float | None:
    """How long the error itself asks to wait, in words only where waiting is what helps."""
    if (wait_ms := facts.wait_ms or header_wait_ms(facts.headers, now_s)) is not None:
        return wait_ms
    return spoken_wait_ms(said) if code in ("RATE_LIMIT", "SERVER") else None


def _code_in_band(facts: ErrorFacts) -> str:
    text, named = facts.text, code_of(facts.names)
    if facts.status is not None:
        return code_for(facts.status, text, named)
    if named in ("QUOTA", "CONTEXT_WINDOW_EXCEEDED", "AUTH"):
        return named
    if says_quota(text):
        return "QUOTA"
    if says_overflow(text):
        return "CONTEXT_WINDOW_EXCEEDED"
    return named or kind_of(text) or "SERVER"


def decode_body(body: bytes, content_type: str) -> str:
    """A body as text, in the charset it names if Python knows it; wrong bytes are replaced."""
    _, _, charset = content_type.lower().partition("charset=")
    name = charset.split(";")[0].strip().strip("\"'") or "utf-8"
    try:
        text = valid(body.decode(name, "replace"))
    except (LookupError, ValueError):
        text = body.decode("utf-8", "replace")
    return text.removeprefix("\ufeff")


def request_id(headers: Mapping[str, str], secrets: Sequence[str] = ()) -> str | None:
    """The provider's name for the request."""
    found = next((value for name in _REQUEST_IDS if (value := headers.get(name))), "")
    return presentable(found, secrets) or None
