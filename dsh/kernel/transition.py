"""How a fiber moves from state to state: what it waits for, its load, its unload.

Each provided service has a generation; the tuple of the generations a fiber was loaded with is its epoch. A
changed epoch always means unload, then load; whatever changes during one transition is followed by one other
(`spec/kernel.md` §5.2, §5.4).
"""

import asyncio
import contextlib
import enum
import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from dsh.kernel.foreign import awaited, contained
from dsh.kernel.internal import FIBER_CONFIG, FIBER_STATUS, ConfigRequest, StatusChange
from dsh.kernel.owner import EffectOwner
from dsh.kernel.plugin import Runtime
from dsh.kernel.root import Impl, Kernel, Realm
from dsh.kernel.schema import UnknownKey, resolve_config

if TYPE_CHECKING:
    from dsh.kernel.context import Context
    from dsh.kernel.fiber import Fiber


class FiberState(enum.IntEnum):
    """Numeric values as in `spec/kernel.md` §5.2; they show in diagnostics."""

    PENDING = 0
    LOADING = 1
    ACTIVE = 2
    FAILED = 3
    DISPOSED = 4
    UNLOADING = 5


INACTIVE = None
Epoch = tuple[int, ...] | None

_inside: "ContextVar[tuple[Machine, asyncio.Task[None]] | None]" = ContextVar(
    "dsh.kernel.inside", default=None
)
"""The fiber whose transition or teardown the running code is part of, and its task."""


class Machine(EffectOwner):
    """The moving part of a fiber: its state, its epoch, and the transition that runs."""

    def __init__(self, kernel: Kernel, runtime: Runtime | None, config: Any, *, is_root: bool) -> None:
        super().__init__()
        self.kernel = kernel
        self.runtime = runtime
        self.uid: int | None = 0 if is_root else next(kernel.uids)
        self.ctx: Context
        self.inject: dict[str, Any] = dict(runtime.inject) if runtime else {}
        self.raw_config = config
        self.config: Any = None
        self.state = FiberState.ACTIVE if is_root else FiberState.PENDING
        self.error: Exception | None = None
        self.store: dict[str, Impl] | None = None
        """The injected services it was loaded with, while it is loaded."""
        self.provided: dict[Realm, Impl] = {}
        """The services it provides, by address."""
        self.on_unknown_key: UnknownKey | None = None
        """Told of keys that the schema does not know, which are then left out; None makes them an error."""
        self._candidates: dict[str, Impl] = {}
        self._revision = 0
        self._epoch: Epoch = (0,) if is_root else INACTIVE
        self._config_epoch: Epoch = INACTIVE
        """The epoch for which `config` was resolved already, if it was."""
        self._transition: asyncio.Task[None] | None = None
        self._body: asyncio.Task[None] | None = None
        self._is_cut = False
        """The body was cancelled, since what it was loaded for is out of date."""
        self._waits_for: list[Machine] = []

    @property
    def is_active(self) -> bool:
        """Whether its body has run and what it provides can be used."""
        return self.state is FiberState.ACTIVE

    def realm_of(self, name: str) -> Realm:
        """The address a service name has for this fiber."""
        return self.ctx.realm_of(name)

    def is_run_by(self, task: "asyncio.Task[Any]") -> bool:
        """Whether the task is what moves it: its body, its load or unload, its teardown."""
        return task in (self._transition, self._body)

    @property
    def missing(self) -> list[str]:
        """Names of injected services that nobody provides yet."""
        return [name for name in self.inject if name not in self._candidates]

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
        if len(self._candidates) == len(self.inject):
            epoch = (self._revision, *(self._candidates[name].generation for name in self.inject))
        self._set_epoch(epoch)

    def _set_epoch(self, new: Epoch) -> None:
        old, self._epoch = self._epoch, new
        if new == old:
            return
        if self._transition is None:
            self._start(FiberState.LOADING if old is INACTIVE else FiberState.UNLOADING)
        else:
            self._cut_body()

    def _cut_body(self) -> None:
        if self._body is not None:
            self._is_cut = True
            self._body.cancel()

    def _start(self, state: FiberState) -> None:
        epoch = self._epoch
        work = self._unload if state is FiberState.UNLOADING else lambda: self._load(epoch)
        self._transition = self.kernel.keep(self.marked(work), f"{state.name.lower()} {self.name}")
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
        self.kernel.announce(FIBER_STATUS, StatusChange(cast("Fiber", self), old))
        if FiberState.ACTIVE in (old, state):
            self.kernel.notify([(impl.name, impl.realm) for impl in self.provided.values()])

    # -- loading and unloading -------------------------------------------------------------------

    async def _load(self, seen: Epoch) -> None:
        """Run the body for this epoch, unless another has come before it could begin."""
        self.store = dict(self._candidates)
        for impl in self.store.values():
            impl.users[self] = None
        self.error, self._is_cut = None, False
        self.failures.clear()
        try:
            await asyncio.sleep(0)
            if self._epoch == seen:
                if seen != self._config_epoch:
                    self.config = self._resolved(self.raw_config)
                self._config_epoch = INACTIVE
                await self._run_body()
        except BaseException as raised:
            error = contained(raised, f"plugin {self.name}")
            if self._epoch == seen and not self._is_cut:
                self.logger.debug("loading %s failed", self.name, exc_info=error)
                self.error, self._epoch = error, INACTIVE
                _add_note(error, f"while loading {self.row_chain}")
        finally:
            self._body = None
        if self._epoch == seen and not self._is_cut:
            self._settle()
        else:
            self._start(FiberState.UNLOADING)

    def _resolved(self, raw: Any) -> Any:
        """What listeners make of a raw config, validated."""
        request = ConfigRequest(cast("Fiber", self), raw)
        raw = self.kernel.events.waterfall(FIBER_CONFIG, request, lambda: raw, None)
        assert self.runtime is not None
        schema = self.runtime.schema
        return raw if schema is None else resolve_config(schema, raw, self.on_unknown_key)

    async def _run_body(self) -> None:
        assert self.runtime is not None
        effect = self.own("body")
        answer = self.runtime.run(self.ctx, self.config)
        rest = effect.begin(answer)
        if rest is None:
            return
        self._body = asyncio.ensure_future(awaited(rest, f"plugin {self.name}"))
        try:
            await self._body
        finally:
            rest.close()  # one that was cancelled before its first step
            if inspect.iscoroutine(answer):
                answer.close()

    async def _unload(self) -> None:
        await self.run_disposers()
        for impl in (self.store or {}).values():
            impl.users.pop(self, None)
        self.store = None
        if self._epoch is INACTIVE:
            self._settle()
        else:
            self._start(FiberState.LOADING)

    async def quiet(self) -> None:
        """Wait until no transition runs; never raises for the fiber's own failure.

        Code that is itself part of the transition, a disposer for instance, does not wait for it.
        """
        await self._while_moving(lambda: True, current())

    async def released(self, impl: Impl, provider: Any) -> None:
        """Wait until this fiber no longer holds the service of that provider."""
        await self._while_moving(lambda: self in impl.users, provider)

    async def _while_moving(self, goes_on: Callable[[], bool], waiter: "Machine | None") -> None:
        """Wait for one transition after the other, unless that would close a circle of fibers that wait."""
        while (transition := self._transition) is not None and goes_on():
            if waiter is not None and self.leads_to(waiter):
                return
            with waiting(waiter, self):
                await asyncio.wait((transition,))

    async def _rest(self) -> None:
        """Wait until no transition runs: for the fiber's own teardown."""
        while (transition := self._transition) is not None:
            await asyncio.wait((transition,))

    def leads_to(self, other: "Machine") -> bool:
        """Whether this fiber is the other, or waits for it over any number of fibers."""
        ahead: list[Machine] = [self]  # never a circle: nobody waits for one who leads to him
        while ahead:
            if (fiber := ahead.pop()) is other:
                return True
            ahead += fiber._waits_for
        return False

    async def marked(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run it so that whatever it calls can tell that it is part of this fiber's moving."""
        task = asyncio.current_task()
        assert task is not None
        _inside.set((self, task))
        await work()


def current() -> Machine | None:
    """The fiber whose transition or teardown the running code is part of."""
    inside = _inside.get()
    return inside[0] if inside is not None and not inside[1].done() else None


@contextlib.contextmanager
def waiting(waiter: Machine | None, other: Machine) -> Iterator[None]:
    """Note that one fiber's moving waits for another's."""
    if waiter is None:
        yield
        return
    waiter._waits_for.append(other)
    try:
        yield
    finally:
        waiter._waits_for.remove(other)


def _add_note(error: BaseException, note: str) -> None:
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
