"""The body of an answer as text: unpacked within bounds, then decoded by what it says of itself."""

import codecs
import re
import zlib
from collections.abc import Mapping
from typing import Literal

import msgspec

from dsh.capabilities.web import WebError

Kind = Literal["html", "text"]
PREFIX_BYTES = 1024
"""Where a page says in itself how it is encoded."""

_HTML = ("text/html", "application/xhtml+xml")
_TEXT = ("application/json", "application/xml", "application/javascript", "application/x-ndjson")
_META = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_CHARSETS = re.compile(
    r"(?:ascii|utf-8(?:-sig)?|utf-16(?:-[lb]e)?|utf-32(?:-[lb]e)?|iso8859-\d+|cp(?:125\d|866|874|932|949|950)"
    r"|koi8-[rut]|mac-(?:roman|cyrillic)|gb2312|gbk|gb18030|hz|big5|big5hkscs|euc_jp|euc_kr|iso2022_jp"
    r"|shift_jis|tis-620|johab)\Z"
)
"""Python's names of what pages are written in; its other codecs are no encodings of text."""
_AS_WINDOWS = {"iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "tis-620": "cp874"}
"""What browsers take these for."""


class Form(msgspec.Struct, frozen=True):
    """What the headers say of a body."""

    kind: Kind
    charset: str | None
    """As it is named; None where it is not."""
    is_typed: bool
    """The headers say what it is."""


def form_of(headers: Mapping[str, str]) -> Form:
    """Whether it is a text, and how it is encoded.

    Raises:
        WebError: `WEB_UNSUPPORTED_CONTENT_TYPE`.
    """
    said = headers.get("content-type", "")
    media, *parameters = (part.strip() for part in said.split(";"))
    media = media.lower()
    named = {name.strip().lower(): value.strip() for name, _, value in (p.partition("=") for p in parameters)}
    charset = named.get("charset", "").strip("\"'") or None
    if media in _HTML:
        return Form("html", charset, True)
    if not media or media in _TEXT or media.startswith("text/") or media.endswith(("+json", "+xml")):
        return Form("text", charset, bool(media))
    raise WebError("WEB_UNSUPPORTED_CONTENT_TYPE", f"it is {media[:80]!r}, and only text can be read")


class Unpacker:
    """Undoes `content-encoding` piece by piece, never more than there is room for. State: the inflater."""

    def __init__(self, encoding: str) -> None:
        """
        Raises:
            WebError: `WEB_PROVIDER_ERROR`, an encoding that was not asked for.
        """
        name = encoding.strip().lower()
        self._inflater: zlib._Decompress | None = None
        if name in ("gzip", "x-gzip", "deflate"):
            self._inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)
        elif name not in ("", "identity"):
            raise WebError(
                "WEB_PROVIDER_ERROR", f"the page is packed as {name[:40]!r}, which was not asked for"
            )
        self._may_be_bare = name == "deflate"
        """Nothing has come yet: some servers leave the frame of zlib out."""

    def unpacked(self, piece: bytes, room: int) -> bytes:
        """At most `room` bytes, which is above 0, of what the piece unpacks to; what is beyond is lost.

        Raises:
            WebError: `WEB_PROVIDER_ERROR`, it is not packed as it says.
        """
        if self._inflater is None:
            return piece[:room]
        if self._inflater.eof:
            return b""
        try:
            found = self._inflater.decompress(piece, room)
        except zlib.error:
            if not self._may_be_bare:
                raise WebError("WEB_PROVIDER_ERROR", "the page is packed wrongly") from None
            self._may_be_bare = False
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
            return self.unpacked(piece, room)
        self._may_be_bare = False
        return found


def text_of(body: bytes, form: Form, *, is_cut: bool = False) -> str:
    """The text of a body, never with a NUL; what cannot be decoded becomes U+FFFD.

    Args:
        is_cut: it may end within a character.

    Raises:
        WebError: `WEB_UNSUPPORTED_CONTENT_TYPE`: it is no text, or its encoding is unknown.
    """
    is_utf8 = _is_utf8(body, is_cut)
    codec = _bom(body) or _codec(form.charset, is_utf8) or _guessed(body, form, is_utf8)
    decoder = codecs.getincrementaldecoder(codec)("replace")
    text = decoder.decode(body, final=not is_cut).removeprefix("\ufeff")
    if not form.is_typed and "\0" in text:
        raise WebError("WEB_UNSUPPORTED_CONTENT_TYPE", "it does not say what it is, and is no text")
    return text.replace("\0", "\ufffd")


def _bom(body: bytes) -> str | None:
    marks = (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    )
    return next((codec for mark, codec in marks if body.startswith(mark)), None)


def _codec(charset: str | None, is_utf8: bool) -> str | None:
    """The codec of a charset that was named."""
    if charset is None:
        return None
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        name = ""
    if _CHARSETS.match(name):
        return _AS_WINDOWS.get(name, name)
    if is_utf8:
        return "utf-8"
    raise WebError("WEB_UNSUPPORTED_CONTENT_TYPE", f"its encoding {charset[:40]!r} is not known")


def _guessed(body: bytes, form: Form, is_utf8: bool) -> str:
    if form.kind == "html" and (found := _META.search(body[:PREFIX_BYTES])) is not None:
        name = found[1].decode("ascii")
        if not name.lower().startswith("utf-16"):  # it could not be read there if it were
            try:
                return _codec(name, is_utf8) or "utf-8"
            except WebError:
                pass
    return "utf-8" if is_utf8 else "cp1252"


def _is_utf8(body: bytes, is_cut: bool) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(body, final=not is_cut)
    except UnicodeDecodeError:
        return False
    return True


def shortened(text: str, kind: Kind, max_chars: int) -> tuple[str, bool]:
    """At most so many characters of a text, and whether some are missing. Of HTML what no reader sees goes
    first: else a page would be spent on its scripts."""
    if kind == "html" and len(text) > max_chars:
        text = without_hidden(text)
    return (text, False) if len(text) <= max_chars else (text[:max_chars], True)


_HIDDEN = re.compile(r"<(script|style|svg|noscript|template)\b|<!--", re.IGNORECASE)
_CLOSE = {
    name: re.compile(rf"</{name}[^<>]*>", re.IGNORECASE)
    for name in ("script", "style", "svg", "noscript", "template")
} | {"": re.compile("-->")}


def without_hidden(page: str) -> str:
    """The page without scripts, styles, drawings and comments; what is never closed takes the rest along."""
    kept, at = [], 0
    while (opened := _HIDDEN.search(page, at)) is not None:
        kept.append(page[at : opened.start()])
        closed = _CLOSE[(opened[1] or "").lower()].search(page, opened.end())
        if closed is None:
            return "".join(kept)
        at = closed.end()
    return "".join([*kept, page[at:]])
