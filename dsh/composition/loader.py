"""Mounts the rows of a composition on the kernel, changes them while they run, and says how each of them is.

First everything that can be judged without running a plugin's body: ids, `disabled`, imports, the services
that expressions read (`plan.py`). Only when all of it holds are the rows mounted, all at once. An edit does
the same and then changes what is different (`transaction.py`).
"""

import asyncio
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from dsh.composition.audit import RowReport, not_active, not_loaded
from dsh.composition.compose import Composition
from dsh.composition.entry import Entry
from dsh.composition.event import CONFIG_UPDATE, ENTRY_INIT, PATCH_CONTEXT
from dsh.composition.expr import find_expressions
from dsh.composition.facts import Facts as Facts
from dsh.composition.facts import scope_of
from dsh.composition.plan import Plan
from dsh.composition.profile import shipped, site_folder
from dsh.composition.row import GROUP, INCLUDE, Row
from dsh.errors import CompositionError, DshError
from dsh.kernel import FIBER_CONFIG, Context, Fiber, FiberState, Service, ServiceKey, resolve_config
from dsh.kernel.fiber import ConfigRequest
from dsh.kernel.root import Realm

SLOW_S = 10.0
"""How long the rows may take to start before a warning names those that have not."""
START_S = 60.0
"""How long they may take at all."""
_MOVING = (FiberState.LOADING, FiberState.UNLOADING)

START_VARIABLE = "DSH_START_TIMEOUT"

LOADER: ServiceKey["Loader"] = ServiceKey("loader")


def start_bound(environ: Mapping[str, str]) -> float:
    """How long a start may take, in seconds: what the variable says, else the default.

    Raises:
        CompositionError: the variable holds no positive number.
    """
    text = environ.get(START_VARIABLE, "").strip()
    if not text:
        return START_S
    try:
        bound_s = float(text)
    except ValueError:
        bound_s = 0.0
    if not 0 < bound_s < float("inf"):
        raise CompositionError(
            f"{START_VARIABLE} is {text!r}, not a number of seconds above 0", hint="unset it for 60 seconds"
        )
    return bound_s


class Loader(Service):
    """Service `loader`. Provided by constructing it on the root context; holds the mounted rows."""

    provide: ClassVar[ServiceKey[Any]] = LOADER

    def __init__(self, ctx: Context, facts: Facts) -> None:
        super().__init__(ctx)
        self._facts = facts
        self.roots: list[Entry] = []
        """The rows of the tree as they are mounted now."""
        self.composition: Composition | None = None
        """What the rows were made of."""
        self.slow_s, self.bound_s = SLOW_S, START_S
        self._trunk: Fiber | None = None
        self._realms: dict[tuple[str, str], Realm] = {}
        self._works = 0
        self._carriers = {GROUP: self._mount_group, INCLUDE: self._mount_include}
        self._turn = asyncio.Lock()
        self._shipped = str(shipped("bundles")) + os.sep
        ctx.on(FIBER_CONFIG, self._config_of, global_=True)

    @property
    def entries(self) -> list[Entry]:
        """All rows of the tree, groups before what is inside them."""
        return [entry for root in self.roots for entry in root.walk()]

    # -- the start -------------------------------------------------------------------------------

    async def load(self, composition: Composition) -> None:
        """Resolve, import and check every enabled row, mount all, and wait until nothing moves.

        All rows start at once; each is loaded when its services are there. Failing bodies and rows
        that wait are no error here: ask `audit`.

        Raises:
            BootError: a row cannot be imported or is wrong, and nothing was mounted; or rows are still
                starting when the time is over.
        """
        if (site := site_folder(self._facts.home, self._facts.profile)).is_dir():
            sys.path.append(str(site))
        self.roots = self._planned(composition.rows)
        self.composition = composition
        self._trunk = self.owner_ctx.plugin(self._mount_roots, name="include")
        slow = asyncio.get_running_loop().call_later(self.slow_s, self._tell_slow)
        try:
            async with asyncio.timeout(self.bound_s):
                with self.working():
                    await self.settled()
                await self.settled()
        except TimeoutError:
            reports = [self._late(entry) for entry in self.entries if entry.is_moving]
            raise not_active(reports) from None
        finally:
            slow.cancel()

    def _planned(self, rows: list[Row], stale: frozenset[Path] = frozenset()) -> list[Entry]:
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
        plan.stale = stale
        roots = plan.entries_of(rows)
        if any(not report.is_optional for report in plan.reports):
            raise not_loaded(plan.reports)
        return roots

    def _late(self, entry: Entry) -> RowReport:
        assert entry.fiber is not None
        state = entry.fiber.state.name.lower()
        return RowReport(entry.id, entry.row.name, f"still {state} after {self.bound_s:g} s")

    def _tell_slow(self) -> None:
        names = ", ".join(f"{entry.id} ({entry.row.name})" for entry in self.entries if entry.is_moving)
        self.owner_ctx.logger.warning("still starting after %g s: %s", self.slow_s, names)

    async def settled(self) -> None:
        """Wait until no fiber of the tree is loading or unloading."""
        kernel = self.owner_ctx.kernel
        while moving := [f for r in kernel.runtimes.values() for f in r.fibers if f.state in _MOVING]:
            await asyncio.gather(*(fiber.quiet() for fiber in moving))

    @contextmanager
    def working(self) -> Iterator[None]:
        """Rows are being started. Those that wait for a settled tree may go on afterwards."""
        self._works += 1
        try:
            yield
        finally:
            self._works -= 1
            self.owner_ctx.kernel.touch([(LOADER.name, self.owner_ctx.realm_of(LOADER.name))])

    def check(self, ctx: Context) -> bool:
        """Whether a row may have the loader: one that says `{await: true}` gets it once all is settled."""
        return not (self._works and ctx.intercepted(LOADER).get("await"))

    # -- how the rows are ------------------------------------------------------------------------

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
        return found

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
        for report in reports:
            self.owner_ctx.logger.warning("optional row %s", report)

    def locate(self, fiber: Fiber) -> Entry | None:
        """The row that a fiber belongs to: its own, or the one whose plugin mounted it."""
        while not isinstance(fiber.entry, Entry):
            if fiber.parent is None:
                return None
            fiber = fiber.parent.fiber
        return fiber.entry

    # -- mounting --------------------------------------------------------------------------------

    def _mount_roots(self, ctx: Context) -> None:
        for entry in self.roots:
            self._mount_in(entry, ctx)

    def _mount_group(self, ctx: Context) -> None:
        self._mount_children(ctx)

    def _mount_include(self, ctx: Context) -> None:
        self._mount_children(ctx)

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
        if entry.is_off or entry.is_live or entry.plugin is None:
            return
        self.owner_ctx.emit(ENTRY_INIT, entry)
        place = ctx.extend()
        entry.mount(self.owner_ctx.waterfall(PATCH_CONTEXT, entry, lambda: self._placed(place, entry)))
        if entry.fiber is not None and not self._is_shipped(entry):
            entry.fiber.on_unknown_key = self._unknown_key_of(entry)

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
        from dsh.composition.evaluation import config_data

        return config_data(following(), scope_of(self._facts, request.fiber.ctx))

    # -- configs ---------------------------------------------------------------------------------

    def _is_shipped(self, entry: Entry) -> bool:
        """Whether a shipped bundle brings the row; then a key that its plugin does not know is an error."""
        return entry.row.mark.file.startswith(self._shipped)

    def _unknown_key_of(self, entry: Entry) -> Callable[[str, str, str], None]:
        told: set[tuple[str, str]] = set()

        def tell(path: str, key: str, hint: str) -> None:
            if (path, key) not in told:
                told.add((path, key))
                mark, _ = entry.config_at(path, key)
                meant = f" ({hint})" if hint else ""
                self.owner_ctx.logger.warning(
                    "%s (%s): %s: unknown key %r is left out%s", entry.id, entry.row.name, mark, key, meant
                )

        return tell

    def misfit(self, entry: Entry) -> RowReport | None:
        """What is wrong with a config, as far as it can be said before the row runs.

        A config that reads services has to wait for them.
        """
        schema = entry.runtime.schema if entry.runtime is not None else None
        if entry.is_off or entry.carries_entries:
            return None
        expressions = [expr for _, expr in find_expressions(entry.row.config)]
        if any(expr.checked.services for expr in expressions) or (schema is None and not expressions):
            return None
        from dsh.composition.evaluation import config_data

        try:
            data = config_data(entry.row.config, scope_of(self._facts))
            if schema is not None:
                resolve_config(schema, data, None if self._is_shipped(entry) else _ignore)
        except DshError as error:
            return RowReport(entry.id, entry.row.name, entry.failure(error), error)
        return None

    # -- edits -----------------------------------------------------------------------------------

    async def reload(
        self, composition: Composition, *, stale: frozenset[Path] = frozenset()
    ) -> tuple[str, ...]:
        """Bring the mounted tree to another composition, or leave it as it is; answers the ids that changed.

        Judged like a start: every enabled row that is not optional must be active afterwards.

        Args:
            stale: files of includes that are read anew.

        Raises:
            CompositionError: it was not applied, and why. `Refused` where a row is held.
        """
        from dsh.composition.transaction import Transaction

        async with self._turn:
            edit = Transaction(self, self._planned(composition.rows, stale), bound_s=self.bound_s)
            edit.check()
            known = set(self._failed_inside().values())
            await edit.run(lambda: self._judge(known))
            self.composition = composition
            self._forget_realms()
        if edit.changes.ids:
            self.owner_ctx.emit(CONFIG_UPDATE, edit.changes.ids)
        return edit.changes.ids

    def _judge(self, known: set[Fiber]) -> None:
        """The audit of an edit: what had failed inside a row before does not count again."""
        reports = self.audit(known)
        if any(not report.is_optional for report in reports):
            raise not_active(reports)


def _ignore(path: str, key: str, hint: str) -> None:
    """An unknown key in a config that is only tried: it is told when the row runs."""
