"""Mounts the rows of a composition on the kernel and says how each of them is.

First everything that can be judged without running a plugin's body: ids, `disabled`, imports, the services
that expressions read. Only when all of it holds are the rows mounted, all at once.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from dsh.composition.audit import RowReport, not_active, not_loaded
from dsh.composition.compose import Composition
from dsh.composition.entry import Entry, with_hint
from dsh.composition.include import included_rows
from dsh.composition.profile import site_folder
from dsh.composition.resolve import find_plugin
from dsh.composition.row import GROUP, INCLUDE, Row, RowError
from dsh.composition.value import Expr
from dsh.errors import CompositionError, DshError, KernelError
from dsh.kernel import FIBER_CONFIG, Context, FiberState, Service, ServiceKey
from dsh.kernel.fiber import ConfigRequest
from dsh.kernel.plugin import runtime_of
from dsh.kernel.root import Realm

if TYPE_CHECKING:
    from dsh.composition.evaluation import Scope

SLOW_S = 10.0
"""How long the rows may take to start before a warning names those that have not."""
_MOVING = (FiberState.LOADING, FiberState.UNLOADING)


class Facts(NamedTuple):
    """What expressions may read, fixed at start."""

    home: Path
    profile: str
    cwd: str
    env: Mapping[str, str]
    """The launch environment, merged (`LaunchEnvironment.mapping()`)."""


LOADER: ServiceKey["Loader"] = ServiceKey("loader")


class Loader(Service):
    """Service `loader`. Provided by constructing it on the root context; holds the mounted rows."""

    provide: ClassVar[ServiceKey[Any]] = LOADER

    def __init__(self, ctx: Context, facts: Facts) -> None:
        super().__init__(ctx)
        self._facts = facts
        self._roots: list[Entry] = []
        self._realms: dict[tuple[str, str], Realm] = {}
        self.slow_s = SLOW_S
        ctx.on(FIBER_CONFIG, self._config_of, global_=True)

    @property
    def entries(self) -> list[Entry]:
        """All rows of the tree, groups before what is inside them."""
        return [entry for root in self._roots for entry in root.walk()]

    async def load(self, composition: Composition) -> None:
        """Resolve, import and check every enabled row, mount all, and wait until nothing moves.

        All rows start at once; each is loaded when its services are there. Failing bodies and rows
        that wait are no error here: ask `audit`.

        Raises:
            BootError: a row cannot be imported or is wrong; then nothing was mounted.
        """
        if (site := site_folder(self._facts.home, self._facts.profile)).is_dir():
            sys.path.append(str(site))
        plan = _Plan(self, self._facts)
        roots = plan.entries_of(composition.rows, None)
        if plan.reports:
            raise not_loaded(plan.reports)
        self._roots = roots
        for entry in roots:
            self._mount(entry, self.owner_ctx)
        slow = asyncio.get_running_loop().call_later(self.slow_s, self._tell_slow)
        try:
            await self.settled()
        finally:
            slow.cancel()

    def _tell_slow(self) -> None:
        moving = [e for e in self.entries if e.fiber is not None and e.fiber.state in _MOVING]
        names = ", ".join(f"{entry.id} ({entry.row.name})" for entry in moving)
        self.owner_ctx.logger.warning("still starting after %g s: %s", self.slow_s, names)

    async def settled(self) -> None:
        """Wait until no fiber of the tree is loading or unloading."""
        kernel = self.owner_ctx.kernel
        while moving := [f for r in kernel.runtimes.values() for f in r.fibers if f.state in _MOVING]:
            await asyncio.gather(*(fiber.quiet() for fiber in moving))

    def audit(self) -> list[RowReport]:
        """Every enabled row that is not active: failed, or pending and what it waits for."""
        reports = [entry.report() for entry in self.entries if not self._is_off(entry)]
        return [report for report in reports if report is not None]

    def require_active(self) -> None:
        """Raise what `audit` found.

        Raises:
            BootError: one line for each failed or pending row.
        """
        if reports := self.audit():
            raise not_active(reports)

    def mount_children(self, entry: Entry, ctx: Context) -> None:
        """Mount what is inside a group or include; called by its body."""
        for child in entry.children:
            self._mount(child, ctx)

    def _mount(self, entry: Entry, ctx: Context) -> None:
        if not self._is_off(entry):
            entry.mount(ctx, self._realm)

    @staticmethod
    def _is_off(entry: Entry) -> bool:
        """A group of rows is mounted also when disabled; its children are not."""
        if entry.parent is not None and entry.parent.is_disabled:
            return True
        return entry.is_disabled and not entry.row.is_group

    def _realm(self, service: str, label: str | None) -> Realm:
        """A realm of the row's own, or the one that all rows with this label share."""
        if label is None:
            return Realm(service)
        return self._realms.setdefault((service, label), Realm(f"{service}@{label}"))

    def _config_of(self, request: ConfigRequest, following: Callable[[], Any]) -> Any:
        """Listener of `internal/config`: a row's fiber gets its config with every expression evaluated."""
        entry = request.fiber.entry
        if not isinstance(entry, Entry):
            return following()
        from dsh.composition.evaluation import config_data

        return config_data(following(), self._scope(request.fiber.ctx))

    def _scope(self, ctx: Context | None) -> "Scope":
        from dsh.composition.evaluation import Scope

        facts = self._facts
        return Scope(env=facts.env, cwd=facts.cwd, profile=facts.profile, home=facts.home, ctx=ctx)

    def is_disabled(self, row: Row) -> bool:
        """Whether the row itself says so; an expression is evaluated, once a composition.

        Raises:
            CompositionError: the expression fails or gives neither a boolean nor None.
        """
        value = row.disabled
        if not isinstance(value, Expr):
            return bool(value)
        from dsh.composition.evaluation import evaluate

        result = evaluate(value, self._scope(None))
        if result is not None and not isinstance(result, bool):
            raise RowError(f"disabled must give true, false or None, not {result!r}", value.mark)
        return bool(result)


class _Carrier:
    """The plugin of a group or include: mounts the rows inside it."""

    def __init__(self, loader: Loader, entry: Entry) -> None:
        self._loader, self._entry = loader, entry

    def apply(self, ctx: Context, config: Any) -> None:
        self._loader.mount_children(self._entry, ctx)


class _Plan:
    """Judges rows and imports their plugins without mounting anything; collects every problem."""

    def __init__(self, loader: Loader, facts: Facts) -> None:
        self._loader = loader
        self._facts = facts
        self._ids: set[str] = set()
        self._open_files: tuple[Path, ...] = ()
        self.reports: list[RowReport] = []

    def entries_of(self, rows: list[Row], parent: Entry | None, prefix: str = "") -> list[Entry]:
        entries = []
        for position, row in enumerate(rows):
            entry = Entry(row, self._id(row, position, prefix), parent)
            entries.append(entry)
            try:
                self._prepare(entry, prefix)
            except DshError as error:
                self.reports.append(RowReport(entry.id, row.name, with_hint(error), error))
        return entries

    def _id(self, row: Row, position: int, prefix: str) -> str:
        """The row's id; one without gets the same made-up one on every start."""
        entry_id = prefix + (row.id or f"{row.name.rpartition('/')[2]}-{position + 1}")
        while entry_id in self._ids:
            entry_id += "'"
        self._ids.add(entry_id)
        return entry_id

    def _prepare(self, entry: Entry, prefix: str) -> None:
        row, parent = entry.row, entry.parent
        entry.is_disabled = self._loader.is_disabled(row) or (parent is not None and parent.is_disabled)
        if row.carries_rows and row.name != GROUP:
            raise RowError(f"{row.label}: only {GROUP} carries rows", row.key_at("group"))
        if entry.is_disabled and not row.carries_rows:
            return
        if row.carries_rows:
            entry.plugin = _Carrier(self._loader, entry)
            entry.children = self.entries_of(row.children, entry, prefix)
        elif row.name == INCLUDE:
            entry.plugin = _Carrier(self._loader, entry)
            self._include(entry)
        else:
            self._import(entry)

    def _include(self, entry: Entry) -> None:
        before = self._open_files

        def warn(text: str) -> None:
            self._loader.owner_ctx.logger.warning("[%s] %s", entry.id, text)

        path, rows = included_rows(entry.row, before, warn)
        self._open_files = (*before, path)
        entry.children = self.entries_of(rows, entry, f"{entry.id}:")
        self._open_files = before

    def _import(self, entry: Entry) -> None:
        row = entry.row
        if row.name.startswith("cordis:"):
            raise CompositionError(
                f"there is no built-in {row.name!r}", hint=f"built-ins: {GROUP}, {INCLUDE}"
            )
        entry.plugin = find_plugin(row.name, row.folder)
        try:
            runtime = runtime_of(self._loader.owner_ctx.kernel.runtimes, entry.plugin, row.name)
        except KernelError as error:
            raise CompositionError(error.message) from error
        entry.injected = list(runtime.inject)
        entry.check_services()
