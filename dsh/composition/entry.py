"""One row on its way to the kernel: what it needs, what it became, and how it is."""

from collections.abc import Callable, Iterator
from typing import Any

from dsh.composition.audit import RowReport
from dsh.composition.expr import find_expressions
from dsh.composition.resolve import described
from dsh.composition.row import Row, RowError
from dsh.composition.value import Expr, Map, Mark, Seq
from dsh.errors import DshError
from dsh.kernel import Context, Fiber, FiberState
from dsh.kernel.root import Realm
from dsh.kernel.schema import ValidationError

UNINJECTED = frozenset(["cmdlineArgs"])
"""Services that expressions may read without an inject: facts that never change."""


class Entry:
    """A row of the tree that is being mounted. Holds its place, its plugin and its fiber."""

    def __init__(self, row: Row, entry_id: str, parent: "Entry | None") -> None:
        self.row = row
        self.id = entry_id
        """Unique in the process: rows of an include carry the include's id and a colon in front."""
        self.parent = parent
        self.children: list[Entry] = []
        self.is_disabled = False
        """By itself or by any group around it."""
        self.plugin: Any = None
        self.injected: list[str] = []
        """What the plugin itself asks for."""
        self.fiber: Fiber | None = None
        self.error: Exception | None = None
        """Why it could not be mounted at all."""

    def __repr__(self) -> str:
        return f"<Entry {self.id} ({self.row.name})>"

    def walk(self) -> "Iterator[Entry]":
        """The entry and everything inside it."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def extra_inject(self) -> list[str]:
        """Services that only the row asks for. A map's values are no intercepts."""
        return [name for name in self.row.get("inject") or () if name not in self.injected]

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

    def mount(self, ctx: Context, realm_of: Callable[[str, str | None], Realm]) -> None:
        """Make the row a fiber under `ctx`, in its own realms and with its own intercepts."""
        for service, label in (self.row.get("isolate") or {}).items():
            ctx = ctx.isolate(service, realm_of(service, None if label is True else label))
        for service, layer in (self.row.get("intercept") or {}).items():
            ctx = ctx.intercept(service, layer)
        config = None if self.row.carries_rows else self.row.config
        try:
            self.fiber = ctx.plugin(self.plugin, config, name=self.row.name, inject=self.extra_inject)
        except Exception as error:
            self.error = error
            return
        self.fiber.entry = self

    def report(self) -> RowReport | None:
        """What is wrong with an enabled row, or None when it is active."""
        error: BaseException | None = self.error
        if error is None and self.fiber is None:
            around = self.parent.id if self.parent is not None else "the tree"
            detail = f"not mounted, since {around} is not active"
            return RowReport(self.id, self.row.name, detail, waits_for=(around,))
        if self.fiber is not None:
            if self.fiber.state is FiberState.ACTIVE:
                return None
            error = self.fiber.error
        if error is not None:
            return RowReport(self.id, self.row.name, self._failure(error), error)
        assert self.fiber is not None
        missing = tuple(self.fiber.missing) if self.fiber.state is FiberState.PENDING else ()
        return RowReport(self.id, self.row.name, _standing(self.fiber, missing), waits_for=missing)

    def _failure(self, error: BaseException) -> str:
        """The error in one line; one about the config begins with the place where that is written."""
        text = with_hint(error)
        if not isinstance(error, ValidationError):
            return text
        mark, value = find(self.row, "config", *filter(None, error.path.split(".")))
        if isinstance(value, Map) and error.unknown in value:
            mark = value.key_at(error.unknown)
        source = f", which comes from {value.shown}" if isinstance(value, Expr) else ""
        return f"{mark}: {text}{source}"


def with_hint(error: BaseException) -> str:
    """One line for an error: what it says and, in parentheses, what to do."""
    text = described(error)
    return f"{text} ({error.hint})" if isinstance(error, DshError) and error.hint else text


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
