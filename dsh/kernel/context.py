"""The scope a plugin works in: services, events and effects as seen from one place in the tree.

Children inherit from their parent and never change it. Everything a plugin does goes through its
context and is therefore undone with its fiber.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar, overload

from dsh.errors import KernelError
from dsh.kernel.effect import Effect
from dsh.kernel.event import Hook, Subject
from dsh.kernel.fiber import FIBER_CREATED, Fiber, FiberState
from dsh.kernel.foreign import contained
from dsh.kernel.key import Event, ServiceKey, name_of
from dsh.kernel.plugin import inject_map, runtime_of
from dsh.kernel.root import Impl, Kernel, Realm
from dsh.kernel.view import bound, unbound

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")
Listener = Callable[..., Any]


class ServiceUnavailable(AttributeError):
    """An attribute names a service that this context may not read, or that is not there now."""


class Context:
    """A node in the tree of scopes. `Context()` makes a root; everything else is derived."""

    __slots__ = ("__weakref__", "_intercepts", "_meta", "_parent", "_realms", "fiber", "kernel", "scope")

    def __init__(self) -> None:
        self._parent: Context | None = None
        self._realms: Mapping[str, Realm] = {}
        self._intercepts: Mapping[str, Any] = {}
        self._meta: Mapping[str, Any] = {}
        self.scope: object | None = None
        self.kernel = Kernel()
        self.fiber = Fiber(self.kernel, None, None, None)
        self.fiber.ctx = self

    def __repr__(self) -> str:
        return f"<Context {self.fiber.name}>"

    @property
    def root(self) -> "Context":
        ctx = self
        while ctx._parent is not None:
            ctx = ctx._parent
        return ctx

    @property
    def logger(self) -> logging.Logger:
        return self.fiber.logger

    # -- derivation ------------------------------------------------------------------------------

    def _child(
        self,
        *,
        fiber: Fiber | None = None,
        realms: Mapping[str, Realm] | None = None,
        intercepts: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> "Context":
        child = object.__new__(Context)
        child._parent = self
        child._realms = realms or {}
        child._intercepts = intercepts or {}
        child._meta = meta or {}
        child.kernel = self.kernel
        child.fiber = fiber or self.fiber
        child.scope = (meta or {}).get("scope", self.scope)
        return child

    def extend(self, **meta: Any) -> "Context":
        """A child with additional metadata; `scope=KEY` tags what is registered through it."""
        return self._child(meta=meta)

    def isolate(self, key: ServiceKey[Any] | str, realm: Realm | None = None) -> "Context":
        """A child in which the service name has another address: a private one, or the given one."""
        name = name_of(key)
        return self._child(realms={name: realm or Realm(name)})

    def intercept(self, key: ServiceKey[Any] | str, config: Any) -> "Context":
        """A child whose reads of that service carry `config` (see `intercepted`)."""
        return self._child(intercepts={name_of(key): config})

    def meta(self, name: str, default: Any = None) -> Any:
        """Inherited metadata."""
        ctx: Context | None = self
        while ctx is not None:
            if name in ctx._meta:
                return ctx._meta[name]
            ctx = ctx._parent
        return default

    def intercepted(self, key: ServiceKey[Any] | str) -> dict[str, Any]:
        """All intercept layers for a service, merged shallowly: the root's first, the nearest last."""
        name, layers = name_of(key), []
        ctx: Context | None = self
        while ctx is not None:
            if isinstance(layer := ctx._intercepts.get(name), Mapping):
                layers.append(layer)
            ctx = ctx._parent
        merged: dict[str, Any] = {}
        for layer in reversed(layers):
            merged.update(layer)
        return merged

    def realm_of(self, name: str) -> Realm:
        """The address a service name has here."""
        ctx: Context | None = self
        while ctx is not None:
            if name in ctx._realms:
                return ctx._realms[name]
            ctx = ctx._parent
        return self.kernel.realm(name)

    # -- services --------------------------------------------------------------------------------

    def provide(
        self,
        key: ServiceKey[T] | str,
        value: T | None = None,
        *,
        check: "Callable[[Context], bool] | None" = None,
    ) -> Effect:
        """Make a service available under its name in this realm, until the returned effect is undone.

        Raises:
            KernelError: the name is taken in this realm, or the fiber is not loading or active.
        """
        name, fiber = name_of(key), self.fiber
        if fiber.state not in (FiberState.LOADING, FiberState.ACTIVE):
            raise KernelError(f"cannot provide {name!r} on inactive context", code="INACTIVE_EFFECT")
        realm = self.realm_of(name)
        if taken := self.kernel.impls.get(realm):
            raise KernelError(f'service "{name}" has been registered at {taken.fiber.name}')
        effect = fiber.own(f'ctx.provide("{name}")', is_provider=True)
        impl = Impl(
            name, unbound(value), fiber, realm=realm, check=check, generation=next(self.kernel.generations)
        )
        self.kernel.impls[realm] = impl
        if fiber.store is not None:
            fiber.store[name] = impl
        effect.add(lambda: self._withdraw(impl))
        if fiber.is_active:
            self.kernel.touch([(name, realm)])
        return effect

    def _withdraw(self, impl: Impl) -> Awaitable[None]:
        if self.kernel.impls.get(impl.realm) is impl:
            del self.kernel.impls[impl.realm]
        touched = self.kernel.touch([(impl.name, impl.realm)])

        async def settle() -> None:
            for fiber in touched:
                if fiber is not self.fiber:
                    await fiber.quiet()
            store = self.fiber.store
            if store is not None and store.get(impl.name) is impl:
                del store[impl.name]

        return settle()

    @overload
    def get(self, key: ServiceKey[T], *, strict: bool = True) -> T | None: ...
    @overload
    def get(self, key: str, *, strict: bool = True) -> Any: ...
    def get(self, key: ServiceKey[Any] | str, *, strict: bool = True) -> Any:
        """The service, or None when nobody provides it here. The way to read an optional service.

        A provider that is not active yet is invisible, also to itself, unless `strict` is off.
        """
        impl = self.kernel.impls.get(self.realm_of(name_of(key)))
        if impl is None or (strict and not impl.fiber.is_active):
            return None
        return bound(impl.value, self)

    def has(self, key: ServiceKey[Any] | str) -> bool:
        return self.get(key) is not None

    def use(self, key: ServiceKey[T]) -> T:
        """A service that this plugin injects, by key: what `ctx.name` reads, with its type.

        Raises:
            ServiceUnavailable: it is not injected here, or its provider is gone.
        """
        service: T = self._read(key.name)
        return service

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in Context.__slots__:
            raise AttributeError(name)
        return self._read(name)

    def _read(self, name: str) -> Any:
        realm = self.realm_of(name)
        if self.fiber.parent is None:
            return self.get(name, strict=False)
        fiber: Fiber = self.fiber
        while True:
            impl = fiber.store.get(name) if fiber.store is not None else None
            if impl is not None and impl.realm is realm:
                return bound(impl.value, self)
            if name in fiber.inject and fiber.ctx.realm_of(name) is realm:
                raise ServiceUnavailable(f'cannot get required service "{name}" in inactive context')
            parent = fiber.parent
            if parent is None or parent.realm_of(name) is not realm:
                raise ServiceUnavailable(f'cannot get property "{name}" without inject')
            fiber = parent.fiber

    def set(self, key: ServiceKey[T], value: T) -> None:
        """Replace the value of a service this fiber provides. Nobody is notified."""
        impl = self.kernel.impls.get(self.realm_of(key.name))
        if impl is None:
            raise KernelError(f'cannot set property "{key.name}" without provide')
        if impl.fiber is not self.fiber:
            raise KernelError(f'cannot set property "{key.name}" in multiple fibers')
        impl.value = unbound(value)

    # -- plugins ---------------------------------------------------------------------------------

    def plugin(self, plugin: Any, config: Any = None, *, name: str = "", inject: Any = None) -> Fiber:
        """Mount a plugin: a function, a class, or an object or module with `apply`.

        The body runs after at least one turn of the event loop, once every injected service is there.
        `await` the fiber to wait for it.
        """
        self.fiber.admit()
        runtime = runtime_of(self.kernel.runtimes, plugin, name)
        fiber = Fiber(self.kernel, self, runtime, config)
        fiber.inject.update(inject_map(inject))
        intercepts = {key: value for key, value in fiber.inject.items() if value is not None}
        fiber.ctx = self._child(fiber=fiber, intercepts=intercepts)
        self.kernel.runtimes.setdefault(runtime.identity, runtime)
        runtime.fibers[fiber] = None
        fiber.mount = self.fiber.own("ctx.plugin()")
        fiber.mount.add(fiber.dispose)
        try:
            self.emit(FIBER_CREATED, fiber)
        except Exception:
            self.kernel.keep(fiber.dispose(), f"dispose {fiber.name}")
            raise
        if fiber.uid is not None and self.fiber.accepts_effects:
            for service in fiber.inject:
                self.kernel.injectors.setdefault(service, {})[fiber] = None
                fiber.evaluate(service)
            fiber.refresh()
        return fiber

    def inject(self, services: Any, callback: Callable[["Context"], Any]) -> Fiber:
        """Run `callback(ctx)` whenever all these services exist: the way to use an optional one."""
        return self.plugin(callback, name=getattr(callback, "__name__", ""), inject=services)

    # -- effects ---------------------------------------------------------------------------------

    def effect(self, setup: Any, label: str = "anonymous") -> Effect:
        """Do something that can be undone, and own the undo (see `dsh.kernel.effect`)."""
        effect = self.fiber.own(label)
        effect.run(setup)
        return effect

    def spawn(self, coro: Coroutine[Any, Any, Any], label: str) -> Effect:
        """Run a task that is cancelled and awaited when the fiber goes. A failure is reported."""
        try:
            effect = self.fiber.own(f"task {label}")
        except KernelError:
            coro.close()
            raise

        async def work() -> None:
            try:
                await coro
            except BaseException as error:
                self.kernel.failed(contained(error, f"task {label}"), f"task {label} of {self.fiber.name}")
            finally:
                self.fiber.release(effect)

        task = self.kernel.keep(work(), label)

        async def stop() -> None:
            if task is not asyncio.current_task():
                task.cancel()
                await asyncio.wait((task,))

        effect.add(stop)
        return effect

    def on(
        self,
        event: Event[Any, Any] | str,
        listener: Listener,
        *,
        prepend: bool = False,
        global_: bool = False,
    ) -> Effect:
        """Listen until the returned effect is undone. `global_` passes every scope filter."""
        name = event if isinstance(event, str) else event.name
        effect = self.fiber.own(f'ctx.on("{name}")')
        hook = Hook(self, self.fiber, listener, global_)
        self.kernel.events.add(name, hook, prepend=prepend)
        effect.add(lambda: self.kernel.events.remove(name, hook))
        return effect

    def once(self, event: Event[Any, Any] | str, listener: Listener, *, prepend: bool = False) -> Effect:
        """Listen to the next dispatch only."""

        def first(*args: Any) -> Any:
            effect()
            return listener(*args)

        effect = self.on(event, first, prepend=prepend)
        return effect

    # -- events ----------------------------------------------------------------------------------

    def emit(self, event: Event[P, Any] | str, payload: P, *, subject: Subject | None = None) -> None:
        """Tell everybody; answers are ignored, a failing coroutine is logged."""
        self.kernel.events.emit(event, payload, subject)

    async def parallel(
        self, event: Event[P, Any] | str, payload: P, *, subject: Subject | None = None
    ) -> None:
        """Tell everybody and wait for all; failures are raised together."""
        await self.kernel.events.parallel(event, payload, subject)

    async def serial(
        self, event: Event[P, R] | str, payload: P, *, subject: Subject | None = None
    ) -> R | None:
        """Ask one after the other until somebody answers with anything but None or False."""
        return await self.kernel.events.serial(event, payload, subject)

    def bail(self, event: Event[P, R] | str, payload: P, *, subject: Subject | None = None) -> R | None:
        """The same, synchronously."""
        return self.kernel.events.bail(event, payload, subject)

    def waterfall(
        self,
        event: Event[P, R] | str,
        payload: P,
        inner: Callable[[], R],
        *,
        subject: Subject | None = None,
    ) -> R:
        """Each listener gets `(payload, next)` and wraps what follows; `inner` is the built-in end."""
        return self.kernel.events.waterfall(event, payload, inner, subject)

    async def dispose(self) -> None:
        """End the fiber of this context; on a root: undo everything, after which it can be used again."""
        await self.fiber.dispose()
