"""One row on its way to the kernel: what it needs, what it became, and how it is."""

from collections.abc import Iterator
from typing import Any

from dsh.composition.expression.language import find_expressions
from dsh.composition.grammar import services_of
from dsh.composition.mount.audit import RowReport
from dsh.composition.mount.include import Included
from dsh.composition.mount.wording import with_hint
from dsh.composition.row import INCLUDE, Row, RowError
from dsh.composition.value import Expr, Map, Mark, Seq
from dsh.kernel import Context, Fiber, FiberState
from dsh.kernel.plugin import Runtime
from dsh.kernel.schema import ValidationError

UNINJECTED = frozenset(["cmdlineArgs"])
"""Services that expressions may read without an inject: facts that never change."""
MOVING = (FiberState.LOADING, FiberState.UNLOADING)


class Entry:
    """A row of the mounted tree. Holds its place, its plugin and its fiber.

    An edit makes a new tree of entries; a fiber that goes on is handed over to the entry of its row there.
    """

    def __init__(self, row: Row, entry_id: str, parent: "Entry | None") -> None:
        self.row = row
        self.id = entry_id
        """Unique in the process: rows of an include carry the include's id and a colon in front."""
        self.parent = parent
        self.children: list[Entry] = []
        self.is_disabled = False
        """By itself or by any group around it."""
        self.plugin: Any = None
        self.runtime: Runtime | None = None
        """What the kernel reads from the plugin; None for a row that does not run."""
        self.injected: list[str] = []
        """What the plugin itself asks for."""
        self.included: Included | None = None
        """What the file brings; of an include only."""
        self.ctx: Context | None = None
        """The context that carries the row's own realms and intercepts, once it is mounted."""
        self.fiber: Fiber | None = None
        self.error: Exception | None = None
        """Why it could not be mounted at all."""
        self.is_stopping = False
        """The loader ends its fiber."""
        self.is_given_up = False
        """It took too long to start and was ended; edits of other rows do not try it again."""
        self.is_broken = False
        """It ran before an edit that failed, and could not be started again afterwards."""

    def __repr__(self) -> str:
        return f"<Entry {self.id} ({self.row.name})>"

    def walk(self) -> "Iterator[Entry]":
        """The entry and everything inside it."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def is_off(self) -> bool:
        """Whether the row must have no fiber. A group of rows has one also when disabled."""
        if self.parent is not None and self.parent.is_disabled:
            return True
        return self.is_disabled and not self.row.is_group

    @property
    def is_live(self) -> bool:
        return self.fiber is not None and self.fiber.uid is not None

    @property
    def is_active(self) -> bool:
        return self.fiber is not None and self.fiber.is_active

    @property
    def is_moving(self) -> bool:
        """It is being loaded or unloaded."""
        return self.fiber is not None and self.fiber.state in MOVING

    @property
    def is_optional(self) -> bool:
        """Whether the tree may stand without it: the row says so, or one around it."""
        return self.row.is_optional or (self.parent is not None and self.parent.is_optional)

    @property
    def is_logged(self) -> bool:
        """Whether the include around it, or the next one out that says so, wants its rows logged."""
        around = self.parent
        while around is not None:
            if around.included is not None and isinstance(said := around.row.config.get("enableLogs"), bool):
                return said
            around = around.parent
        return False

    @property
    def extra_inject(self) -> list[str]:
        """Services that only the row asks for. A map's values are no intercepts."""
        return [name for name in services_of(self.row.get("inject")) if name not in self.injected]

    def check_services(self) -> None:
        """Refuse an expression that reads a service nobody promised to wait for.

        Raises:
            CompositionError: names row, service and place.
        """
        known = UNINJECTED.union(self.injected, self.extra_inject)
        for _, expr in find_expressions(self.row.config):
            for service in sorted(expr.checked.services - known):
                raise RowError(
                    f'row "{self.id}" reads service "{service}" it does not inject',
                    expr.mark,
                    hint=f"add inject: [{service}] to the row",
                )

    def mount(self, ctx: Context) -> None:
        """Make the row a fiber in `ctx`, its own context. What fails is kept in `error`."""
        self.ctx, self.error, self.is_stopping, self.is_given_up = ctx, None, False, False
        config = None if self.carries_entries else self.row.config
        try:
            self.fiber = ctx.plugin(self.plugin, config, name=self.row.name, inject=self.extra_inject)
        except Exception as error:
            self.fiber, self.error = None, error
            return
        self.fiber.entry = self

    @property
    def carries_entries(self) -> bool:
        """A group or an include: its config is no business of a plugin."""
        return self.row.carries_rows or self.row.name == INCLUDE

    def report(self) -> RowReport | None:
        """What is wrong with an enabled row, or None when it is active."""
        error: BaseException | None = self.error
        if error is None and not self.is_live and self.parent is not None and not self._is_carried:
            around = self.parent.id
            detail = f"not mounted, since {around} is not active"
            return RowReport(self.id, self.row.name, detail, waits_for=(around,))
        if error is None and self.fiber is None:
            return RowReport(self.id, self.row.name, "not mounted")
        if error is None and self.fiber is not None:
            if self.fiber.state is FiberState.ACTIVE:
                return None
            error = self.fiber.error
        if error is not None:
            return RowReport(self.id, self.row.name, self.failure(error), error)
        assert self.fiber is not None
        missing = tuple(self.fiber.missing) if self.fiber.state is FiberState.PENDING else ()
        return RowReport(self.id, self.row.name, _standing(self.fiber, missing), waits_for=missing)

    def report_of(self, inside: Fiber) -> RowReport:
        """What is said of an active row when something that its plugin mounted has failed.

        An error that begins with its place in a file says enough; any other is told with what failed.
        """
        error = inside.error
        assert error is not None
        is_placed = getattr(error, "mark", None) is not None
        detail = with_hint(error) if is_placed else f"{inside.name} inside it failed: {with_hint(error)}"
        return RowReport(self.id, self.row.name, detail, error)

    @property
    def _is_carried(self) -> bool:
        return self.parent is None or (self.parent.fiber is not None and self.parent.fiber.is_active)

    def failure(self, error: BaseException) -> str:
        """The error in one line; one about the config begins with the place where that is written."""
        text = with_hint(error)
        if not isinstance(error, ValidationError):
            return text
        mark, value = self.config_at(error.path, error.unknown)
        source = f", which comes from {value.shown}" if isinstance(value, Expr) else ""
        return f"{mark}: {text}{source}"

    def config_at(self, path: str, key: str = "") -> tuple[Mark, Any]:
        """Where a part of the config is written, and what stands there; `key` is a key of it.

        Args:
            path: keys and positions joined by dots, empty for the whole config.
        """
        mark, value = find(self.row, "config", *filter(None, path.split(".")))
        if key and isinstance(value, Map) and key in value:
            mark = value.key_at(key)
        return mark, value


def find(value: Any, *keys: str) -> tuple[Mark, Any]:
    """What is written behind these keys and positions, and where: as much of the way as there is."""
    mark: Mark = value.mark
    for key in keys:
        if isinstance(value, Map) and key in value:
            mark, value = value.value_at(key), value[key]
        elif isinstance(value, Seq) and key.isdigit() and int(key) < len(value):
            mark, value = value.item_at(int(key)), value[int(key)]
        else:
            break
    return mark, value


def _standing(fiber: Fiber, missing: tuple[str, ...]) -> str:
    if fiber.state is FiberState.PENDING:
        return f"pending (waiting for service(s): {', '.join(missing)})" if missing else "pending"
    if fiber.state is FiberState.DISPOSED:
        return "ended by itself while the tree was starting"
    return f"still {fiber.state.name.lower()}"
