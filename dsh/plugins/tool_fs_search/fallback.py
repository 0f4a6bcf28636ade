"""The search of last resort where there is no ripgrep: run as a program, by path, in a process of its own.

It understands the few arguments that `glob` and `grep` give to ripgrep and prints in the same formats, so
that nothing else has to know. A process of its own, because a regular expression that runs away can only
be stopped from outside.
"""

import base64
import codecs
import errno
import itertools
import json
import os
import re
import sys
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

from pathspec import GitIgnoreSpec

BINARY_SAMPLE_BYTES = 8192


class Globs:
    """The `--glob` arguments: the last that matches decides; with a positive one, others are left out."""

    def __init__(self, globs: list[str]) -> None:
        self._rules = [(text.startswith("!"), _matcher(text.removeprefix("!"))) for text in globs]
        self._has_positive = any(not negated for negated, _ in self._rules)
        self._here = os.getcwd().rstrip("/") + "/"

    def of_file(self, path: str) -> bool | None:
        """Whether they name or leave out a file; None where other rules decide."""
        decided = self._decision(path)
        return False if decided is None and self._has_positive else decided

    def of_folder(self, path: str) -> bool | None:
        return self._decision(path + "/")

    def _decision(self, path: str) -> bool | None:
        path = path.removeprefix(self._here)
        for negated, pattern in reversed(self._rules):
            if pattern.fullmatch(path):
                return not negated
        return None


def _matcher(glob: str) -> "re.Pattern[str]":
    """Matches what the glob itself names, not what lies below that; a folder's path ends with `/`."""
    end = "/" if glob.endswith("/") else "/?"
    anchored = "/" in glob.rstrip("/")
    found = []
    for text in braces(glob.rstrip("/")):
        text = text.removeprefix("/") if anchored else "**/" + text
        found.append(_translated(text))
    return re.compile(f"(?:{'|'.join(found)}){end}", re.DOTALL)


_TOKEN = re.compile(r"^\*\*/|/\*\*/|/\*\*$|\*+|\?|\[[!^]?\]?[^]]*\]|\\?(.)", re.DOTALL)
_WORDS = {"**/": "(?:.*/)?", "/**/": "/(?:.*/)?", "/**": "/.+", "?": "[^/]"}


def _translated(glob: str) -> str:
    """A glob without braces as a regular expression."""

    def word(found: "re.Match[str]") -> str:
        token = found[0]
        if found[1] is not None:
            return re.escape(found[1])
        if token[0] == "[":
            body = token[1:-1].replace("\\", "\\\\").replace("[", "\\[")
            inner = "^" + body[1:] if body[0] in "!^" else body
            return f"[{inner}]"
        return _WORDS.get(token, "[^/]*")

    return _TOKEN.sub(word, glob)


def braces(pattern: str) -> list[str]:
    """The patterns that one with `{a,b}` stands for; braces may be nested."""
    start, depth = pattern.find("{"), 0
    if start < 0:
        return [pattern]
    cuts = [start]
    for at in range(start, len(pattern)):
        depth += (pattern[at] == "{") - (pattern[at] == "}")
        if pattern[at] == "," and depth == 1:
            cuts.append(at)
        if depth == 0:
            cuts.append(at)
            break
    else:
        fail(f"error parsing glob '{pattern}': unclosed alternate group")
    parts = [pattern[a + 1 : b] for a, b in itertools.pairwise(cuts)]
    return [text for part in parts for text in braces(pattern[:start] + part + pattern[cuts[-1] + 1 :])]


class Walk:
    """All files below a place, with what is to be left out left out. Links are not followed.

    A place that is asked for by name is searched, whatever ignore file leaves it out.
    """

    def __init__(self, globs: Globs, *, hidden: bool, ignored: bool) -> None:
        self._globs, self._hidden, self._ignored = globs, hidden, ignored
        self.problems = 0

    def files(self, root: str) -> Iterator[str]:
        if os.path.isfile(root):
            yield root
            return
        above = _rules_above(os.path.abspath(root)).asked_for(root.rstrip("/") + "/")
        pending = [(root, above)]
        while pending:
            folder, above = pending.pop()
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as error:
                self.report(folder, error)
                continue
            rules = Rules() if self._ignored else above.within(folder)
            for entry in entries:
                path = os.path.join(folder, entry.name)
                name = os.path.normpath(path)
                if entry.is_dir(follow_symlinks=False):
                    if self._admits(self._globs.of_folder(name), entry.name, path + "/", rules):
                        pending.append((path, rules))
                elif not entry.is_file(follow_symlinks=False):
                    continue
                elif self._admits(self._globs.of_file(name), entry.name, path, rules):
                    yield path

    def _admits(self, decided: bool | None, name: str, path: str, rules: "Rules") -> bool:
        """A glob outweighs the rules for hidden and ignored files."""
        if decided is not None:
            return decided
        return (self._hidden or not name.startswith(".")) and not rules.leave_out(path)

    def report(self, path: str, error: OSError) -> None:
        self.problems += 1
        sys.stderr.write(f"rg: {path}: {error.strerror} (os error {error.errno})\n")


class Rules(NamedTuple):
    """The ignore files that count in a folder, the outermost first. `.gitignore` does so in repositories."""

    git: tuple[tuple[str, GitIgnoreSpec], ...] = ()
    own: tuple[tuple[str, GitIgnoreSpec], ...] = ()
    """Of `.ignore`: they outweigh the others."""
    in_repository: bool = False

    def within(self, folder: str) -> "Rules":
        """Those in a folder below. A repository begins anew with its own."""
        is_top = os.path.exists(os.path.join(folder, ".git"))
        in_repository = self.in_repository or is_top
        git = (*(() if is_top else self.git), *(_rules_of(folder, ".gitignore") if in_repository else ()))
        return Rules(git, (*self.own, *_rules_of(folder, ".ignore")), in_repository)

    def leave_out(self, path: str) -> bool:
        """Whether they do; a folder's path ends with `/`."""
        full = os.path.abspath(path) + ("/" if path.endswith("/") else "")
        for folder, spec in (*reversed(self.own), *reversed(self.git)):
            found = spec.check_file(full.removeprefix(folder))
            if found.include is not None:
                return found.include
        return False

    def asked_for(self, root: str) -> "Rules":
        """Without those that leave out the root of the search itself."""
        git = tuple(rule for rule in self.git if not Rules((rule,)).leave_out(root))
        own = tuple(rule for rule in self.own if not Rules((rule,)).leave_out(root))
        return Rules(git, own, self.in_repository)


def _rules_above(folder: str) -> Rules:
    """What the folders above have to say."""
    above = os.path.dirname(folder)
    return Rules() if above == folder else _rules_above(above).within(above)


def _rules_of(folder: str, name: str) -> Iterator[tuple[str, GitIgnoreSpec]]:
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            spec = GitIgnoreSpec.from_lines(file.read().splitlines())
            yield os.path.abspath(folder).rstrip("/") + "/", spec
    except (OSError, ValueError):
        return


def search(path: str, pattern: "re.Pattern[str]", reach: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """A record for each line of a text file that matches, and for `reach` lines on each side of it."""
    with open(path, "rb") as file:
        if b"\0" in file.read(BINARY_SAMPLE_BYTES):
            return
        file.seek(0)
        lines = file.readlines()
    if lines:
        lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
    if any(b"\0" in raw for raw in lines):
        return
    found = list(
        _over_lines(lines, pattern) if pattern.flags & re.MULTILINE else _line_by_line(lines, pattern)
    )
    matched = {number for first, last in found for number in range(first, last + 1)}
    near = {
        number
        for first, last in found
        for number in (*range(first - reach, first), *range(last + 1, last + reach + 1))
    }
    records = [("match", first, last) for first, last in found]
    records += [("context", number, number) for number in near - matched if 0 <= number < len(lines)]
    for kind, first, last in sorted(records, key=lambda record: record[1]):
        text = _text(b"".join(lines[first : last + 1]))
        yield kind, {"path": _text(os.fsencode(path)), "lines": text, "line_number": first + 1}


def _line_by_line(lines: list[bytes], pattern: "re.Pattern[str]") -> Iterator[tuple[int, int]]:
    """First and last line of each match, counted from 0."""
    for number, raw in enumerate(lines):
        if pattern.search(raw.rstrip(b"\r\n").decode("utf-8", "surrogateescape")):
            yield number, number


def _over_lines(lines: list[bytes], pattern: "re.Pattern[str]") -> Iterator[tuple[int, int]]:
    """The same where a match may go over several lines; those that touch are one."""
    decoded = [raw.decode("utf-8", "surrogateescape") for raw in lines]
    starts = [0, *itertools.accumulate(len(line) for line in decoded)]
    open_match: tuple[int, int] | None = None
    for found in pattern.finditer("".join(decoded)):
        first = min(bisect_right(starts, found.start()) - 1, len(lines) - 1)
        last = max(first, bisect_right(starts, max(found.end() - 1, found.start())) - 1)
        last = min(last, len(lines) - 1)
        if first < 0:
            return
        if open_match is not None and first <= open_match[1]:
            open_match = open_match[0], max(last, open_match[1])
            continue
        if open_match is not None:
            yield open_match
        open_match = first, last
    if open_match is not None:
        yield open_match


def _text(raw: bytes) -> dict[str, str]:
    try:
        return {"text": raw.decode()}
    except UnicodeDecodeError:
        return {"bytes": base64.b64encode(raw).decode()}


def fail(message: str) -> NoReturn:
    sys.stderr.write(f"rg: {message}\n")
    raise SystemExit(2)


def _value_of(options: list[str], name: str) -> str | None:
    return next((text.removeprefix(name) for text in options if text.startswith(name)), None)


def _flags(options: list[str]) -> int:
    case = re.IGNORECASE if "--ignore-case" in options else 0
    return case | (re.MULTILINE if "--multiline" in options else 0)


def main(argv: list[str]) -> int:
    options, root = argv[: argv.index("--")], argv[-1]
    globs = Globs([text.removeprefix("--glob=") for text in options if text.startswith("--glob=")])
    walk = Walk(globs, hidden="--hidden" in options, ignored="--no-ignore" in options)
    if "--files" in options:
        for path in walk.files(root):
            sys.stdout.buffer.write(os.fsencode(path) + b"\0")
    else:
        expression = _value_of(options, "--regexp=") or ""
        try:
            pattern = re.compile(expression, _flags(options))
        except re.error as error:
            fail(f"regex parse error: {error}")
        reach = int(_value_of(options, "--context=") or 0)
        for path in walk.files(root):
            try:
                for kind, data in search(path, pattern, reach):
                    sys.stdout.buffer.write(json.dumps({"type": kind, "data": data}).encode() + b"\n")
            except OSError as error:
                walk.report(path, error)
            except MemoryError:
                walk.report(path, OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)))
            sys.stdout.buffer.flush()  # it may be stopped at any time
    return 2 if walk.problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
