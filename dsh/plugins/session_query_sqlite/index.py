"""The search index: one SQLite database with a full text table, all of it made again from the logs at need.

Stored sessions lie in the file; live ones in temporary tables beside them, which go with the connection.
Everything here is synchronous and runs in one thread.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from dsh.capabilities.session_query import SurfaceState
from dsh.capabilities.session_query_error import Code
from dsh.plugins.session_query_sqlite.database import open_database, refusals_told, transaction
from dsh.plugins.session_query_sqlite.text import MATCH_END, MATCH_START, indexed, unindexed
from dsh.unicode import valid


class Document(NamedTuple):
    """One event that has searchable text."""

    seq: int
    type: str
    time: int
    surface: SurfaceState
    text: str


class Known(NamedTuple):
    """What the index holds of a stored session: the log's revision, and why it could not be read.

    A revision that is empty is no log's: the session is read again at the next search.
    """

    revision: str
    problem: Code | None
    message: str | None


class Match(NamedTuple):
    """One document that holds the phrase."""

    session_id: str
    seq: int
    type: str
    time: int
    surface: SurfaceState
    matches: int
    document: int
    is_live: bool


class SessionMatch(NamedTuple):
    """One session that holds the phrase, and the best of its documents."""

    matches: int
    best: Match


class Index:
    """One open index. `generation` changes with everything that is written through it."""

    def __init__(self, path: str, journal_mode: str) -> None:
        """Open the file at `path`, or a database in memory. Raises SessionQueryError INDEX_FAILED."""
        self._connection = open_database(path, journal_mode)
        self._written = 0

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with transaction(self._connection):
            yield
        self._written += 1

    @refusals_told
    def generation(self) -> str:
        """Another one after each change of what can be found, also by another process."""
        return f"{self._written}.{self._connection.execute('PRAGMA data_version').fetchone()[0]}"

    # -- what is indexed ---------------------------------------------------------------------------

    @refusals_told
    def known(self) -> dict[str, Known]:
        """What is held of stored sessions, by id."""
        rows = self._connection.execute("SELECT id, revision, problem, message FROM sessions")
        return {_id(row[0]): Known(*row[1:]) for row in rows}

    @refusals_told
    def put(self, session_id: str, known: Known, documents: Iterable[Document]) -> None:
        """Hold a stored session as it is now, in place of what was held of it."""
        with self._writing():
            self._drop("", session_id)
            self._insert("", session_id, documents)
            self._connection.execute(
                "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?)",
                (key_of(session_id), known.revision, known.problem, valid(known.message or "") or None),
            )

    @refusals_told
    def drop(self, session_ids: Iterable[str]) -> None:
        """Hold nothing of stored sessions that are no more."""
        with self._writing():
            for session_id in session_ids:
                self._drop("", session_id)
                self._connection.execute("DELETE FROM sessions WHERE id = ?", (key_of(session_id),))

    @refusals_told
    def grow_live(
        self, session_id: str, documents: Iterable[Document], surface: Iterable[int] | None
    ) -> None:
        """Add what is new of a live session.

        Args:
            surface: the seqs that the model sees now, where some were replaced since.
        """
        with self._writing():
            self._insert("live_", session_id, documents)
            if surface is not None:
                self._connection.execute(
                    "UPDATE live_documents SET surface = 'shadowed' WHERE session = ? "
                    "AND surface = 'current' AND seq NOT IN (SELECT value FROM json_each(?))",
                    (key_of(session_id), json.dumps(list(surface))),
                )

    @refusals_told
    def drop_live(self, session_id: str) -> None:
        """Hold nothing of a session that is no longer live."""
        with self._writing():
            self._drop("live_", session_id)

    def _drop(self, prefix: str, session_id: str) -> None:
        key = (key_of(session_id),)
        self._connection.execute(
            f"INSERT INTO {prefix}texts ({prefix}texts, rowid, text) "
            f"SELECT 'delete', id, text FROM {prefix}documents WHERE session = ?",
            key,
        )
        self._connection.execute(f"DELETE FROM {prefix}documents WHERE session = ?", key)

    def _insert(self, prefix: str, session_id: str, documents: Iterable[Document]) -> None:
        key = key_of(session_id)
        for document in documents:
            text = indexed(document.text)
            row = self._connection.execute(
                f"INSERT INTO {prefix}documents (session, seq, type, time, surface, length, text) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (key, document.seq, document.type, document.time, document.surface, len(document.text), text),
            )
            self._connection.execute(
                f"INSERT INTO {prefix}texts (rowid, text) VALUES (?, ?)", (row.lastrowid, text)
            )

    # -- what is found -----------------------------------------------------------------------------

    @refusals_told
    def allow(self, sessions: Iterable[tuple[str, bool]]) -> None:
        """The sessions that the next questions are about, and whether each is live."""
        run = self._connection
        run.execute("DELETE FROM allowed")
        run.executemany("INSERT INTO allowed VALUES (?, ?)", ((key_of(one), live) for one, live in sessions))

    @refusals_told
    def events(self, phrase: str, where: "Where", limit: int, offset: int) -> list[Match]:
        """The best documents."""
        rows = self._connection.execute(
            f"{_matching(where)} SELECT session, seq, type, time, surface, matches, id, is_live FROM found "
            "ORDER BY matches DESC, length, time DESC, seq DESC, session LIMIT ? OFFSET ?",
            (*_bound(phrase, where), limit, offset),
        )
        return [_match(row) for row in rows]

    @refusals_told
    def sessions(
        self, phrase: str, where: "Where", order: Iterable[str], limit: int, offset: int
    ) -> list[SessionMatch]:
        """The best sessions, those with as many matches in the given order of ids."""
        rows = self._connection.execute(
            f"{_matching(where)}, ranked AS (SELECT *, sum(matches) OVER (PARTITION BY session) AS total, "
            "row_number() OVER (PARTITION BY session "
            "ORDER BY matches DESC, length, time DESC, seq DESC) AS place "
            "FROM found) SELECT session, seq, ranked.type, time, surface, matches, ranked.id, is_live, total "
            "FROM ranked "
            "JOIN json_each(?) AS ordered ON ordered.value = session "
            "WHERE place = 1 ORDER BY total DESC, ordered.key LIMIT ? OFFSET ?",
            (*_bound(phrase, where), json.dumps([key_of(one) for one in order]), limit, offset),
        )
        return [SessionMatch(row[8], _match(row)) for row in rows]

    @refusals_told
    def marked(self, phrase: str, match: Match) -> str:
        """The text of a document with marks around its matches."""
        table = "live_texts" if match.is_live else "texts"
        row = self._connection.execute(
            f"SELECT highlight({table}, 0, ?, ?) FROM {table} WHERE {table} MATCH ? AND rowid = ?",
            (MATCH_START, MATCH_END, _quoted(phrase), match.document),
        ).fetchone()
        return unindexed(row[0]) if row else ""

    def close(self) -> None:
        self._connection.close()


class Where(NamedTuple):
    """Conditions on documents: SQL on the columns of `documents` (as `d`), and the values in it."""

    sql: str
    values: tuple[Any, ...]


def _matching(where: Where) -> str:
    """The documents that hold the phrase, stored ones of sessions that are not live and live ones."""
    return (
        "WITH found AS ("
        + " UNION ALL ".join(
            f"SELECT d.id, d.session, d.seq, d.type, d.time, d.surface, d.length, {is_live} AS is_live, "
            f"length(highlight({texts}, 0, '{MATCH_START}', '')) - length(d.text) AS matches "
            f"FROM {texts} JOIN {documents} AS d ON d.id = {texts}.rowid "
            f"JOIN allowed AS a ON a.session = d.session AND a.is_live = {is_live} "
            f"WHERE {texts} MATCH ?{where.sql}"
            for is_live, texts, documents in ((0, "texts", "documents"), (1, "live_texts", "live_documents"))
        )
        + ")"
    )


def _bound(phrase: str, where: Where) -> tuple[Any, ...]:
    return (_quoted(phrase), *where.values) * 2


def _quoted(phrase: str) -> str:
    """One phrase, whatever is in it: no operator of the full text engine can be reached."""
    return '"' + indexed(phrase).replace('"', '""') + '"'


def _match(row: Any) -> Match:
    session, seq, kind, time, surface, matches, document, is_live = row[:8]
    return Match(_id(session), seq, kind, time, surface, matches, document, bool(is_live))


def key_of(session_id: str) -> str:
    """The id in ASCII: an id may hold what SQLite cannot."""
    return json.dumps(session_id)[1:-1]


def _id(key: str) -> str:
    session_id: str = json.loads(f'"{key}"')
    return session_id
