"""What providers say in plain words: quota, overflow, and the rest; and how their text is made presentable.

Codes and types are preferred where a provider sends them; wording is what is left (`spec/llm.md` §4.5).
"""

import html
import re
from collections.abc import Sequence

from dsh.masking import MASK, masked

MAX_MESSAGE_CHARS = 300
SHORT_SECRET_CHARS = 8
MAX_PAGE_CHARS = 100_000
"""How much of a page is looked at."""

_OVERFLOW = re.compile(
    r"""
    context[ _-]*(?:length|window)[ _-]*(?:exceeded|exceeds|overflow|limit[ _-]+exceeded)
  | maximum[ _-](?:context|prompt|input|model)[ _-](?:length|window)
  | (?:prompt|input|request)[ ]is[ ]too[ ]long:[ ]*\d+[ ]tokens
  | (?:prompt|input|request)(?:[ ]is)?[ ]too[ ](?:long|large)[ ]for[ ](?:(?:the|this|requested)[ ])?model
  | (?:prompt|input|request)(?:[ ]is)?[ ]too[ ](?:long|large)\b.{0,40}?\bcontext
  | (?:input|prompt|request|messages)\b.{0,80}?\b(?:exceed(?:s|ed)?|overflows?|is[ ]larger[ ]than)\b
    .{0,40}?\b(?:model(?:'s)?[ ])?(?:maximum[ ])?context
  | (?:larger|greater|longer)[ ]than[ ]the[ ](?:model(?:'s)?[ ])?(?:maximum[ ])?context
  | token[ ]count\b.{0,40}?\bexceeds[ ]the[ ](?:limit|maximum)
  | exceed(?:s|ed)[ ](?:the[ ])?(?:model[ ]token[ ]limit|available[ ]context)
  | context[ ]length[ ]of[ ]only[ ]\d+[ ]tokens
  | context[ ]length[ ]is[ ]only[ ]\d+
  | (?:tokens|length)\b.{0,40}?\bexceeds?[ ]the[ ](?:maximum[ ]allowed|configured)[ ]
    (?:input[ ])?(?:length|limit)
  | tokens\b.{0,20}?\bexceed[ ]context[ ]window
  | \bcontext[ _-]overflow
  | range[ ]of[ ]input[ ]length[ ]should[ ]be
  | `?inputs`?[ ]tokens[ ]\+[ ]`?max_new_tokens`?[ ]must[ ]be
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_QUOTA = re.compile(
    r"""
    insufficient[ _-](?:quota|balance|credits?|funds)
  | (?:quota|usage)[ _-](?:limit[ _-])?(?:has[ ]been[ ]|is[ ])?(?:exceeded|exhausted|reached)
  | exceeded[ ]your[ ]current[ ]quota
  | (?:balance|credits?)[ ](?:has[ ]been[ ]|have[ ]been[ ]|is[ ]|are[ ])?(?:exhausted|depleted|too[ ]low)
  | out[ ]of[ ](?:credits?|budget)
  | reached[ ]your[ ](?:specified[ ])?(?:api[ ])?usage[ ]limits?
  | billing[ ](?:hard[ ])?limit[ ](?:has[ ]been[ ]|is[ ])?reached
  | requires[ ]more[ ]credits
    """,
    re.IGNORECASE | re.VERBOSE,
)
_BAD_KEY = re.compile(
    r"(?:incorrect|invalid|wrong)[ ]api[ ]key|api[ ]key[ ](?:is[ ])?(?:invalid|not[ ]valid)", re.I
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
_HIDDEN_OPEN = re.compile(r"<(script|style|head)\b[^<>]*>", re.IGNORECASE)
_CLOSE = {name: re.compile(rf"</{name}[^<>]*>", re.IGNORECASE) for name in ("script", "style", "head")}
_TITLE_OPEN = re.compile(r"<title\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]{0,2000}>")
_WORDS = re.compile(r"[A-Za-z][^{}<>\ufffd\x00]{3,2000}\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def says_overflow(text: str) -> bool:
    """Whether the text says that the context window was exceeded."""
    return _OVERFLOW.search(text) is not None


def says_quota(text: str) -> bool:
    """Whether the text says that the account has nothing left."""
    return _QUOTA.search(text) is not None


def says_bad_key(text: str) -> bool:
    """Whether the text says that the key is wrong; some providers say so with HTTP 400."""
    return _BAD_KEY.search(text) is not None


def kind_of(text: str) -> str | None:
    """The failure code that the wording suggests, if any."""
    for code, pattern in _KINDS:
        if pattern.search(text):
            return code
    return None


def presentable(text: str, secrets: Sequence[str] = ()) -> str:
    """A provider's text as part of a message: one line of at most 300 characters, keys masked."""
    text = without_secrets(text, secrets)
    text = " ".join(_CONTROL.sub(" ", masked(text[: 40 * MAX_MESSAGE_CHARS])).split())
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"


def without_secrets(text: str, secrets: Sequence[str]) -> str:
    """The text with each secret masked; a short one, such as the `x` of a keyless server, as a word."""
    for secret in secrets:
        if len(secret) >= SHORT_SECRET_CHARS:
            text = text.replace(secret, MASK)
        elif secret:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
    return text


def looks_like_html(body: str) -> bool:
    """Whether a body is a page rather than data."""
    return body.lstrip().startswith("<")


def looks_like_words(body: str) -> bool:
    """Whether a body is plain text that a person wrote, such as a gateway's one line."""
    return _WORDS.match(body.strip()) is not None


def page_text(page: str, secrets: Sequence[str] = ()) -> str:
    """The words of an HTML page, its title first, without any markup; no secret is cut in two on the way."""
    page = without_secrets(page, secrets)[:MAX_PAGE_CHARS]
    title = ""
    if opened := _TITLE_OPEN.search(page):
        title = _words(page[opened.end() : opened.end() + MAX_MESSAGE_CHARS].partition("</")[0])
    words = _words(_without_hidden(page))
    return f"{title}: {words}" if title and words and not words.startswith(title) else words or title


def _without_hidden(page: str) -> str:
    """The page without scripts, styles and head; one that is never closed takes the rest with it."""
    kept, at = [], 0
    while opened := _HIDDEN_OPEN.search(page, at):
        kept.append(page[at : opened.start()])
        closed = _CLOSE[opened[1].lower()].search(page, opened.end())
        if closed is None:
            return " ".join(kept)
        at = closed.end()
    return " ".join([*kept, page[at:]])


def _words(markup: str) -> str:
    text = html.unescape(_TAG.sub(" ", markup)).replace("<", " ").replace(">", " ")
    return " ".join(text.split())
