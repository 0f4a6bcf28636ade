"""One mounting of one plugin: its state, the services it waits for, the effects it owns.

A fiber's readiness is a function of the services it injects. Each provided service has a generation;
the tuple of the generations a fiber was loaded with is its epoch. A changed epoch always means unload,
then load (`spec/kernel.md` §5).
"""

import asyncio
import enum
import inspect
import logging
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from dsh.errors import KernelError
from dsh.kernel.effect import Effect
from dsh.kernel.foreign import contained
from dsh.kernel.key import Event
from dsh.kernel.plugin import Runtime
from dsh.kernel.root import Impl, Kernel, Realm
from dsh.kernel.schema import resolve_config

if TYPE_CHECKING:
    from dsh.kernel.context import Context

SLOW_DISPOSER_S = 10.0
"""How long one disposer may take before a warning names it. It is never cut off here."""


class FiberState(enum.IntEnum):
    """Numeric values as in `spec/kernel.md` §5.2; they show in diagnostics."""

    PENDING = 0
    LOADING = 1
    ACTIVE = 2
    FAILED = 3
    DISPOSED = 4
    UNLOADING = 5


class StatusChange(NamedTuple):
    """Payload of `internal/status`."""

    fiber: "Fiber"
    old_state: FiberState


class ConfigRequest(NamedTuple):
    """Payload of `internal/config`: listeners may replace the raw config before it is validated."""

    fiber: "Fiber"
    raw: Any


FIBER_CREATED: Event["Fiber", None] = Event("internal/plugin", "emit")
FIBER_STATUS: Event[StatusChange, None] = Event("internal/status", "emit", contained=True)
FIBER_CONFIG: Event[ConfigRequest, Any] = Event("internal/config", "waterfall")

INACTIVE = None
Epoch = tuple[int, ...] | None


class Fiber:
    """A running plugin instance. Created by `Context.plugin`, ended by `dispose`."""

    def __init__(
        self, kernel: Kernel, parent: "Context | None", runtime: Runtime | None, config: Any
    ) -> None:
        self.kernel = kernel
        self.parent = parent
        self.runtime = runtime
        self.uid: int | None = 0 if parent is None else next(kernel.uids)
        self.ctx: Context
        self.inject: dict[str, Any] = dict(runtime.inject) if runtime else {}
        self.raw_config = config
        self.config: Any = None
        self.state = FiberState.ACTIVE if parent is None else FiberState.PENDING
        self.error: Exception | None = None
        self.store: dict[str, Impl] | None = {} if parent is None else None
        self.entry: Any = None
        """Set by the loader on the fiber of a row."""
        self.held = ""
        """Why an edit of the composition must not restart this fiber, in the words of a message; or empty."""
        self.mount: Effect | None = None
        """The effect that stands for this fiber in its parent."""
        self._candidates: dict[str, Impl] = {}
        self._epoch: Epoch = () if parent is None else INACTIVE
        self._effects: dict[Effect, None] = {}
        self._transition: asyncio.Task[None] | None = None
        self._body: asyncio.Task[None] | None = None
        self._teardown: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Fiber {self.uid} {self.name} {self.state.name}>"

    def __await__(self) -> Generator[Any, None, "Fiber"]:
        return self.wait().__await__()

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
    def logger(self) -> logging.Logger:
        """Below `dsh`; a file's name is one step, for dots in a row would lose the way to the parent."""
        return logging.getLogger(f"dsh.{self.name.replace('.', '-')}")

    @property
    def is_active(self) -> bool:
        return self.state is FiberState.ACTIVE

    @property
    def accepts_effects(self) -> bool:
        return self.uid is not None and self.state is not FiberState.UNLOADING

    def realm_of(self, name: str) -> Realm:
        """The address a service name has for this fiber."""
        return self.ctx.realm_of(name)

    @property
    def missing(self) -> list[str]:
        """Names of injected services that nobody provides yet."""
        return [name for name in self.inject if name not in self._candidates]

    @property
    def effects(self) -> list[Effect]:
        """What the fiber holds, in the order of registration; each effect shows its children."""
        return list(self._effects)

    # -- effects ---------------------------------------------------------------------------------

    def admit(self) -> None:
        """Refuse what a dead or dying fiber may no longer do.

        Raises:
            KernelError: code INACTIVE_EFFECT.
        """
        if not self.accepts_effects:
            raise KernelError(
                f"cannot create effect on inactive context ({self.name})", code="INACTIVE_EFFECT"
            )

    def own(self, label: str, *, is_provider: bool = False) -> Effect:
        """A new effect in the fiber's list; whoever asked runs or fills it."""
        self.admit()
        effect = Effect(self, label, is_provider=is_provider)
        self._effects[effect] = None
        return effect

    def release(self, effect: Effect) -> None:
        self._effects.pop(effect, None)

    def keep(self, coro: Coroutine[Any, Any, Any], label: str) -> "asyncio.Task[Any]":
        """Start a task on the kernel's account; whoever starts it sees to its failure."""
        return self.kernel.keep(coro, label)

    async def _run_disposers(self) -> None:
        """Last in first out, one after the other; what the fiber provides goes first."""
        effects = list(reversed(self._effects))
        for effect in [e for e in effects if e.is_provider] + [e for e in effects if not e.is_provider]:
            slow = asyncio.get_running_loop().call_later(
                SLOW_DISPOSER_S, self.logger.warning, "still disposing %s of %s", effect.label, self.name
            )
            try:
                await effect()
            except BaseException as raised:
                error = contained(raised, f"disposing {effect.label}")
                self.logger.error("disposing %s failed: %s", effect.label, error, exc_info=error)
            finally:
                slow.cancel()

    # -- readiness -------------------------------------------------------------------------------

    def evaluate(self, name: str) -> None:
        """Look again whether an injected service is available to this fiber."""
        impl = self.kernel.impls.get(self.realm_of(name))
        if impl is not None and impl.available_to(self.ctx):
            self._candidates[name] = impl
        else:
            self._candidates.pop(name, None)

    def refresh(self) -> None:
        """Compute the epoch anew and start the transition that follows from it, if any."""
        epoch: Epoch = INACTIVE
        if self.uid is not None and not self.missing:
            epoch = tuple(self._candidates[name].generation for name in self.inject)
        self._set_epoch(epoch)

    def _set_epoch(self, new: Epoch) -> None:
        old, self._epoch = self._epoch, new
        if new == old or self._transition is not None:
            return
        self._start(FiberState.LOADING if old is INACTIVE else FiberState.UNLOADING)

    def _start(self, state: FiberState) -> None:
        work = self._load() if state is FiberState.LOADING else self._unload()
        self._transition = self.kernel.keep(work, f"{state.name.lower()} {self.name}")
        self._announce(state)

    def _settle(self) -> None:
        self._transition = None
        if self.uid is None:
            state = FiberState.DISPOSED
        elif self.error is not None:
            state = FiberState.FAILED
        else:
            state = FiberState.ACTIVE if self._epoch is not INACTIVE else FiberState.PENDING
        self._announce(state)

    def _announce(self, state: FiberState) -> None:
        old, self.state = self.state, state
        if old is state:
            return
        self.ctx.emit(FIBER_STATUS, StatusChange(self, old))
        if FiberState.ACTIVE in (old, state):
            provided = [i for i in (self.store or {}).values() if i.fiber is self]
            self.kernel.touch([(impl.name, impl.realm) for impl in provided])

    async def _load(self) -> None:
        self.store = dict(self._candidates)
        seen = self._epoch
        self.error = None
        try:
            await asyncio.sleep(0)
            if self._epoch == seen:
                self._resolve()
                self._body = asyncio.ensure_future(self._run_body())
                await self._body
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
        except Exception as error:
            self.error = error
            if self._epoch == seen:
                self._epoch = INACTIVE
            self.logger.debug("loading %s failed", self.name, exc_info=error)
        finally:
            self._body = None
        if self._epoch == seen:
            self._settle()
        else:
            self._start(FiberState.UNLOADING)

    def _resolve(self) -> None:
        raw = self.raw_config
        raw = self.ctx.waterfall(FIBER_CONFIG, ConfigRequest(self, raw), lambda: raw)
        schema = self.runtime.schema if self.runtime else None
        self.config = resolve_config(schema, raw) if schema is not None else raw

    async def _run_body(self) -> None:
        assert self.runtime is not None
        body = self.runtime.body
        effect = self.own("body")
        takes_config = len(inspect.signature(body).parameters) > 1
        try:
            await effect.run_inline(lambda: body(self.ctx, self.config) if takes_config else body(self.ctx))
        except BaseException as error:
            raise contained(error, f"plugin {self.name}")  # noqa: B904 -- the same one, or made of it

    async def _unload(self) -> None:
        await self._run_disposers()
        self.store = None
        if self._epoch is INACTIVE:
            self._settle()
        else:
            self._start(FiberState.LOADING)

    # -- what others do with a fiber -------------------------------------------------------------

    async def quiet(self) -> None:
        """Wait until no transition runs; never raises for the fiber's own failure."""
        while (transition := self._transition) is not None and transition is not asyncio.current_task():
            await asyncio.wait((transition,))

    async def wait(self) -> "Fiber":
        """Wait for the running transition, then raise what made the fiber fail, if anything did.

        A pending fiber has no transition: the call returns at once.
        """
        await self.quiet()
        if self.error is not None:
            raise self.error
        return self

    async def restart(self) -> None:
        """Unload and load again."""
        self.admit()
        self.error = None
        self._set_epoch(INACTIVE)
        self.refresh()
        await self.wait()

    async def update(self, config: Any) -> None:
        """Take another config. An active fiber validates it first, then restarts with it.

        Raises:
            ValidationError: the config does not fit; the fiber runs on with the old one.
        """
        self.admit()
        if self.state is FiberState.ACTIVE and self.runtime and self.runtime.schema is not None:
            raw = self.ctx.waterfall(FIBER_CONFIG, ConfigRequest(self, config), lambda: config)
            resolve_config(self.runtime.schema, raw)
        self.raw_config = config
        await self.restart()

    async def dispose(self) -> None:
        """Undo everything the fiber did. Every caller waits for the same teardown."""
        if self._teardown is None:
            if self.parent is None:
                await self._run_disposers()
                return
            self.uid = None
            self._epoch = INACTIVE
            for name in self.inject:
                self.kernel.injectors.get(name, {}).pop(self, None)
            self._leave_runtime()
            if self._body is not None:
                self._body.cancel()
            self._teardown = self.kernel.keep(self._tear_down(), f"dispose {self.name}")
        if asyncio.current_task() not in (self._teardown, self._transition):
            await asyncio.shield(self._teardown)

    async def _tear_down(self) -> None:
        await self.quiet()
        if self.state is not FiberState.DISPOSED:
            self._start(FiberState.UNLOADING)
            await self.quiet()
        if self.mount is not None:
            self.mount.release()

    def _leave_runtime(self) -> None:
        runtime = self.runtime
        if runtime is not None:
            runtime.fibers.pop(self, None)
            if not runtime.fibers:
                self.kernel.runtimes.pop(runtime.identity, None)

    def tree(self) -> dict[str, Any]:
        """What the fiber holds, for diagnostics: name, state, and the labels of its effects as a tree."""

        def of(effect: Effect) -> dict[str, Any]:
            return {"label": effect.label, "children": [of(child) for child in effect.children]}

        return {"name": self.name, "state": self.state.name, "effects": [of(e) for e in self._effects]}
