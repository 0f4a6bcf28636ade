"""The mounted rows: how they become fibers, in which realms, and how each of them is.

What changes the tree as a whole is the loader (`loader.py`), which stands on this.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsh.composition.compose import Composition
from dsh.composition.grammar import closest
from dsh.composition.mount.audit import RowReport, not_active, not_loaded
from dsh.composition.mount.cause import completed
from dsh.composition.mount.entry import MOVING, Entry
from dsh.composition.mount.event import ENTRY_INIT, PATCH_CONTEXT
from dsh.composition.mount.facts import Facts, scope_of
from dsh.composition.mount.fit import misfit, tell_unread, unknown_keys
from dsh.composition.mount.plan import Plan
from dsh.composition.mount.wording import running_at
from dsh.composition.row import GROUP, INCLUDE, Row
from dsh.composition.value import Seq
from dsh.errors import CompositionError
from dsh.kernel import FIBER_CONFIG, Context, Fiber, Service
from dsh.kernel.internal import ConfigRequest
from dsh.kernel.root import Realm

if TYPE_CHECKING:
    from dsh.composition.mount.write_back import WriteBack


GIVE_UP_S = 2.0
"""How long the end of a row that was given up is waited for."""


class MountedTree(Service):
    """Holds the entries of the rows that are mounted, their realms, and what they were made of."""

    def __init__(self, ctx: Context, facts: Facts) -> None:
        super().__init__(ctx)
        self._facts = facts
        self.roots: list[Entry] = []
        """The rows of the tree as they are mounted now."""
        self.composition: Composition | None = None
        """What the rows were made of."""
        self._trunk: Fiber | None = None
        self._realms: dict[tuple[str, str], Realm] = {}
        self._works = 0
        self._carriers = {GROUP: self._mount_group, INCLUDE: self._mount_include}
        self._writers: dict[Path, WriteBack] = {}
        self.require_more: Callable[[], None] | None = None
        """Raises what else is wrong with a tree whose rows are all active, at the start and after an edit."""
        self._plan: Plan | None = None
        """What is being made of rows right now."""
        ctx.on(FIBER_CONFIG, self._config_of, global_=True)

    @property
    def entries(self) -> list[Entry]:
        """All rows of the tree, groups before what is inside them."""
        return [entry for root in self.roots for entry in root.walk()]

    def resolve(self, entry_id: str) -> Entry:
        """The row of this id.

        Raises:
            CompositionError: there is none.
        """
        found = {entry.id: entry for entry in self.entries}
        if entry_id in found:
            return found[entry_id]
        near = closest(entry_id, list(found))
        hint = f"closest: {', '.join(near)}" if near else ""
        raise CompositionError(f"there is no row {entry_id!r}", hint=hint)

    def resolve_group(self, entry_id: str | None = None) -> list[Entry]:
        """The rows directly inside a group or include, or at the top of the tree.

        Raises:
            CompositionError: there is no such row, or it carries none.
        """
        if entry_id is None:
            return list(self.roots)
        entry = self.resolve(entry_id)
        if not entry.carries_entries:
            raise CompositionError(f"{entry.id} ({entry.row.name}) carries no rows")
        return list(entry.children)

    def locate(self, fiber: Fiber) -> Entry | None:
        """The row that a fiber belongs to: its own, or the one whose plugin mounted it."""
        while not isinstance(fiber.entry, Entry):
            if fiber.parent is None:
                return None
            fiber = fiber.parent.fiber
        return fiber.entry

    def get_tasks(self) -> list[Fiber]:
        """The fibers that are being loaded or unloaded; each can be awaited."""
        runtimes = self.owner_ctx.kernel.runtimes.values()
        return [fiber for runtime in runtimes for fiber in runtime.fibers if fiber.state in MOVING]

    async def settled(self) -> None:
        """Wait until no fiber of the tree is loading or unloading."""
        while moving := self.get_tasks():
            await asyncio.gather(*(fiber.quiet() for fiber in moving))

    async def rest(self, bound_s: float) -> None:
        """Wait until the tree has settled. Optional rows that take too long are ended; the audit tells.

        Raises:
            BootError: rows that the tree cannot stand without are still moving when the time is over.
        """
        while True:
            try:
                async with asyncio.timeout(bound_s):
                    return await self.settled()
            except TimeoutError:
                late = self._late(bound_s)
            if any(not report.is_optional for report in late.values()):
                raise not_active(list(late.values())) from None
            for fiber, report in late.items():
                await self._give_up(fiber, report)

    def _late(self, bound_s: float) -> dict[Fiber, RowReport]:
        """What still moves, by the fibers of the rows concerned."""
        late = {}
        for fiber in self.get_tasks():
            entry, what = self.locate(fiber), f"still {fiber.state.name.lower()} after {bound_s:g} s"
            if entry is None or entry.fiber is None:
                late[fiber] = RowReport(str(fiber.uid), fiber.name, what)
                continue
            detail = what if entry.fiber is fiber else f"{fiber.name} inside it is {what}"
            late[entry.fiber] = RowReport(entry.id, entry.row.name, detail, is_optional=entry.is_optional)
        return late

    async def _give_up(self, fiber: Fiber, report: RowReport) -> None:
        """End a row; what of it does not end within a moment goes on ending by itself."""
        entry = fiber.entry
        assert isinstance(entry, Entry)
        entry.is_stopping = True
        await asyncio.wait((asyncio.ensure_future(fiber.dispose()),), timeout=GIVE_UP_S)
        entry.fiber, entry.error, entry.is_given_up = None, CompositionError(report.detail), True

    def blocked_by(self, loop: asyncio.AbstractEventLoop, after_s: float) -> str:
        """Which row keeps the loop from going on, and where its code is. For another thread to ask."""
        at = running_at()
        where = f", blocked at {at}" if at else ""
        plan, entry, doing = self._plan, None, "busy"
        if plan is not None:
            entry, doing = plan.importing, "importing"
        elif (task := asyncio.current_task(loop)) is not None:
            waiting = [self.owner_ctx.fiber]
            for fiber in waiting:
                waiting += list(fiber.children)
                if fiber.is_run_by(task):
                    entry, doing = self.locate(fiber), fiber.state.name.lower()
        who = f"{entry.id} ({entry.row.name})" if entry is not None else "the program"
        return f"{who}: still {doing} after {after_s:g} s{where}"

    @contextmanager
    def working(self) -> Iterator[None]:
        """Rows are being started. Those that wait for a settled tree may go on afterwards."""
        self._works += 1
        try:
            yield
        finally:
            self._works -= 1
            self.owner_ctx.kernel.notify([(self.provide.name, self.owner_ctx.realm_of(self.provide.name))])

    def check(self, ctx: Context) -> bool:
        """Whether a row may have the loader: one that says `{await: true}` gets it once all is settled."""
        return not (self._works and ctx.intercepted(self.provide).get("await"))

    # -- how the rows are ------------------------------------------------------------------------

    def _planned(
        self,
        rows: list[Row],
        stale: frozenset[Path] = frozenset(),
        documents: Mapping[str, Seq] | None = None,
    ) -> list[Entry]:
        """The tree that these rows ask for.

        Raises:
            BootError: rows that are not optional cannot be imported or are wrong.
        """
        plan = Plan(
            self._facts,
            known=self.owner_ctx.kernel.runtimes,
            carriers=self._carriers,
            warn=lambda entry_id, text: self.owner_ctx.logger.warning("[%s] %s", entry_id, text),
            before=self.entries,
        )
        plan.stale, plan.documents = stale, documents or {}
        self._plan = plan
        try:
            roots = plan.entries_of(rows)
        finally:
            self._plan = None
        if any(not report.is_optional for report in plan.reports):
            raise not_loaded(plan.reports)
        return roots

    def audit(self, known: Collection[Fiber] = ()) -> list[RowReport]:
        """Every enabled row that is not active, and every row with something inside it that failed.

        Args:
            known: fibers inside rows whose failure is no news.
        """
        inside = self._failed_inside(known)
        found = []
        for entry in self.entries:
            if entry.is_off:
                continue
            report = entry.report()
            if report is None and (fiber := inside.get(entry)) is not None:
                report = entry.report_of(fiber)
            if report is not None:
                found.append(report._replace(is_optional=entry.is_optional))
        return completed(found, self.entries, self.locate)

    def _failed_inside(self, known: Collection[Fiber] = ()) -> dict[Entry, Fiber]:
        """Rows whose plugin mounted something that failed, with the first such fiber."""
        found: dict[Entry, Fiber] = {}
        for runtime in self.owner_ctx.kernel.runtimes.values():
            for fiber in runtime.fibers:
                if fiber.error is None or isinstance(fiber.entry, Entry) or fiber in known:
                    continue
                if (entry := self.locate(fiber)) is not None:
                    found.setdefault(entry, fiber)
        return found

    def require_active(self) -> None:
        """Raise what `audit` found, unless only optional rows are concerned: then warn.

        Raises:
            BootError: one line for each failed or pending row.
        """
        reports = self.audit()
        if any(not report.is_optional for report in reports):
            raise not_active(reports)
        if self.require_more is not None:
            self.require_more()
        for report in reports:
            self.owner_ctx.logger.warning("optional row %s", report)

    def misfit(self, entry: Entry) -> RowReport | None:
        """What is wrong with a config, as far as it can be said before the row runs."""
        return misfit(entry, self._facts)

    # -- mounting --------------------------------------------------------------------------------

    def _mount_roots(self, ctx: Context) -> None:
        for entry in self.roots:
            self._mount_in(entry, ctx)

    def _mount_group(self, ctx: Context) -> None:
        self._mount_children(ctx)

    def _mount_include(self, ctx: Context) -> Callable[[], Any]:
        entry = ctx.fiber.entry
        assert isinstance(entry, Entry)
        assert entry.included is not None
        path = entry.included.path
        if entry.included.data is None:
            self.writer(entry).schedule()
        self._mount_children(ctx)
        return lambda: self._drained(path)

    async def _drained(self, path: Path) -> None:
        """An include goes: what is to be written into its file is written first."""
        if (writer := self._writers.pop(path, None)) is not None:
            await writer.drain()

    def writer(self, include: Entry) -> "WriteBack":
        """Who writes the file of an include."""
        from dsh.composition.mount.write_back import WriteBack

        assert include.included is not None
        path = include.included.path
        if path not in self._writers:
            self._writers[path] = WriteBack(include, self.owner_ctx.kernel)
        return self._writers[path]

    def _mount_children(self, ctx: Context) -> None:
        entry = ctx.fiber.entry
        assert isinstance(entry, Entry)
        for child in entry.children:
            self._mount_in(child, ctx)

    def mount(self, entry: Entry) -> None:
        """Start a row, unless it runs, is off, or what is around it will start it."""
        around = entry.parent.fiber if entry.parent is not None else self._trunk
        if around is not None and around.is_active:
            self._mount_in(entry, around.ctx)

    def _mount_in(self, entry: Entry, ctx: Context) -> None:
        if entry.is_off or entry.is_live or entry.is_given_up or entry.plugin is None:
            return
        if entry.is_logged:
            self.owner_ctx.logger.info("starting %s (%s)", entry.id, entry.row.name)
        self.owner_ctx.emit(ENTRY_INIT, entry)
        place = ctx.extend()
        entry.mount(self.owner_ctx.waterfall(PATCH_CONTEXT, entry, lambda: self._placed(place, entry)))
        if entry.fiber is not None:
            entry.fiber.on_unknown_key = unknown_keys(entry, self.owner_ctx.logger)
            tell_unread(entry, self.owner_ctx.logger)

    def rebind(self, entry: Entry) -> None:
        """Give a mounted row the realms and intercepts its row asks for now."""
        place = entry.ctx
        if place is not None and entry.is_live:
            self.owner_ctx.waterfall(PATCH_CONTEXT, entry, lambda: self._placed(place, entry))

    def _placed(self, place: Context, entry: Entry) -> Context:
        realms = {
            service: self._realm(service, label, place)
            for service, label in (entry.row.get("isolate") or {}).items()
        }
        place.rebind(isolate=realms, intercept=dict(entry.row.get("intercept") or {}))
        return place

    def _realm(self, service: str, label: Any, place: Context) -> Realm:
        """A realm of the row's own (label True), which it keeps, or the one that all with a label share."""
        if label is not True:
            return self._realms.setdefault((service, label), Realm(f"{service}@{label}"))
        own = place.own_realms.get(service)
        return Realm(service) if own is None or own in self._realms.values() else own

    def park(self, entry: Entry) -> None:
        """Give up the addresses of a mounted row for a moment, so that another row can have them."""
        assert entry.ctx is not None
        entry.ctx.rebind(isolate={service: Realm(f"{service} moving") for service in entry.ctx.own_realms})

    def _forget_realms(self) -> None:
        """Drop the labels that no row uses any more."""
        used = {item for entry in self.entries for item in (entry.row.get("isolate") or {}).items()}
        self._realms = {key: realm for key, realm in self._realms.items() if key in used}

    def _config_of(self, request: ConfigRequest, following: Callable[[], Any]) -> Any:
        """Listener of `internal/config`: a row's fiber gets its config with every expression evaluated."""
        entry = request.fiber.entry
        if not isinstance(entry, Entry):
            return following()
        from dsh.composition.expression.evaluation import config_data

        return config_data(following(), scope_of(self._facts, request.fiber.ctx))
