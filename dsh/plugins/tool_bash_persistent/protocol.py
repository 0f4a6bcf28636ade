"""How a command is put to a shell on a terminal, and how its output is told from everything else.

A call is one physical line: a start marker, the command under `eval`, an end marker with the exit status. The
markers hold a nonce that is fresh for each call and stands in the line in two halves, so that no echo or
trace of the line looks like one. They go to the terminal itself, whatever the shell's output was turned to.
After the start marker the shell waits for `GO`, by when the terminal is in line mode: a program that began to
read before would not see the end of its input. A command that the shell drops (an interrupt, an error that
ends the line) leaves no end marker; then the next prompt, which carries a nonce of the shell and the status,
is the end. Pure.
"""

import re

import msgspec

_PLAIN = frozenset(range(0x20, 0x7F)) - frozenset(b"'\\!")


def quoted(text: str) -> str:
    """The text as one word of bash in plain ASCII, on one line."""
    return "$'" + "".join(_escaped(byte) for byte in text.encode("utf-8", "surrogateescape")) + "'"


def _escaped(byte: int) -> str:
    return chr(byte) if byte in _PLAIN else f"\\x{byte:02x}"


GO = b"\n"


def line_for(command: str, nonce: str, last_status: int) -> bytes:
    """What to type for one call. `last_status` is what `$?` shall be when the command begins."""
    half, rest = nonce[: len(nonce) // 2], nonce[len(nonce) // 2 :]
    before = f"(exit {last_status}); " if last_status else ""
    return (
        f"printf '\\n%s%s:start\\n' {half} {rest} >/dev/tty; IFS= read -r _ </dev/tty; "
        f"{before}eval -- {quoted(command)}; "
        f"printf '\\n%s%s:end %d\\n' {half} {rest} \"$?\" >/dev/tty\n"
    ).encode()


def prompt_for(nonce: str) -> str:
    """The prompt: on a line of its own, the shell's nonce and the status of what ran last."""
    return f"\n{nonce}:prompt $?\n"


class Found(msgspec.Struct, frozen=True):
    """An end that was found in the output."""

    at: int
    """Where it begins, in bytes; what is before was printed by the command."""
    status: int
    is_dropped: bool
    """By the prompt: the shell has dropped the rest of the line."""


def start_of(raw: bytes | bytearray, nonce: str) -> int | None:
    """Where the output begins behind the start marker."""
    found = re.search(rb"(?:\A|\n)" + nonce.encode() + rb":start\r?\n", raw)
    return found.end() if found else None


def end_in(raw: bytes | bytearray, nonce: str, shell_nonce: str) -> Found | None:
    """The end marker or, where the command was dropped, the prompt."""
    marker, prompt = nonce.encode(), shell_nonce.encode()
    found = re.search(rb"\r?\n(?:(%b):end|%b:prompt) (\d+)\r?\n" % (marker, prompt), raw)
    if found is None:
        return None
    return Found(at=found.start(), status=int(found[2]), is_dropped=found[1] is None)


MARKER_BYTES = 200
"""An end marker is shorter than this; so much of the output must be looked at again with the next piece."""
