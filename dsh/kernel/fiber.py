"""One mounting of one plugin: its state, the services it waits for, the effects it owns.

How it gets from state to state is in `dsh.kernel.transition`; here is what others do with it: wait, restart,
update, dispose (`spec/kernel.md` §5).
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from dsh.errors import KernelError
from dsh.kernel.effect import Effect
from dsh.kernel.event import Place, chain
from dsh.kernel.internal import FIBER_CREATED, FIBER_UPDATE, UpdateRequest
from dsh.kernel.journal import FiberLogger, Journal
from dsh.kernel.plugin import Runtime
from dsh.kernel.root import Kernel
from dsh.kernel.transition import INACTIVE, Machine, current, waiting
from dsh.kernel.transition import FiberState as FiberState
from dsh.kernel.tree import FiberTree, tree_of

if TYPE_CHECKING:
    from dsh.kernel.context import Context


class Fiber(Machine):
    """A running plugin instance. Created by `Context.plugin`, ended by `dispose`."""

    def __init__(
        self, kernel: Kernel, parent: "Context | None", runtime: Runtime | None, config: Any
    ) -> None:
        super().__init__(kernel, runtime, config, is_root=parent is None)
        self.parent = parent
        self.children: dict[Fiber, None] = {}
        """What is mounted under it, in the order of mounting."""
        self.entry: Any = None
        """Set by the loader on the fiber of a row."""
        self._holds: dict[object, str] = {}
        self.mount: Effect | None = None
        """The effect that stands for this fiber in its parent."""
        self.is_closed = False
        """Of a root: it was disposed, or is being disposed, and nothing has been registered since."""
        self._teardown: asyncio.Task[None] | None = None
        self._loggers: dict[str, FiberLogger] = {}

    def __repr__(self) -> str:
        return f"<Fiber {self.uid} {self.name} {self.state.name}>"

    def __await__(self) -> Generator[Any, None, "Fiber"]:
        return self.wait().__await__()

    # -- what it is ------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The plugin's name, or the nearest named ancestor's, or `root`."""
        fiber: Fiber | None = self
        while fiber is not None:
            if fiber.runtime is not None and fiber.runtime.name:
                return fiber.runtime.name
            fiber = fiber.parent.fiber if fiber.parent is not None else None
        return "root"

    @property
    def row_chain(self) -> str:
        """What messages call it: the plugins up to its row, then the rows around that one.

        `tools:shell (bash-local) in tools (cordis:include)`, the innermost first; `root` for a root.
        """
        words = []
        fiber: Fiber | None = self
        is_in_row = False
        while fiber is not None and fiber.parent is not None:
            if row := getattr(fiber.entry, "id", ""):
                words.append(f"{row} ({fiber.name})")
                is_in_row = True
            elif not is_in_row:
                words.append(fiber.name)
            fiber = fiber.parent.fiber
        return " in ".join(words) or "root"

    @property
    def journal(self) -> Journal:
        """What the whole tree has logged last."""
        return self.kernel.journal

    @property
    def logger(self) -> logging.Logger:
        """Below `dsh`, under the name that an intercept of `logger` says, or the fiber's."""
        return self.logger_named(self.name)

    def logger_named(self, name: str) -> logging.Logger:
        """A logger below `dsh`: one step, for dots in a row would lose the way to the parent."""
        if name not in self._loggers:
            self._loggers[name] = FiberLogger(name, self)
        return self._loggers[name]

    @property
    def accepts_effects(self) -> bool:
        """Whether anything may be registered: not when it is being undone or is over."""
        return self.uid is not None and self.state is not FiberState.UNLOADING and not self.kernel.is_closing

    def own(self, label: str, *, is_provider: bool = False) -> Effect:
        effect = super().own(label, is_provider=is_provider)
        self.is_closed = False
        return effect

    def tree(self) -> FiberTree:
        """What the fiber and all below it are and hold, for diagnostics."""
        return tree_of(self)

    @property
    def held(self) -> str:
        """Why no edit of the composition may restart this fiber: the first reason that stands, or empty."""
        return next(iter(self._holds.values()), "")

    # -- what others do with a fiber -------------------------------------------------------------

    def hold(self, why: str) -> Callable[[], None]:
        """Keep edits of the composition from restarting this fiber until the answer is called.

        Each holder has a reason of its own; the fiber is held as long as one of them stands. Code is not
        bound by it: `restart` and `dispose` work as ever.

        Args:
            why: what goes on, as the end of a message: "tool bash is running".

        Raises:
            KernelError: there is no reason.
        """
        if not why:
            raise KernelError("a fiber is held for a reason, found an empty text")
        key = object()
        self._holds[key] = why

        def undo() -> None:
            self._holds.pop(key, None)

        return undo

    async def wait(self) -> "Fiber":
        """Wait for the running transition, then raise what made the fiber fail, if anything did.

        A pending fiber has no transition: the call returns at once.
        """
        await self.quiet()
        if self.error is not None:
            raise self.error
        return self

    async def restart(self) -> None:
        """Unload and load again.

        Raises:
            KernelError: the fiber is disposed (code INACTIVE_EFFECT), or a root's.
            Exception: what made the load fail.
        """
        self._renew()
        await self.wait()

    def _renew(self) -> None:
        """Forget an earlier failure, and let the epoch differ from the one that is loaded."""
        self._require_live()
        self.error = None
        self._revision += 1
        self.refresh()
        if self._transition is None:
            self._settle()

    def _require_live(self) -> None:
        if self.parent is None:
            raise KernelError("a root has no body to restart")
        if self.uid is None:
            raise KernelError(f"{self.name} is disposed", code="INACTIVE_EFFECT")

    async def update(self, config: Any, *, no_save: bool = False) -> Any:
        """Take another config; see `FIBER_UPDATE`. Answers what the chain does; its built-in end gives None.

        An active fiber validates it first and, unless a listener applies it in place, restarts with it.
        Any other takes it for its next load, which begins at once where it can; the call does not wait.

        Args:
            no_save: a hint for listeners that write changes back to a file.

        Raises:
            ValidationError: the config does not fit; the fiber runs on with the old one.
            KernelError: the fiber is disposed (code INACTIVE_EFFECT), or a root's.
            Exception: what a listener raised, or the failure of the restart.
        """
        self._require_live()
        was_active = self.state is FiberState.ACTIVE
        resolved = self._resolved(config) if was_active else None
        is_restarted = False

        def restart() -> Any:
            nonlocal is_restarted
            is_restarted = True
            self.raw_config = config
            self._renew()
            if not was_active:
                return None
            self.config, self._config_epoch = resolved, self._epoch
            return self.kernel.keep(self._restarted(), f"update {self.name}")

        events = self.kernel.events
        hooks = sorted(
            events.select(events.check(FIBER_UPDATE, "waterfall"), _Own(self)),
            key=lambda hook: 1 if not hook.is_global else 0 if hook.is_first else 2,
        )
        answer = chain(FIBER_UPDATE.name, hooks, UpdateRequest(self, config, resolved, no_save), restart)
        if inspect.isawaitable(answer):
            answer = await answer
        if not is_restarted:
            self.raw_config = config
            if was_active:
                self.config = resolved
        return answer

    async def _restarted(self) -> None:
        await self.wait()

    async def dispose(self) -> None:
        """Undo everything the fiber did. Every caller waits for the same teardown.

        A root undoes everything and can be used again. Code that is itself being undone does not wait.
        """
        if self._teardown is None:
            work = self._empty_root if self.parent is None else self._tear_down
            self._teardown = self.kernel.keep(self.marked(work), f"dispose {self.name}")
            if self.parent is None:
                self.is_closed = self.kernel.is_closing = True
            else:
                self._retire()
        waiter = current()
        if waiter is None or not self.leads_to(waiter):
            with waiting(waiter, self):
                await asyncio.shield(self._teardown)

    async def _empty_root(self) -> None:
        try:
            await self.run_disposers()
        finally:
            self.kernel.is_closing, self._teardown = False, None

    def _retire(self) -> None:
        """From here on the fiber is nobody's plugin any more; what it holds is still to be undone."""
        self.uid = None
        self._epoch = INACTIVE
        for name in self.inject:
            self.kernel.unwatch(name, self)
        if self.runtime is not None:
            self.runtime.fibers.pop(self, None)
            if not self.runtime.fibers:
                self.kernel.runtimes.pop(self.runtime.identity, None)
        self._cut_body()
        self.kernel.announce(FIBER_CREATED, self)

    async def _tear_down(self) -> None:
        await self._rest()
        if self.state is not FiberState.DISPOSED:
            self._start(FiberState.UNLOADING)
            await self._rest()
        assert self.parent is not None
        assert self.mount is not None
        self.parent.fiber.children.pop(self, None)
        self.mount.release()


class _Own:
    """The subject of `internal/update`: a fiber's own listeners, and the global ones."""

    def __init__(self, fiber: Fiber) -> None:
        self._fiber = fiber

    def admits(self, place: Place) -> bool:
        return getattr(place, "fiber", None) is self._fiber


def require_declared(fiber: Fiber, name: str) -> None:
    """Refuse to provide a service that the plugin of the row does not say it provides.

    What a plugin mounts itself belongs to it. A plugin that declares nothing may provide anything.

    Raises:
        KernelError: the nearest plugin with a declaration, up to the row's own, leaves the name out.
    """
    at: Fiber | None = fiber
    while at is not None:
        provides = at.runtime.provides if at.runtime is not None else None
        if provides is not None:
            if name not in provides:
                said = ", ".join(provides) or "nothing"
                raise KernelError(
                    f'plugin {at.name} provides "{name}" but declares: {said}',
                    hint=f'add "{name}" to its `provide` list',
                )
            return
        at = at.parent.fiber if at.entry is None and at.parent is not None else None
