"""Row `session-projection`: values folded from the logs of live sessions, as the service `sessionProjection`.

Nothing is folded while a log grows unless somebody watches, and then at the events that units name, never at
a packed delta. Whoever asks gets what the log says now. The to-do list is folded here: its event is the log's
own, and no other row has to be there for it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from dsh.capabilities.projections import PROJECTIONS, ProjectionChanged
from dsh.kernel import Context, Effect, Service
from dsh.kernel.foreign import contained, told
from dsh.session.chunk_run import Entry
from dsh.session.log import Session
from dsh.session.projection import fold as rows_of
from dsh.session.projection.error import ProjectionConflict, ProjectionError
from dsh.session.projection.fold import Restored, Row, Rows, Snapshot
from dsh.session.projection.todos import TODOS
from dsh.session.projection.unit import Unit, fold
from dsh.session.store import SESSION_EVENT, SESSIONS, Appended
from dsh.session.value import JsonValue

inject = [SESSIONS]
provide = [PROJECTIONS]

Watcher = Callable[[ProjectionChanged], None]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The row has no options."""


class _Cell:
    """The state of one unit for one session, up to the event before `next_seq`."""

    __slots__ = ("is_stale", "next_seq", "state")

    def __init__(self, state: Any, next_seq: int) -> None:
        self.state = state
        self.next_seq = next_seq
        self.is_stale = False
        """The unit failed; it is left alone until it is registered anew."""


class ProjectionRegistry(Service):
    """Implements `dsh.capabilities.projections.Projections`. State: units, watchers, a cell of each."""

    provide = PROJECTIONS

    def __init__(self, ctx: Context) -> None:
        self._units: dict[str, list[Unit[Any]]] = {}
        """Every registration of a key; the first one's view counts."""
        self._watchers: dict[object, Watcher] = {}
        self._cells: WeakKeyDictionary[Session, dict[str, _Cell]] = WeakKeyDictionary()
        self._triggers: frozenset[str] = frozenset()
        super().__init__(ctx)

    # -- who folds and who watches -----------------------------------------------------------------

    def register(self, unit: Unit[Any]) -> Effect:
        def own() -> Callable[[], None]:
            shared = self._units.setdefault(unit.key, [])
            if shared and not shared[0].same_fold(unit):
                there = shared[0].version
                problem = "by another unit" if there == unit.version else f"with version {there}"
                raise ProjectionConflict(unit.key, problem)
            shared.append(unit)
            self._units_changed()
            return lambda: self._release(unit)

        return self.ctx.effect(own, f"projection {unit.key}")

    def _release(self, unit: Unit[Any]) -> None:
        shared = self._units[unit.key]
        del shared[next(at for at, one in enumerate(shared) if one is unit)]
        if not shared:
            del self._units[unit.key]
            for cells in self._cells.values():
                cells.pop(unit.key, None)
        self._units_changed()

    def _units_changed(self) -> None:
        self._triggers = frozenset().union(*(unit.types for unit in self.units if unit.view is not None))

    @property
    def units(self) -> Sequence[Unit[Any]]:
        """One of each key."""
        return [shared[0] for shared in tuple(self._units.values()) if shared]

    def watch(self, callback: Watcher) -> Effect:
        mark = object()

        def own() -> Callable[[], None]:
            self._watchers[mark] = callback
            return lambda: self._watchers.pop(mark, None) and None

        return self.ctx.effect(own, "watch projections")

    # -- live sessions -----------------------------------------------------------------------------

    def on_event(self, appended: Appended) -> None:
        """A live log has grown."""
        if not self._watchers or appended.event.type not in self._triggers:
            return
        session, seq = appended.session, appended.seq
        shown = [unit for unit in self.units if unit.view is not None]
        begun = self._cells.get(session, {})
        self._advance(session, [unit for unit in shown if unit.key not in begun], stop=seq)
        cells = self._cells[session]
        before = [(unit, cells[unit.key], cells[unit.key].state) for unit in shown]
        self._advance(session, shown)
        for unit, cell, state in before:
            is_registered = cells.get(unit.key) is cell  # a watcher may have let it go meanwhile
            if is_registered and cell.state is not state and not cell.is_stale:
                self._tell(session, unit, cell, seq)

    def _tell(self, session: Session, unit: Unit[Any], cell: _Cell, seq: int) -> None:
        try:
            change = ProjectionChanged(session, unit.key, unit.show(cell.state), seq)
        except BaseException as raised:
            self._failed(session, unit, cell, raised)
            return
        for watcher in list(self._watchers.values()):
            try:
                watcher(change)
            except BaseException as raised:
                error = contained(raised, "a watcher of projections")
                self.owner_ctx.logger.warning("a watcher of projections failed: %s", error, exc_info=error)

    def _advance(self, session: Session, units: Sequence[Unit[Any]], *, stop: int | None = None) -> None:
        """Bring the cells of these units up to the end of the log, or to the event before `stop`.

        `stop` is the last event of the log or none. The log is read once for all cells that stand together.
        """
        stop = session.length if stop is None else stop
        cells = self._cells.setdefault(session, {})
        behind: dict[int, list[Unit[Any]]] = {}
        for unit in units:
            cell = cells.get(unit.key)
            if cell is None:
                cell = cells[unit.key] = _Cell(None, 0)
                try:
                    cell.state = unit.init()
                except BaseException as raised:
                    self._failed(session, unit, cell, raised)
            if cell.next_seq < stop and not cell.is_stale:
                behind.setdefault(cell.next_seq, []).append(unit)
        for start, together in behind.items():
            entries = session.entries(start)
            if stop < session.length:
                entries.pop()
            for unit in together:
                cell = cells[unit.key]
                try:
                    cell.state = fold(unit, entries, cell.state, start=start)
                except BaseException as raised:
                    self._failed(session, unit, cell, raised)
                cell.next_seq = stop

    def _failed(self, session: Session, unit: Unit[Any], cell: _Cell, raised: BaseException) -> None:
        error = contained(raised, f"projection {unit.key}")
        cell.is_stale, cell.state = True, None
        self.owner_ctx.logger.warning(
            "projection %s of session %s is stale until it is registered anew: %s",
            unit.key, session.id, told(error),
        )  # fmt: skip

    def state_of(self, session: Session, key: str) -> Any:
        if key not in self._units:
            return None
        self._advance(session, [self._units[key][0]])
        return self._cells[session][key].state

    def snapshot(self, session: Session) -> Snapshot:
        units = self.units
        self._advance(session, units)
        values: dict[str, JsonValue] = {}
        for unit in units:
            cell = self._cells[session][unit.key]
            if unit.view is None or cell.is_stale:
                continue
            try:
                values[unit.key] = unit.show(cell.state)
            except BaseException as raised:
                self._failed(session, unit, cell, raised)
        return Snapshot(session.length - 1, values)

    def checkpoint(self, session: Session) -> dict[str, Row]:
        units = self.units
        self._advance(session, units)
        rows: dict[str, Row] = {}
        for unit in units:
            cell = self._cells[session][unit.key]
            if cell.is_stale:
                continue
            try:
                rows[unit.key] = rows_of.checkpoint(unit, cell.state, session.length - 1)
            except BaseException as raised:
                self._failed(session, unit, cell, raised)
        return rows

    # -- stored sessions ---------------------------------------------------------------------------

    def adopt(self, session: Session, rows: Rows) -> None:
        cells = self._cells.setdefault(session, {})
        for unit in self.units:
            row = rows.get(unit.key)
            if unit.key in cells or row is None or row.ver != unit.version or row.seq >= session.length:
                continue
            try:
                cells[unit.key] = _Cell(unit.load(row.val), row.seq + 1)
            except ProjectionError as error:
                self.owner_ctx.logger.debug("session %s: a stored row is left out: %s", session.id, error)

    def restore_floor(self, rows: Rows) -> int | None:
        return rows_of.restore_floor(self.units, rows)

    def view_checkpoint(self, rows: Rows) -> Snapshot:
        return rows_of.view_checkpoint(self.units, rows)

    def restore(self, rows: Rows, entries: Iterable[Entry], base: int) -> Restored:
        restored = rows_of.restore(self.units, rows, entries, base)
        for key, error in restored.failed.items():
            self.owner_ctx.logger.warning("projection %s of a stored session failed: %s", key, told(error))
        return restored


def apply(ctx: Context, config: Config) -> None:
    registry = ProjectionRegistry(ctx)
    ctx.on(SESSION_EVENT, registry.on_event)
    registry.register(TODOS)
