"""Judges rows and imports their plugins without mounting anything; collects every problem.

The first half of a start and of every edit, and all that an explanation of a composition needs.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from dsh.composition.mount.audit import RowReport
from dsh.composition.mount.entry import Entry
from dsh.composition.mount.facts import Facts, says_disabled
from dsh.composition.mount.include import Included, read_included
from dsh.composition.mount.resolve import find_plugin
from dsh.composition.mount.wording import described, with_hint
from dsh.composition.row import GROUP, INCLUDE, Row, RowError
from dsh.composition.same import same_row
from dsh.composition.value import Seq
from dsh.errors import CompositionError, DshError, KernelError
from dsh.kernel import Context
from dsh.kernel.plugin import Runtime, runtime_of

Carriers = Mapping[str, Callable[[Context], Any]]
"""The plugins of groups and of includes, by their names in rows."""


def _nothing(ctx: Context) -> None:
    """Stands for the plugin of groups and includes where nothing is mounted."""


class Plan:
    """The tree that rows ask for, and what is wrong with them. `reports` holds every problem found."""

    def __init__(
        self,
        facts: Facts,
        *,
        known: Mapping[Any, Runtime] | None = None,
        carriers: Carriers | None = None,
        warn: Callable[[str, str], None] | None = None,
        before: Iterable[Entry] = (),
    ) -> None:
        """
        Args:
            known: the plugins that are mounted already.
            carriers: what is mounted for groups and includes.
            warn: told of misses inside an include: the include's id and a text.
            before: the entries of the tree that is being edited: rows without id keep the ids that were made
                up for them, and an include whose path is the same keeps what was read.
        """
        self._facts, self._known, self._warn = facts, known or {}, warn
        self._carriers = carriers or {GROUP: _nothing, INCLUDE: _nothing}
        self._ids: set[str] = set()
        self._made: dict[str, int] = {}
        """The last number that was made up, for each name of a plugin."""
        self._before = {entry.id: entry for entry in before}
        self._nameless = [entry for entry in self._before.values() if entry.row.id is None]
        self._open_files: tuple[Path, ...] = ()
        self.stale: frozenset[Path] = frozenset()
        """Files of includes that are read anew."""
        self.documents: Mapping[str, Seq] = {}
        """What includes are to hold instead of what their files say, by their ids."""
        self.reports: list[RowReport] = []
        self.importing: Entry | None = None
        """The row whose plugin is being imported."""

    def entries_of(self, rows: list[Row], parent: Entry | None = None, prefix: str = "") -> list[Entry]:
        """The entries of these rows and all inside them; what is wrong is added to `reports`."""
        self._ids.update(prefix + row.id for row in rows if row.id is not None)
        entries = []
        for row in rows:
            entry = Entry(row, self._id(row, prefix), parent)
            entries.append(entry)
            try:
                self._prepare(entry, prefix)
            except DshError as error:
                entry.error = error
                report = RowReport(entry.id, row.name, with_hint(error), error)
                self.reports.append(report._replace(is_optional=entry.is_optional))
        return entries

    def _id(self, row: Row, prefix: str) -> str:
        """The row's id; one without gets a made-up one, the same on every start and after every edit."""
        if row.id is not None:
            return prefix + row.id
        for known in self._nameless:
            if known.id.startswith(prefix) and known.id not in self._ids and same_row(known.row, row):
                self._ids.add(known.id)
                return known.id
        stem = prefix + row.name.rpartition("/")[2]
        number = self._made.get(stem, 0) + 1
        while f"{stem}-{number}" in self._ids or f"{stem}-{number}" in self._before:
            number += 1
        self._made[stem] = number
        self._ids.add(f"{stem}-{number}")
        return f"{stem}-{number}"

    def _prepare(self, entry: Entry, prefix: str) -> None:
        row, parent = entry.row, entry.parent
        entry.is_disabled = parent is not None and parent.is_disabled
        entry.is_disabled = says_disabled(row, self._facts) or entry.is_disabled
        if row.carries_rows and row.name != GROUP:
            raise RowError(f"only {GROUP} carries rows", row.key_at("group"))
        if entry.is_disabled and not row.carries_rows:
            return
        if row.carries_rows:
            self._carry(entry)
            entry.children = self.entries_of(row.children, entry, prefix)
        elif row.name == INCLUDE:
            self._carry(entry)
            self._include(entry)
        else:
            self._import(entry)

    def _carry(self, entry: Entry) -> None:
        entry.plugin = self._carriers[entry.row.name]
        entry.runtime = runtime_of(self._known, entry.plugin, entry.row.name)

    def _include(self, entry: Entry) -> None:
        before = self._open_files

        def warn(text: str) -> None:
            if self._warn is not None:
                self._warn(entry.id, text)

        entry.included = read_included(entry.row, before, warn, self._read_before(entry))
        self._open_files = (*before, entry.included.path)
        entry.children = self.entries_of(entry.included.rows, entry, f"{entry.id}:")
        self._open_files = before

    def _read_before(self, entry: Entry) -> Included | None:
        known = self._before.get(entry.id)
        found = known.included if known is not None else None
        if found is not None and entry.id in self.documents:
            return found._replace(document=self.documents[entry.id])
        return None if found is None or found.path in self.stale else found

    def _import(self, entry: Entry) -> None:
        row = entry.row
        if row.name.startswith("cordis:"):
            raise RowError(
                f"there is no built-in {row.name!r}",
                row.value_at("name"),
                hint=f"built-ins: {GROUP}, {INCLUDE}",
            )
        self.importing = entry
        try:
            entry.plugin = find_plugin(row.name, row.folder)
            entry.runtime = runtime_of(self._known, entry.plugin, row.name)
        except (CompositionError, KernelError) as error:
            raise RowError(error.message, row.value_at("name"), hint=error.hint) from error.__cause__ or error
        except BaseException as error:  # an attribute that is somebody's code
            raise RowError(f"failed to read the plugin: {described(error)}", row.value_at("name")) from error
        finally:
            self.importing = None
        entry.injected = list(entry.runtime.inject)
        entry.check_services()
