"""`dsh sessions list`: what is stored, from headers alone. A log that cannot be listed hides no other."""

import json
import os
import sys
import time
from typing import Any, NamedTuple

from dsh.cli.columns import cut, padded, width
from dsh.cli.sessions.described import cached_title, parent_mark, short_ids, size_text
from dsh.cli.sessions.output import line, one_line, write
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.recency import ago, date, written_ms
from dsh.cli.sessions.scope import Scope
from dsh.cli.sessions.several import listed, told_problems
from dsh.cli.sessions.whereabouts import open_place
from dsh.cli.stream import notice
from dsh.masking import masked
from dsh.persistence.backend import Listing, StoredSession

TITLE_MIN = 8
"""Columns that a title gets at least, however narrow the terminal is."""
CWD_MIN, CWD_MAX = 12, 40
"""Columns of a directory; in between, a quarter of the terminal."""
GAP = "  "


class Shown(NamedTuple):
    """A session with its title."""

    stored: StoredSession
    title: str


def show(place: Place, scope: Scope, *, limit: int, as_json: bool) -> int:
    """Print the sessions in a scope, the last written first; answers the exit code.

    In a terminal aligned and shortened; else a line each with tabs in between and nothing shortened. What
    cannot be listed is told on standard error, wherever it lies.

    Raises:
        UsageError, CompositionError: there is no such place.
    """
    listing = listed(open_place(place))
    if listing is None:
        return 1
    chosen = scope.chosen(listing)
    left_out = len(chosen) - limit if 0 < limit < len(chosen) else 0
    shown = [Shown(one, cached_title(one) or "") for one in chosen[: len(chosen) - left_out]]
    if as_json:
        write(json.dumps(_object(shown, listing), ensure_ascii=False) + "\n")
        return 0
    told_problems(listing)
    if not sys.stdout.isatty():
        write("".join(f"{_plain(one)}\n" for one in shown))
        return 0
    if shown:
        short = short_ids(one.header.id for one in listing.sessions)
        write("\n".join(_table(shown, short, everywhere=scope.everywhere)) + "\n")
    if left_out:
        notice(f"{left_out} older ones are left out")
    if not shown:
        notice(_nothing(listing, scope))
    return 0


def _nothing(listing: Listing, scope: Scope) -> str:
    others = len(listing.sessions)
    if not others:
        return "no sessions are stored"
    which = line(scope.cwd) if scope.cwd else "this directory"
    return f"no sessions of {which} are stored; --all shows the {others} of other ones"


def _object(shown: list[Shown], listing: Listing) -> dict[str, Any]:
    return {
        "sessions": [_entry(one) for one in shown],
        "problems": [
            {"code": one.code, "place": one.place, "reason": one.reason} for one in listing.problems
        ],
    }


def _entry(shown: Shown) -> dict[str, Any]:
    """The header's fields, then what is known of the storage; what is absent is null."""
    stored = shown.stored
    header = stored.header
    return {
        "id": header.id,
        "createdAt": header.created_at,
        "modifiedAt": stored.modified_ms,
        "cwd": header.cwd,
        "title": shown.title or None,
        "size": stored.size,
        "place": stored.place,
        "path": None if stored.path is None else str(stored.path),
        "parentSession": header.parent_session,
        "seedLength": header.seed_length,
        "origin": header.origin,
        "delegationDepth": header.delegation_depth or 0,
        "agentPreset": header.agent_preset,
    }


def _plain(shown: Shown) -> str:
    """Id, time of the last write, bytes, directory, parent, title."""
    stored = shown.stored
    header = stored.header
    fields = (
        header.id,
        date(written_ms(stored)),
        str(stored.size),
        header.cwd or "",
        header.parent_session or "",
        masked(shown.title),
    )
    return "\t".join(map(line, fields))


def _table(shown: list[Shown], short: dict[str, str], *, everywhere: bool) -> list[str]:
    import shutil  # loads every kind of compression there is

    now = time.time_ns() // 1_000_000
    marks = [parent_mark(one.stored, short) for one in shown]
    has_marks = any(marks)
    columns = shutil.get_terminal_size().columns
    rows = [
        ["ID", "WRITTEN", "SIZE", *["DIRECTORY"] * everywhere, *["FROM"] * has_marks, "TITLE"],
    ]
    for one, mark in zip(shown, marks, strict=True):
        stored = one.stored
        rows.append(
            [
                line(short[stored.header.id]),
                ago(written_ms(stored), now),
                size_text(stored.size),
                *[_directory(stored.header.cwd, columns)] * everywhere,
                *[mark] * has_marks,
                one_line(one.title),
            ]
        )
    return aligned(rows, columns)


def aligned(rows: list[list[str]], columns: int) -> list[str]:
    """Rows in columns; the last one is cut where the terminal ends."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)][:-1]
    rest = max(TITLE_MIN, columns - sum(widths) - len(GAP) * len(widths))
    lines = []
    for row in rows:
        cells = [padded(cell, size) for cell, size in zip(row, widths, strict=False)]
        lines.append(GAP.join([*cells, cut(row[-1], rest)]).rstrip())
    return lines


def _directory(cwd: str | None, columns: int) -> str:
    """The end of a path says more than its beginning."""
    if cwd is None:
        return "-"
    home = os.environ.get("HOME", "")
    if home and (cwd == home or cwd.startswith(f"{home}/")):
        cwd = "~" + cwd[len(home) :]
    cwd = line(cwd)
    most = min(max(columns // 4, CWD_MIN), CWD_MAX)
    if width(cwd) <= most:
        return cwd
    while width(cwd) > most - 1:
        cwd = cwd[1:]
    return f"…{cwd}"
