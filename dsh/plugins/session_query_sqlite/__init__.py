"""Row `session-query-sqlite`: exact reads over live and stored sessions, and full text search where it is on.

Nothing but headers is read before somebody asks. The index is disposable and holds nothing that is not in the
logs; SQLite is loaded only where `openAt` is `startup` (`spec/persistence.md` §12).
"""

from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from dsh.capabilities.bounds import Amount, NonEmpty
from dsh.capabilities.session_query import SESSION_QUERY, SessionQuery
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.session.store import SESSIONS

if TYPE_CHECKING:
    from dsh.plugins.session_query_sqlite.service import Queries

__all__ = ["Config", "apply", "inject", "provide"]

inject = [SESSIONS]
provide = [SESSION_QUERY]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    path: NonEmpty = ":memory:"
    """File of the search index, which can be deleted at any time; never the database of the sessions."""
    open_at: Literal["startup", "never"] = "startup"
    """When the index is opened. `never`: searching is refused, exact reads work."""
    journal_mode: Literal["wal", "delete", "truncate", "persist"] = "wal"
    """How SQLite writes the index's file."""
    default_limit: Amount = 20
    """Hits of a page where the search names no limit."""
    max_limit: Amount = 100
    """Hits of a page at most."""
    snippet_chars: Amount = 240
    """Characters of the text shown around a match."""
    read_window_max: Amount = 50
    """Neighbours on each side that one event can be read with."""
    persisted_inspect_concurrency: Amount = 4
    """Stored logs that are read at the same time for their titles."""


async def apply(ctx: Context, config: Config) -> None:
    if config.default_limit > config.max_limit:
        raise CompositionError(
            f"defaultLimit {config.default_limit} is more than maxLimit {config.max_limit}",
            code="SESSION_QUERY_INVALID_CONFIG",
        )
    queries = _OnDemand(ctx, config)
    if config.open_at == "startup":
        from dsh.plugins.session_query_sqlite.search import open_search

        made = queries.made()
        made.index = search = await open_search(made.corpus, config)
        ctx.effect(lambda: search.close, "search index")
    ctx.provide(SESSION_QUERY, cast(SessionQuery, queries))


class _OnDemand:
    """Stands for the queries, which are loaded with the first question."""

    def __init__(self, ctx: Context, config: Config) -> None:
        self._ctx = ctx
        self._config = config
        self._queries: Queries | None = None

    def made(self) -> "Queries":
        if self._queries is None:
            from dsh.plugins.session_query_sqlite.corpus import Corpus
            from dsh.plugins.session_query_sqlite.service import Queries

            self._queries = Queries(Corpus(self._ctx), self._config)
        return self._queries

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.made(), name)
