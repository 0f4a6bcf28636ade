"""Makes text valid Unicode: lone surrogates never reach a log, a request or an output stream."""

import re

_ESCAPED_BYTES = re.compile("[\udc80-\udcff]+")
_SURROGATE = re.compile("[\ud800-\udfff]")


def valid(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD; halves that fit become the character they mean."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def from_system(text: str) -> str:
    """The text of an argument, variable or file name, whose undecodable bytes Python keeps as surrogates.

    The bytes are read as UTF-8, whatever the locale; what is none becomes U+FFFD.
    """
    return text if text.isascii() else valid(_ESCAPED_BYTES.sub(_as_utf8, text))


def _as_utf8(escaped: re.Match[str]) -> str:
    return escaped[0].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
