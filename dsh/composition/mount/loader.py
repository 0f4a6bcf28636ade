"""Mounts the rows of a composition on the kernel and changes them while they run.

First everything that can be judged without running a plugin's body: ids, `disabled`, imports, the services
that expressions read (`plan.py`). Only when all of it holds are the rows mounted, all at once. An edit does
the same and then changes what is different (`transaction.py`).
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from dsh.composition.compose import Composition
from dsh.composition.expression.language import find_expressions
from dsh.composition.mount.audit import BootError, not_active
from dsh.composition.mount.entry import Entry
from dsh.composition.mount.event import CONFIG_UPDATE
from dsh.composition.mount.facts import Facts as Facts
from dsh.composition.mount.tree import MountedTree
from dsh.composition.mount.wording import with_hint
from dsh.composition.profile import open_site
from dsh.composition.value import Seq
from dsh.errors import CompositionError
from dsh.kernel import FIBER_STATUS, Context, Fiber, FiberState, ServiceKey
from dsh.kernel.internal import FIBER_UPDATE, StatusChange, UpdateRequest
from dsh.kernel.schema import ValidationError, simplify

if TYPE_CHECKING:
    from dsh.composition.mount.overlay import Step

SLOW_S = 10.0
"""How long the rows may take to start before a warning names those that have not."""
START_S = 60.0
"""How long they may take at all."""
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


class Loader(MountedTree):
    """Service `loader`. Provided by constructing it on the root context; holds the mounted rows."""

    provide: ClassVar[ServiceKey[Any]] = LOADER

    def __init__(self, ctx: Context, facts: Facts) -> None:
        super().__init__(ctx, facts)
        self.slow_s, self.bound_s = SLOW_S, START_S
        self.steps: list[Step] = []
        """What was changed in the rows from code, since the start."""
        self._turn = asyncio.Lock()
        self._is_judged = False
        """The start is over: what fails from now on, outside of edits, nobody else tells."""
        ctx.on(FIBER_UPDATE, self._updated, prepend=True, global_=True)
        ctx.on(FIBER_STATUS, self._moved, global_=True)

    # -- the start -------------------------------------------------------------------------------

    async def load(self, composition: Composition) -> None:
        """Resolve, import and check every enabled row, mount all, and wait until nothing moves.

        All rows start at once; each is loaded when its services are there. Failing bodies and rows
        that wait are no error here: ask `audit`.

        Raises:
            BootError: a row cannot be imported or is wrong, and nothing was mounted; or rows are still
                starting when the time is over.
        """
        open_site(self._facts.home, self._facts.profile)
        self.roots = self._planned(composition.rows)
        self.composition = composition
        self._trunk = self.owner_ctx.plugin(self._mount_roots, name="include")
        slow = asyncio.get_running_loop().call_later(self.slow_s, self._tell_slow)
        try:
            with self.working():
                await self.rest(self.bound_s)
            await self.rest(self.bound_s)
        finally:
            slow.cancel()

    def _tell_slow(self) -> None:
        names = ", ".join(f"{entry.id} ({entry.row.name})" for entry in self.entries if entry.is_moving)
        self.owner_ctx.logger.warning("still starting after %g s: %s", self.slow_s, names)

    def require_active(self) -> None:
        """The same; from here on a failure is told when it happens."""
        super().require_active()
        self._is_judged = True

    async def await_(self) -> None:
        """Wait until the tree has settled. Rows that wait for a service are no failure.

        Raises:
            Exception: why a row failed; a group of them where several did.
        """
        await self.settled()
        errors = [e.fiber.error for e in self.entries if e.fiber is not None and e.fiber.error is not None]
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup("loader fibers failed", errors)

    # -- edits -----------------------------------------------------------------------------------

    async def reload(
        self, composition: Composition, *, stale: frozenset[Path] = frozenset()
    ) -> tuple[str, ...]:
        """Bring the mounted tree to another composition, or leave it as it is; answers the ids that changed.

        Judged like a start: every enabled row that is not optional must be active afterwards. What was
        changed from code stays, as long as the files say the same of its row.

        Args:
            stale: files of includes that are read anew.

        Raises:
            CompositionError: it was not applied, and why. `Refused` where a row is held.
        """
        async with self._turn:
            known = set(self._failed_inside().values())
            return await self._edit(composition, self.steps, stale=stale, judge=lambda: self._judge(known))

    async def _edit(
        self,
        composition: Composition,
        steps: Sequence["Step"],
        *,
        judge: Callable[[], None],
        stale: frozenset[Path] = frozenset(),
        documents: Mapping[str, Seq] | None = None,
    ) -> tuple[str, ...]:
        from dsh.composition.mount.overlay import over
        from dsh.composition.mount.transaction import Transaction

        rows = over(steps, composition.rows)
        edit = Transaction(self, self._planned(rows, stale, documents), bound_s=self.bound_s)
        edit.check()
        before, kept = set(map(str, self.audit())), self.steps
        self.steps = list(steps)  # and what the rows become by themselves meanwhile
        try:
            await edit.run(judge)
        except BaseException:
            self.steps = kept
            raise
        self.composition = composition
        for entry in self.entries:
            if entry.included is not None and (writer := self._writers.get(entry.included.path)) is not None:
                writer.entry = entry
        self._forget_realms()
        for report in self.audit():
            if str(report) not in before:
                self.owner_ctx.logger.warning("%s%s", "optional row " if report.is_optional else "", report)
        if edit.changes.ids:
            self.owner_ctx.emit(CONFIG_UPDATE, edit.changes.ids)
        return edit.changes.ids

    def _judge(self, known: set[Fiber]) -> None:
        """The audit of an edit: what had failed inside a row before does not count again."""
        reports = self.audit(known)
        if any(not report.is_optional for report in reports):
            raise not_active(reports)
        if self.require_more is not None:
            self.require_more()

    # -- rows from code --------------------------------------------------------------------------

    async def create(
        self, options: Mapping[str, Any], parent: str | None = None, position: int | None = None
    ) -> str:
        """Add a row to the mounted tree and start it; answers its id.

        Args:
            options: the fields of the row; JSON data. Without an id it is given one.
            parent: the id of a group or include; the top of the tree by default.
            position: in the list of rows there; the end by default. It has no meaning for the load.

        Raises:
            CompositionError: it cannot be mounted, or its start fails (`StageError`); nothing has changed.
        """
        from dsh.composition.mount.editing import create

        async with self._turn:
            return await create(self, options, parent, position)

    async def update(
        self,
        entry_id: str,
        options: Mapping[str, Any],
        parent: "str | Literal[False] | None" = False,
        position: int | None = None,
    ) -> None:
        """Give a row other fields, and another place where `parent` is given (None: the top of the tree).

        Raises:
            CompositionError: there is no such row, or what it is to become fails; it is as it was.
        """
        from dsh.composition.mount.editing import update

        moves = parent is not False or position is not None
        target = None if parent is False else parent
        async with self._turn:
            await update(self, entry_id, options, parent=target, position=position, moves=moves)

    async def remove(self, entry_id: str) -> None:
        """Stop a row and take it out of the tree, with everything inside it.

        Raises:
            CompositionError: there is no such row, or it is held.
        """
        from dsh.composition.mount.editing import remove

        async with self._turn:
            await remove(self, entry_id)

    async def change(
        self, steps: Sequence["Step"], documents: Mapping[str, Seq], targets: Sequence[str]
    ) -> None:
        """Bring the tree to these steps and documents of includes, or leave it as it was (`editing.py`)."""
        from dsh.composition.mount.transaction import Stage, StageError

        def judge() -> None:
            for entry in self.entries:
                report = entry.report() if entry.id in targets and not entry.is_off else None
                if report is not None and not report.waits_for:
                    raise StageError("apply", entry, report.detail)

        assert self.composition is not None
        try:
            await self._edit(self.composition, steps, judge=judge, documents=documents)
        except BootError as error:
            first = error.reports[0]
            stage: Stage = "apply" if isinstance(first.error, ValidationError) else "import"
            raise StageError(stage, first, first.detail) from first.error

    def _moved(self, change: StatusChange) -> None:
        """Listener of `internal/status`: a row that ended by itself stays switched off; a failure is told."""
        fiber = change.fiber
        if fiber.state is FiberState.FAILED and self._is_judged and not self._turn.locked():
            self._tell_failure(fiber)
        if fiber.state is not FiberState.DISPOSED or not isinstance(entry := fiber.entry, Entry):
            return
        is_own_end = entry.fiber is fiber and not entry.is_stopping
        if is_own_end and fiber.parent is not None and fiber.parent.fiber.accepts_effects:
            from dsh.composition.mount.editing import note

            entry.is_disabled = True
            note(self, entry, {"disabled": True})

    def _tell_failure(self, fiber: Fiber) -> None:
        error, entry = fiber.error, fiber.entry
        assert error is not None
        words = entry.failure(error) if isinstance(entry, Entry) else with_hint(error)
        self.owner_ctx.logger.warning("%s failed: %s", fiber.row_chain, words, exc_info=error)

    def _updated(self, request: UpdateRequest, following: Callable[[], Any]) -> Any:
        """Listener of `internal/update`: a config that a running row was given becomes the row's."""
        entry, answer = request.fiber.entry, following()
        if request.no_save or not isinstance(entry, Entry):
            return answer

        async def kept() -> Any:
            from dsh.composition.mount.editing import note

            result = await answer if inspect.isawaitable(answer) else answer
            plain = not any(find_expressions(request.raw))
            is_struct = plain and isinstance(request.config, msgspec.Struct)
            note(self, entry, {"config": simplify(request.config) if is_struct else request.raw})
            return result

        return kept()
