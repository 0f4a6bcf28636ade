"""Turns the mounted tree into another one: all of it, or back to what was there.

Removed and replaced rows stop first, users before providers; then realms are changed, new rows start and
changed configs are taken, all at once; then the tree is judged. When anything fails, the same is done in
reverse. Rows that say the same as before keep their fiber (`spec/composition.md` §8).
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from dsh.composition.mount.audit import RowReport, not_loaded
from dsh.composition.mount.changes import Changes, Pair
from dsh.composition.mount.entry import Entry
from dsh.composition.mount.event import PARTIAL_DISPOSE, PartialDispose
from dsh.composition.mount.graph import Graph
from dsh.composition.mount.wording import described
from dsh.errors import CompositionError, KernelError
from dsh.kernel import Context

Stage = Literal["import", "dispose", "apply", "rollback"]


class StageError(CompositionError):
    """A row could not be brought to where an edit wants it; `stage` says at which step."""

    def __init__(self, stage: Stage, entry: Entry | RowReport, detail: str) -> None:
        self.stage: Stage = stage
        name = entry.row.name if isinstance(entry, Entry) else entry.name
        text = f"failed to {stage} loader entry {entry.id} ({name}): {detail}"
        around = entry.parent if isinstance(entry, Entry) else None
        while around is not None:
            text = f"failed to apply loader entry {around.id} ({around.row.name}): {text}"
            around = around.parent
        super().__init__(text)


class Refused(CompositionError):
    """An edit would restart what must not be restarted now. Nothing was touched."""


class Mounted(Protocol):
    """The tree that is changed: what the loader offers."""

    roots: list[Entry]
    owner_ctx: Context

    def misfit(self, entry: Entry) -> RowReport | None:
        """What is wrong with a config, as far as it can be said before the row runs."""

    def mount(self, entry: Entry) -> None:
        """Start a row, unless it runs, is off, or what is around it will start it."""

    def rebind(self, entry: Entry) -> None:
        """Give a mounted row the realms and intercepts its row asks for now.

        Raises:
            KernelError: somebody else provides a service at such an address; nothing has changed.
        """

    def park(self, entry: Entry) -> None:
        """Move what a mounted row provides out of the way."""

    def working(self) -> AbstractContextManager[None]:
        """Rows that wait for a settled tree wait as long as this lasts."""

    async def rest(self, bound_s: float) -> None:
        """Wait until no fiber moves.

        Raises:
            BootError: rows that the tree cannot stand without still move.
        """


class Transaction:
    """One edit of the mounted tree. Run `check` first: it touches nothing."""

    def __init__(self, tree: Mounted, roots: list[Entry], *, bound_s: float) -> None:
        """
        Args:
            roots: the tree as it should be (`dsh.composition.mount.plan.Plan`).
            bound_s: how long stopping one row, and starting all, may take.
        """
        self._tree, self._old, self._new, self._bound_s = tree, tree.roots, roots, bound_s
        self.changes = Changes(self._old, roots)
        self._was_active = [entry for entry in _walk(self._old) if entry.is_active]
        self._was_down = {
            entry: entry.fiber.state
            for entry in _walk(self._old)
            if entry.fiber is not None and entry.is_live and not entry.is_active
        }
        """Rows that stood there without running: optional ones, or broken by an earlier edit."""

    def check(self) -> None:
        """Refuse configs that do not fit, and what would restart a fiber that is held.

        Raises:
            BootError: configs that can be judged without running anything do not fit their schema.
            Refused: names the row of the edit and why what it would restart is held.
        """
        changed = [*self.changes.started, *(new for _, new in self.changes.updated)]
        reports = [report for entry in changed if (report := self._tree.misfit(entry)) is not None]
        if reports:
            raise not_loaded(reports)
        graph = Graph(self._tree.owner_ctx.kernel)
        for entry in self.changes.disturbed:
            for fiber in graph.restarted_with(graph.own(entry)):
                if fiber.held:
                    raise Refused(f"{entry.id} ({entry.row.name}) cannot change now: {fiber.held}")

    async def run(self, judge: Callable[[], None]) -> None:
        """Apply the changes; `judge` raises what is wrong with the result.

        Raises:
            Exception: it failed, and the tree is as before.
            StageError: with stage `rollback`: it failed, and so did putting the old rows back; `is_broken`
                marks those that are down.
        """
        _hand_over(self.changes.kept)
        self._tree.roots = self._new
        try:
            await self._stop(self.changes.stopped)
            await self._go(self._new, self.changes.updated, self.changes.rebound)
            await self._retry([new for old, new in self.changes.kept if old in self._was_down])
            judge()
        except Exception as error:
            if not self._tree.owner_ctx.closed:  # else all of it is going down anyway
                await self._roll_back(error)
            raise
        going = {new for _, new in self.changes.kept} | set(self.changes.started)
        names = {entry.id for entry in going}
        for entry in self.changes.stopped:
            self._tree.owner_ctx.emit(
                PARTIAL_DISPOSE, PartialDispose(entry, entry.row, still_active=entry.id in names)
            )

    async def _roll_back(self, cause: Exception) -> None:
        kept = [(new, old) for old, new in self.changes.kept]
        problems = []
        try:
            candidates = {new for new, _ in kept}
            await self._stop([e for e in _walk(self._new) if e.is_live and e not in candidates])
        except StageError as error:
            problems.append(error.message)
        _hand_over(kept)
        self._tree.roots = self._old
        try:
            undone = [(new, old) for old, new in self.changes.updated]
            late = [e for e, state in self._was_down.items() if e.fiber and e.fiber.state is not state]
            await self._stop(late)  # or they would keep what belongs to rows that did run
            await self._go(self._old, undone, [(new, old) for old, new in self.changes.rebound], late)
            await self._go(late, [], [])
        except Exception as error:
            problems.append(described(error))
        broken = [entry for entry in self._was_active if not entry.is_active]
        if not broken:
            return
        for entry in broken:
            entry.is_broken = True
            problems.append(str(entry.report()))
        detail = f"{'; '.join(problems)}; this was to be undone: {described(cause)}"
        raise StageError("rollback", broken[0], detail) from cause

    async def _retry(self, entries: list[Entry]) -> None:
        """Give rows that had failed before the edit another chance: what stood in their way may be gone."""
        failed = [entry for entry in entries if entry.fiber is not None and entry.fiber.error is not None]
        await self._stop(failed)
        await self._go(failed, [], [])

    async def _stop(self, entries: list[Entry]) -> None:
        for entry in Graph(self._tree.owner_ctx.kernel).stop_order(entries):
            if entry.fiber is None:
                continue
            entry.is_stopping = True
            if entry.is_logged:
                self._tree.owner_ctx.logger.info("stopping %s (%s)", entry.id, entry.row.name)
            ending = asyncio.ensure_future(entry.fiber.dispose())
            done, _ = await asyncio.wait((ending,), timeout=self._bound_s)
            if not done:
                raise StageError("dispose", entry, f"it has not ended after {self._bound_s:g} s")
            if (error := ending.exception()) is not None:
                raise StageError("dispose", entry, described(error)) from error

    async def _go(
        self, roots: list[Entry], updated: list[Pair], rebound: list[Pair], later: Collection[Entry] = ()
    ) -> None:
        """Bring the fibers of a tree to what its rows say, and wait until all have come to rest."""
        with self._tree.working():
            self._rebind([entry for _, entry in rebound])
            for entry in _walk(roots):
                if entry not in later:
                    self._tree.mount(entry)
            updates = {asyncio.ensure_future(_update(entry)): entry for _, entry in updated}
            try:
                await asyncio.sleep(0)
                await self._tree.rest(self._bound_s)
                if updates:  # rows that take their config in place do not move
                    await asyncio.wait(updates, timeout=self._bound_s)
            finally:
                late = [entry for task, entry in updates.items() if task.cancel()]
            for entry in late:
                entry.error = CompositionError(f"has not taken its config after {self._bound_s:g} s")
        await self._tree.rest(self._bound_s)

    def _rebind(self, entries: list[Entry]) -> None:
        """Move rows to other addresses, in an order in which each is free; in a circle one steps aside."""
        waiting, has_parked = entries, False
        reason = KernelError("")
        while waiting:
            blocked: list[Entry] = []
            for entry in waiting:
                try:
                    self._tree.rebind(entry)
                except KernelError as error:
                    reason = error
                    blocked.append(entry)
            if len(blocked) == len(waiting):
                if has_parked:
                    raise StageError("apply", blocked[0], described(reason)) from reason
                has_parked = True
                for entry in blocked:
                    self._tree.park(entry)
            waiting = blocked


def _walk(roots: list[Entry]) -> Iterator[Entry]:
    for root in roots:
        yield from root.walk()


def _hand_over(pairs: list[Pair]) -> None:
    """Let the fibers of the first entries belong to the second ones."""
    for giver, taker in pairs:
        taker.fiber, taker.ctx, taker.error = giver.fiber, giver.ctx, giver.error
        taker.is_given_up = giver.is_given_up
        if taker.fiber is not None:
            taker.fiber.entry = taker


async def _update(entry: Entry) -> None:
    """Give a running row the config its row says, unless it was mounted with that already."""
    fiber, entry.error = entry.fiber, None
    if fiber is None or fiber.uid is None or fiber.raw_config is entry.row.config:
        return
    try:
        await fiber.update(entry.row.config, no_save=True)
    except Exception as error:
        entry.error = error
