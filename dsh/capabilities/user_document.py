"""A YAML document in the home that a person and programs both write: settings, credentials.

Reading is bounded and never quotes what stands there, for that may be a secret. Writing is one writer at a
time over all processes, atomic, and leaves comments alone.
"""

import asyncio
import json
import os
import re
import stat
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dsh.composition.text.source import read_bytes
from dsh.composition.text.user_file import LockHeld, UserFileError, locked, replace
from dsh.composition.text.yaml import YamlError, parse_yaml
from dsh.composition.value import Expr, Mark, MarkedError

LOCK_POLL_S = 0.05
"""How often somebody else's lock is looked at."""
EXTENSIONS = (".yaml", ".yml", ".json")
_QUOTING_NOTHING = (
    "not UTF-8 text", "the file is larger", "nested more than", "more than", "an alias ", "a second document",
    "a tab indents", "a quoted text starts", "the list that starts in", "the mapping that starts in",
    "a colon where", "this line belongs", "this does not belong", "a list cannot start", "an unknown escape",
    "this is neither", "the character U+", "an escape beyond", "half of a surrogate", "a key must be",
    "a key cannot be", "an integer of more",
)  # fmt: skip
"""How those problems of the reader begin that say nothing of what is written."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_TWICE = re.compile(r"the key .* stands twice(; first in line \d+)\Z")

Stamp = tuple[int, ...] | None
"""What tells two states of a file apart without reading it; None where there is none."""


class Change(NamedTuple):
    """One value set or taken out."""

    op: Literal["set", "unset"]
    path: tuple[str, ...]
    value: Any = None


class Content(NamedTuple):
    """A document as it was read."""

    text: str
    value: Any
    """Maps and lists know their places; None for a file that is empty or missing."""
    stamp: Stamp


class UserDocument:
    """One file. It holds no state of its own but the path."""

    def __init__(self, path: Path, *, lock_timeout_s: float) -> None:
        self.path = path
        self._lock_timeout_s = lock_timeout_s

    def status(self) -> os.stat_result | None:
        """The file's status, None where there is no file.

        Raises:
            MarkedError: it cannot be asked for, or is no file.
        """
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.error(error.strerror or str(error)) from None
        if not stat.S_ISREG(found.st_mode):
            raise self.error("not a file")
        return found

    def stamp(self) -> Stamp:
        """The state of the file, changed by every write.

        Raises:
            MarkedError: it cannot be asked for, or is no file.
        """
        return stamp_of(self.status())

    def read(self) -> Content:
        """What stands there now.

        Raises:
            MarkedError: it cannot be read, or is not YAML of our dialect. Names the place, quotes nothing.
        """
        stamp = self.stamp()
        if stamp is None:
            return Content("", None, None)
        try:
            data = read_bytes(self.path)
        except FileNotFoundError:
            return Content("", None, None)
        except OSError as error:
            raise self.error(error.strerror or str(error)) from None
        value = parse_private(data, str(self.path))
        return Content(data.decode("utf-8"), value, stamp)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Be the only writer for the length of the block. Other work goes on while it waits.

        Raises:
            UserFileError: another process holds the lock for too long.
        """
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + self._lock_timeout_s
        with ExitStack() as held:
            while True:
                try:
                    held.enter_context(locked(self.path, timeout_s=0))
                    break
                except LockHeld:
                    if clock() >= deadline_s:
                        raise
                await asyncio.sleep(LOCK_POLL_S)
            yield

    async def write(self, content: Content, *changes: Change) -> Content:
        """Make changes to what was read under the lock, in one go, and answer what stands there then.

        Raises:
            MarkedError: the text is written in a way that the change would spoil; nothing has happened.
            UserFileError: the file cannot be written; the old one is untouched.
        """
        from dsh.composition.text.edit import Edit, EditError, edited

        file = str(self.path)
        if any(_SURROGATE.search(json.dumps(change.value, ensure_ascii=False)) for change in changes):
            raise self.error("half of a surrogate pair is no text, so it cannot be written")
        if self.path.suffix == ".json":
            made = plain(content.value)
            for op, path, value in changes:
                made = changed(made, op, path, value)
            text = json.dumps(made, indent=2, ensure_ascii=False) + "\n"
        else:
            try:
                text = edited(content.text, file, [Edit(*change) for change in changes])
            except EditError as error:
                raise MarkedError("this cannot be changed in place", error.mark, hint=error.hint) from None
        if text != content.text:
            await self.put(text)
        return self.read()

    async def put(self, text: str) -> None:
        """Replace the whole text, readable by its owner only. Done when it returns, also if it is cancelled.

        Raises:
            UserFileError: the file cannot be written; the old one is untouched.
        """
        writing = asyncio.ensure_future(asyncio.to_thread(replace, self.path, text.encode()))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait((writing,))  # the lock is given back only afterwards
            raise

    def error(self, problem: str) -> MarkedError:
        return MarkedError(problem, Mark(str(self.path), 1, 1))


def stamp_of(found: os.stat_result | None) -> Stamp:
    """Device and inode, size, times."""
    if found is None:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def parse_private(data: bytes, file: str) -> Any:
    """The value of a text whose words may be secrets.

    Raises:
        MarkedError: it is not YAML of our dialect. Names the place, quotes nothing.
    """
    try:
        return parse_yaml(data, file)
    except YamlError as error:
        problem, hint = _unquoted(error)
        raise MarkedError(problem, error.mark, hint=hint) from None


def _unquoted(error: YamlError) -> tuple[str, str]:
    """What is wrong, and the hint, without a word of the text. In doubt neither is told."""
    problem = error.problem.removeprefix("the file must be one top-level list; ").partition(
        "; the file must"
    )[0]
    if problem.startswith(_QUOTING_NOTHING):
        return problem, error.hint
    if found := _TWICE.match(problem):
        return f"a key stands there twice{found[1]}", ""
    if problem.endswith("is not a finite number"):
        return "this is not a finite number", error.hint
    return "this cannot be read as YAML", ""


def changed(value: Any, op: Literal["set", "unset"], path: tuple[str, ...], to: Any) -> Any:
    """A copy of JSON data with one value set or taken out. Missing parents are made; absent is unset already.

    Raises:
        ValueError: the path leads through something that is no mapping.
    """
    if not path:
        return to if op == "set" else None
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise ValueError(f"{path[0]!r} cannot be set in a value that is no mapping")
    key, rest = path[0], path[1:]
    made = dict(value)
    if op == "unset" and (key not in made or not rest):
        made.pop(key, None)
        return made
    if op == "unset" and not isinstance(made[key], dict):
        return made
    made[key] = changed(made.get(key), op, rest, to)
    return made


def plain(value: Any) -> Any:
    """The value as dicts and lists without places.

    Raises:
        MarkedError: an expression stands in it, which nobody evaluates here.
    """
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Expr):
        raise MarkedError("expressions are for rows; a plain value belongs here", value.mark)
    return value


__all__ = [
    "EXTENSIONS",
    "Change",
    "Content",
    "Stamp",
    "UserDocument",
    "UserFileError",
    "changed",
    "parse_private",
    "plain",
    "stamp_of",
]
