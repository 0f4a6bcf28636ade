"""What providers say in plain words: quota, overflow, and the rest; and how their text is made presentable.

Codes and types are preferred where a provider sends them; wording is what is left (`spec/llm.md` §4.5).
"""

import html
import re

MAX_MESSAGE_CHARS = 300

_OVERFLOW = re.compile(
    r"""
    context[ _-]+(?:length|window)[ _-]+(?:exceeded|overflow|limit[ _-]+exceeded)
  | maximum[ _-]context[ _-](?:length|window)
  | (?:prompt|input|request)[ ]is[ ]too[ ]long:[ ]*\d+[ ]tokens
  | (?:prompt|input|request)(?:[ ]is)?[ ]too[ ](?:long|large)[ ]for[ ](?:the|this)[ ]?model
  | (?:prompt|input|request)(?:[ ]is)?[ ]too[ ](?:long|large)[ ]for[ ]model
  | (?:input|prompt|request|messages)\b.{0,80}?\b(?:exceeds?|overflows?|is[ ]larger[ ]than)\b
    .{0,40}?\b(?:model(?:'s)?[ ])?(?:maximum[ ])?context
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_QUOTA = re.compile(
    r"""
    insufficient[ _-](?:quota|balance|credits?|funds)
  | (?:quota|usage)[ _-](?:limit[ _-])?(?:has[ ]been[ ]|is[ ])?(?:exceeded|exhausted|reached)
  | exceeded[ ]your[ ]current[ ]quota
  | (?:balance|credits?)[ ](?:has[ ]been[ ]|have[ ]been[ ]|is[ ]|are[ ])?(?:exhausted|depleted)
  | out[ ]of[ ](?:credits?|budget)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (code, re.compile(pattern, re.IGNORECASE))
    for code, pattern in (
        (
            "AUTH",
            r"authenticat|unauthori[sz]ed|invalid[ _-]?api[ _-]?key|permission[ _-]?(?:denied|error)",
        ),
        ("RATE_LIMIT", r"rate[ _-]?limit|too many requests|requests per (?:minute|second|day)"),
        (
            "INVALID_REQUEST",
            r"request[ _-]?(?:entity|body)?[ _-]?too[ _-]?large|invalid[ _-]?(?:request|argument|param)",
        ),
        (
            "SERVER",
            r"overload|server[ _-]?(?:error|busy)|internal[ _-]?error|unavailable|bad gateway|at capacity",
        ),
        ("TIMEOUT", r"time[ -]?d?[ -]?out|deadline exceeded"),
        ("TRANSPORT", r"connection (?:reset|closed|refused|lost)|network|truncated|socket|broken pipe"),
    )
)
_TAG_BODY = re.compile(r"<(script|style|head)\b.*?</\1\s*>", re.IGNORECASE | re.DOTALL)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title\s*>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]{0,2000}>")
_KEY = re.compile(r"\b(sk|pk|rk|api|key|token)([-_])[A-Za-z0-9][A-Za-z0-9_\-]{6,}")
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=\-]{6,}", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def says_overflow(text: str) -> bool:
    """Whether the text says that the context window was exceeded."""
    return _OVERFLOW.search(text) is not None


def says_quota(text: str) -> bool:
    """Whether the text says that the account has nothing left."""
    return _QUOTA.search(text) is not None


def kind_of(text: str) -> str | None:
    """The failure code that the wording suggests, if any."""
    for code, pattern in _KINDS:
        if pattern.search(text):
            return code
    return None


def presentable(text: str, secret: str = "") -> str:
    """A provider's text as part of a message: one line of at most 300 characters, keys masked."""
    if secret:
        text = text.replace(secret, "***")
    text = _KEY.sub(r"\1\2***", text[: 40 * MAX_MESSAGE_CHARS])
    text = _URL_PASSWORD.sub("***@", _BEARER.sub(r"\1 ***", text))
    text = " ".join(_CONTROL.sub(" ", text).split())
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"


def looks_like_html(body: str) -> bool:
    """Whether a body is a page rather than data."""
    return body.lstrip().startswith("<")


def page_text(page: str) -> str:
    """The words of an HTML page, its title first, without any markup."""
    page = page[:100_000]
    title = _TITLE.search(page)
    body = _TAG.sub(" ", _TAG_BODY.sub(" ", page))
    words = " ".join(html.unescape(body).replace("<", " ").replace(">", " ").split())
    head = " ".join(html.unescape(title[1]).replace("<", " ").replace(">", " ").split()) if title else ""
    return f"{head}: {words}" if head and words and not words.startswith(head) else words or head
