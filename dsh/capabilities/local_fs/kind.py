"""What a file that is no UTF-8 text seems to be, told from its first bytes. Pure.

A name in a message and nothing more: no decision hangs on it. Signatures are certain; an encoding without a
byte order mark is a guess and says so.
"""

import codecs
import math
import re
import struct
from collections.abc import Callable

Size = tuple[int, int]

_ENCODINGS = (
    (codecs.BOM_UTF32_LE, "UTF-32LE"),
    (codecs.BOM_UTF32_BE, "UTF-32BE"),
    (codecs.BOM_UTF16_LE, "UTF-16LE"),
    (codecs.BOM_UTF16_BE, "UTF-16BE"),
)
_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"%PDF-", "a PDF document"),
    (0, b"PK\x03\x04", "a ZIP archive (or a document that is one: docx, xlsx, jar, whl)"),
    (0, b"\x1f\x8b", "gzip data"),
    (0, b"BZh", "bzip2 data"),
    (0, b"\xfd7zXZ\0", "xz data"),
    (0, b"\x28\xb5\x2f\xfd", "Zstandard data"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x7fELF", "an ELF program or library"),
    (0, b"MZ", "a Windows program or library"),
    (0, b"\xcf\xfa\xed\xfe", "a Mach-O program or library"),
    (0, b"\xca\xfe\xba\xbe", "a Java class or a Mach-O program"),
    (0, b"\0asm", "a WebAssembly module"),
    (0, b"!<arch>\n", "an archive of object files"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"PAR1", "a Parquet file"),
    (0, b"ID3", "MP3 audio"),
    (0, b"fLaC", "FLAC audio"),
    (0, b"OggS", "Ogg audio or video"),
    (4, b"ftyp", "an MP4, HEIF or QuickTime file"),
    (0, b"\x1aE\xdf\xa3", "a Matroska or WebM video"),
    (0, b"wOFF", "a web font"),
    (0, b"wOF2", "a web font"),
    (0, b"OTTO", "a font"),
    (0, b"\0\x01\0\0", "a font"),
    (0, b"GIT\0", "git data"),
    (0, b"DIRC", "a git index"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document"),
)


def described(head: bytes, size_bytes: int | None = None) -> str:
    """What a file with these first bytes is, and what to do instead; empty where nothing is recognised."""
    image = _image(head)
    if image is not None:
        name, size = image
        pixels = f", {size[0]}x{size[1]} pixels" if size is not None else ""
        length = f", {size_bytes} bytes" if size_bytes is not None else ""
        return f"it is {name}{pixels}{length}; images are not shown"
    for mark, encoding in _ENCODINGS:
        if head.startswith(mark):
            return _in_encoding(f"it is text in {encoding}", encoding)
    for at, signature, name in _SIGNATURES:
        if head[at : at + len(signature)] == signature:
            return f"it is {name}"
    return _guessed(head)


def _image(head: bytes) -> tuple[str, Size | None] | None:
    for matches, name, measure in _IMAGES:
        if matches(head):
            try:
                return name, measure(head)
            except (struct.error, ValueError):
                return name, None
    return None


def _starts(*signatures: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.startswith(signatures)


def _unpacked(form: str, at: int) -> Callable[[bytes], Size]:
    def measure(head: bytes) -> Size:
        width, height = struct.unpack_from(form, head, at)
        return width, abs(height)

    return measure


def _jpeg(head: bytes) -> Size:
    """The size in the first frame header."""
    at = 2
    while True:
        mark, kind, length = struct.unpack_from(">BBH", head, at)
        if mark != 0xFF:
            raise ValueError("no marker where one has to be")
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", head, at + 5)
            return width, height
        at += 2 + length


def _webp(head: bytes) -> Size:
    match head[12:16]:
        case b"VP8X":
            return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
        case b"VP8L":
            bits = int.from_bytes(head[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", head, 26)
            return width & 0x3FFF, height & 0x3FFF
    raise ValueError("another kind of WebP")


def _ico(head: bytes) -> Size:
    return head[6] or 256, head[7] or 256


def _unknown(head: bytes) -> Size:
    raise ValueError("the size is not at a fixed place")


_IMAGES: tuple[tuple[Callable[[bytes], bool], str, Callable[[bytes], Size]], ...] = (
    (_starts(b"\x89PNG\r\n\x1a\n"), "a PNG image", _unpacked(">II", 16)),
    (_starts(b"\xff\xd8\xff"), "a JPEG image", _jpeg),
    (_starts(b"GIF87a", b"GIF89a"), "a GIF image", _unpacked("<HH", 6)),
    (lambda head: head[:4] == b"RIFF" and head[8:12] == b"WEBP", "a WebP image", _webp),
    (lambda head: head[:2] == b"BM" and head[6:10] == b"\0\0\0\0", "a BMP image", _unpacked("<ii", 18)),
    (_starts(b"II*\0", b"MM\0*"), "a TIFF image", _unknown),
    (lambda head: head[:4] == b"\0\0\x01\0" and len(head) > 7, "an icon", _ico),
    (lambda head: head[4:12] in (b"ftypavif", b"ftypheic"), "a HEIF image", _unknown),
)

_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def _guessed(head: bytes) -> str:
    """An encoding without a mark, as far as the bytes suggest one."""
    if b"\0" in head:
        even, odd = head[0::2].count(0), head[1::2].count(0)
        half = len(head) / 2 if len(head) % 2 == 0 else math.inf
        if odd > 0.4 * half and even < 0.1 * half:
            return _in_encoding("it looks like text in UTF-16LE", "UTF-16LE")
        if even > 0.4 * half and odd < 0.1 * half:
            return _in_encoding("it looks like text in UTF-16BE", "UTF-16BE")
        return "it holds binary data"
    if len(_CONTROLS.findall(head)) * 100 > len(head):
        return "it holds binary data"
    for encoding in ("gb18030", "shift_jis", "euc_kr"):
        if _is_wide_text(head, encoding):
            return _in_encoding(f"it may be text in {encoding.upper()}", encoding.upper())
    if any(byte >= 0x80 for byte in head):
        return _in_encoding("it may be text in Latin-1 or Windows-1252", "WINDOWS-1252")
    return ""


def _is_wide_text(head: bytes, encoding: str) -> bool:
    """Whether nearly all that is not ASCII reads as common East Asian characters."""
    text = codecs.getincrementaldecoder(encoding)("replace").decode(head)
    wide = [character for character in text if character > "\x7f"]
    common = sum(
        "\u3000" <= one <= "\u30ff" or "\u4e00" <= one <= "\u9fff" or "\uac00" <= one <= "\ud7a3"
        for one in wide
    )
    return len(wide) >= 4 and common >= 0.95 * len(wide)


def _in_encoding(what: str, encoding: str) -> str:
    return f"{what}; convert it with `iconv -f {encoding} -t UTF-8` in a shell"
