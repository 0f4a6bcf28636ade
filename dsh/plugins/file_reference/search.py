"""Finds candidates for a path that is being typed: one directory's entries, or the best of all below it.

Links are offered and never followed, and nothing outside of the working directory is looked at. What cannot
be read or spelt is left out.
"""

import asyncio
import heapq
import os
import posixpath
from collections import deque
from collections.abc import Iterable, Iterator

from dsh.capabilities.file_references import FileCandidate
from dsh.plugins.file_reference.rank import score
from dsh.unicode import valid


class Search:
    """Implements `dsh.capabilities.file_references.FileReferences`.

    State: the entries below the directory that was searched last.
    """

    def __init__(self, max_results: int, max_entries: int, excluded: frozenset[str]) -> None:
        self._max_results = max_results
        self._max_entries = max_entries
        self._excluded = excluded
        self._index: tuple[str, list[FileCandidate]] | None = None

    def forget(self) -> None:
        """A tool may have changed files."""
        self._index = None

    async def search(self, query: str, cwd: str) -> tuple[FileCandidate, ...]:
        query = query.strip().removeprefix('"').removesuffix('"')
        if not query or "/" in query:
            return await asyncio.to_thread(self._listed, query, cwd)
        index = self._index
        if index is None or index[0] != cwd:
            index = self._index = (cwd, await asyncio.to_thread(self._walked, cwd))
        return _best(query, index[1], self._max_results)

    def _listed(self, query: str, cwd: str) -> tuple[FileCandidate, ...]:
        """The entries of the directory that a query names, those first whose names begin as it goes on."""
        parent, _, beginning = query.rpartition("/")
        names = [name for name in parent.split("/") if name not in ("", ".")]
        if query.startswith("/") or ".." in names or any("\0" in name for name in names):
            return ()
        directory = cwd
        for name in names:
            directory = posixpath.join(directory, name)
            if posixpath.islink(directory):
                return ()
        found = list(self._entries(directory, "/".join(names)))
        if beginning:
            ranked = _best(beginning, found, self._max_results)
            wanted = beginning.casefold()
            return tuple(c for c in ranked if c.path.rpartition("/")[2].casefold().startswith(wanted))
        return tuple(found[: self._max_results])

    def _walked(self, cwd: str) -> list[FileCandidate]:
        """What lies below, the nearest first."""
        out: list[FileCandidate] = []
        waiting = deque([""])
        while waiting and len(out) < self._max_entries:
            relative = waiting.popleft()
            directory = posixpath.join(cwd, relative)
            for found in self._entries(directory, relative):
                out.append(found)
                if len(out) == self._max_entries:
                    break
                if found.is_directory:
                    waiting.append(found.path)
        return out

    def _entries(self, directory: str, relative: str) -> Iterator[FileCandidate]:
        """The entries of one directory by name, directories whose content is not offered left out."""
        try:
            with os.scandir(directory) as entries:
                named = ((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
                first = heapq.nsmallest(self._max_entries, filter(self._is_offered, named))
        except (OSError, ValueError):
            return
        for name, is_directory in first:
            yield FileCandidate(f"{relative}/{name}" if relative else name, is_directory)

    def _is_offered(self, entry: tuple[str, bool]) -> bool:
        name, is_directory = entry
        return name == valid(name) and not (is_directory and name in self._excluded)


def _best(query: str, candidates: Iterable[FileCandidate], count: int) -> tuple[FileCandidate, ...]:
    """The best, short paths before long ones."""
    scored = (
        (-found, len(one.path), one.path, one)
        for one in candidates
        if (found := score(query, one.path, is_directory=one.is_directory)) is not None
    )
    return tuple(one for *_, one in heapq.nsmallest(count, scored, key=lambda entry: entry[:3]))
