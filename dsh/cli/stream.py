"""The standard streams, in UTF-8: output belongs to the answer, the rest goes to standard error."""

import contextlib
import io
import os
import select
import sys

from dsh.errors import OutputError
from dsh.unicode import valid


class Output:
    """The process's answer channel and its notices. Implements `dsh.capabilities.launch.AppOutput`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def answer(self, text: str) -> None:
        """Write `text` to standard output, whole, before returning.

        Raises:
            OutputError: it is closed, or cannot take it.
        """
        try:
            write_all(self._descriptor, valid(text).encode())
        except OSError as error:
            raise OutputError(error) from error

    def notice(self, text: str) -> None:
        """Write one line to standard error."""
        notice(text)


def claim_output() -> Output:
    """Keep standard output for the answer alone: `print` and stray children write to standard error then."""
    open_missing()
    private = os.dup(1)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os.dup2(2, 1)
    sys.stderr = _utf8(2)
    sys.stdout = sys.stderr
    return Output(private)


def open_missing() -> None:
    """Put the null device where a standard descriptor is closed, so that no file of ours takes its number."""
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, flags)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            os.set_inheritable(descriptor, True)
    if sys.stdout is None:
        sys.stdout = _utf8(1)
    if sys.stderr is None:
        sys.stderr = _utf8(2)


def _utf8(descriptor: int) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(raw, "utf-8", errors="backslashreplace", line_buffering=True, write_through=True)


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}
"""What a terminal would obey, as text that shows it."""


def notice(text: str) -> None:
    """Write a line to standard error, in UTF-8: keys masked, control characters spelled out.

    A standard error that is closed is no error.
    """
    from dsh.masking import masked  # a run that says nothing does without

    with contextlib.suppress(OSError):
        write_all(2, masked(valid(text)).translate(_CONTROLS).encode() + b"\n")


def unwritable(error: OSError) -> OutputError:
    """What to raise when the buffered standard output cannot be written.

    What is still buffered for it is given up, or the interpreter would try it again at the very end.
    """
    sys.stdout = io.StringIO()
    return OutputError(error)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, also to a pipe that was left non-blocking."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            select.select((), (descriptor,), ())
