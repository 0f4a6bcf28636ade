"""What `view` shows: the numbered lines of a file, or two levels of a directory. Pure but for listing."""

from collections.abc import Sequence
from contextlib import suppress

from dsh.capabilities.fs import FileSystem, FsDirEntry, FsError, FsTarget
from dsh.capabilities.sandbox import SandboxPolicy
from dsh.kernel import CancelToken
from dsh.tools.error import ToolError

BOM = "\ufeff"
LEVELS = 2
LEFT_OUT = frozenset({"node_modules", "__pycache__"})
CLIPPED = (
    "<response clipped><NOTE>This is a part of what there is. Give view_range to see other lines of a file, "
    "or view a directory further down.</NOTE>"
)
_LETTERS = {"file": "f", "directory": "d", "other": "?"}


class NumberedLines:
    """Takes a text in pieces and keeps the lines of a range, numbered, up to a number of characters.

    LF alone parts lines, and one at the end begins an empty last line. Everything is counted, also what is
    not kept. A byte order mark is not shown.
    """

    def __init__(self, first: int, last: int | None, max_chars: int) -> None:
        self._first, self._last = first, last
        self._room = max_chars + 1
        self._pieces: list[str] = []
        self._is_started = False
        self.total = 1

    def feed(self, text: str) -> None:
        """Take the next piece."""
        if not self._is_started and text:
            self._is_started = True
            text = text.removeprefix(BOM)
            self._begin_line()
        at = 0
        while at < len(text):
            if self._room <= 0 or (self._last is not None and self.total > self._last):
                self.total += text.count("\n", at)
                return
            end = text.find("\n", at)
            if self._is_shown:
                self._put(text[at : len(text) if end < 0 else end])
            if end < 0:
                return
            if self._is_shown:
                self._put("\n")
            self.total += 1
            self._begin_line()
            at = end + 1

    def text(self) -> str:
        """What was kept, each line ended; one character more than allowed where there was more."""
        if not self._is_started:
            self._begin_line()
        kept = "".join(self._pieces)
        return kept if kept.endswith("\n") else kept + "\n"

    @property
    def _is_shown(self) -> bool:
        return self.total >= self._first and (self._last is None or self.total <= self._last)

    def _begin_line(self) -> None:
        if self._is_shown:
            self._put(f"{self.total:>6}  ")

    def _put(self, text: str) -> None:
        kept = text[: self._room]
        self._pieces.append(kept)
        self._room -= len(kept)


def checked_range(asked: Sequence[int] | None, total: int) -> None:
    """Hold a range against the number of lines.

    Raises:
        ToolError: it does not lie within them.
    """
    if asked is None:
        return
    first, last = asked
    if not 1 <= first <= total:
        raise ToolError(f"view_range must begin within the file's {total} lines, got {first}")
    if last != -1 and not first <= last <= total:
        raise ToolError(f"view_range must end between {first} and {total}, or with -1, got {last}")


def file_view(path: str, lines: NumberedLines, asked: Sequence[int] | None, max_chars: int) -> str:
    """The whole answer to a view of a file."""
    total = lines.total
    part = ""
    if asked is not None:
        part = f", lines {asked[0]} to {total if asked[1] == -1 else asked[1]}"
    count = "1 line" if total == 1 else f"{total} lines"
    return clipped(f"{path} ({count}{part}):\n{lines.text()}", max_chars)


def clipped(text: str, max_chars: int) -> str:
    """The text, cut to a number of characters; then the note says so."""
    return text if len(text) <= max_chars else text[:max_chars] + CLIPPED


async def directory_view(
    fs: FileSystem, target: FsTarget, policy: SandboxPolicy | None, signal: CancelToken, max_chars: int
) -> str:
    """The directory, what is in it and what is in those, one row each, by path."""
    root = target.display_path
    found = [(root, "d")]
    await _list_into(found, fs, target, policy, signal, LEVELS)
    rows = [f"{letter}\t{path}" for path, letter in [found[0], *sorted(found[1:])]]
    header = f"Files and directories up to {LEVELS} levels deep in {root}, without hidden ones:"
    return clipped("\n".join([header, *rows]) + "\n", max_chars)


async def _list_into(
    found: list[tuple[str, str]],
    fs: FileSystem,
    target: FsTarget,
    policy: SandboxPolicy | None,
    signal: CancelToken,
    levels: int,
) -> None:
    for entry in await fs.list_dir(target, signal=signal, sandbox_policy=policy):
        if entry.name.startswith(".") or entry.name in LEFT_OUT:
            continue
        found.append((entry.target.display_path, _LETTERS[entry.type]))
        if levels > 1 and _is_own_folder(entry, target, fs):
            with suppress(FsError):  # one that may not be read is named all the same
                await _list_into(found, fs, entry.target, policy, signal, levels - 1)


def _is_own_folder(entry: FsDirEntry, parent: FsTarget, fs: FileSystem) -> bool:
    """A directory that lies here; a link may lead anywhere, and is not followed out of the place."""
    return entry.type == "directory" and fs.contains(parent, entry.target)
