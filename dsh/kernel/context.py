"""The scope a plugin works in: services, events and effects as seen from one place in the tree.

Children inherit from their parent and never change it. Everything a plugin does goes through its
context and is therefore undone with its fiber.
"""

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar, overload

from dsh.kernel import address
from dsh.kernel.accessor import Accessor, add_accessor, add_mixin
from dsh.kernel.address import ServiceUnavailable as ServiceUnavailable
from dsh.kernel.effect import Effect
from dsh.kernel.event import EventTable, Hook, Subject
from dsh.kernel.fiber import Fiber
from dsh.kernel.internal import FIBER_CREATED, LISTENER_ADDED, ListenerRequest
from dsh.kernel.journal import Exporter
from dsh.kernel.key import Event, ServiceKey, name_of
from dsh.kernel.node import Node
from dsh.kernel.plugin import Registry, inject_map, runtime_of
from dsh.kernel.root import Kernel, Realm
from dsh.kernel.tree import Statistics, statistics_of
from dsh.kernel.view import bound

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")
Listener = Callable[..., Any]


class Context(Node):
    """A node in the tree of scopes. `Context()` makes a root; everything else is derived."""

    __slots__ = ()

    def __init__(self) -> None:
        self._set_up(None, Kernel(), {}, {}, {}, None)
        self.fiber = Fiber(self.kernel, None, None, None)
        self.fiber.ctx = self

    def __repr__(self) -> str:
        return f"<Context {self.fiber.name}>"

    @property
    def closed(self) -> bool:
        """The whole tree was disposed, or is being disposed, and nothing was registered at its root since."""
        return self.root.fiber.is_closed

    @property
    def registry(self) -> Registry:
        """The plugins that are mounted."""
        return self.kernel.runtimes

    @property
    def events(self) -> EventTable:
        """The listeners of the tree."""
        return self.kernel.events

    @property
    def logger(self) -> logging.Logger:
        """The fiber's logger, or the one that an intercept of `logger` names: `{logger: {name: NAME}}`."""
        name = self.intercepted("logger").get("name")
        return self.fiber.logger_named(name) if isinstance(name, str) and name else self.fiber.logger

    def rebind(
        self, *, isolate: Mapping[str, Realm] | None = None, intercept: Mapping[str, Any] | None = None
    ) -> list[Fiber]:
        """Replace the addresses or intercepts that this derived context adds, in place; None leaves them.

        What is provided below moves with its address and keeps its generation. Fibers that inject one of
        the names look again: those whose provider is another now, or gone, unload and load; all others,
        the providers too, run on. Returns the fibers that looked again; `await fiber.quiet()` waits.

        Raises:
            KernelError: at a new address somebody else provides the name; then nothing has changed.
        """
        return address.rebind(self, isolate, intercept)

    # -- services --------------------------------------------------------------------------------

    def provide(
        self,
        key: ServiceKey[T] | str,
        value: T | None = None,
        *,
        check: "Callable[[Context], Any] | None" = None,
    ) -> Effect:
        """Make a service available under its name in this realm, until the returned effect is undone.

        Args:
            check: asked with the context of each consumer whether the service is there for it.

        Raises:
            KernelError: the name is taken in this realm or an accessor's, the plugin declares what it
                provides and leaves it out, or the fiber is not loading or active.
        """
        return address.provide(self, name_of(key), value, check)

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
        """Whether `get` would find the service."""
        return self.get(key) is not None

    def use(self, key: ServiceKey[T]) -> T:
        """A service that this plugin injects, by key: what `ctx.name` reads, with its type.

        Raises:
            ServiceUnavailable: it is not injected here, or its provider is gone.
        """
        service: T = address.read(self, key.name)
        return service

    def read(self, name: str) -> Any:
        """The same by name."""
        return address.read(self, name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in Node.__slots__:
            raise AttributeError(name)
        if (accessor := self.kernel.accessors.get(name)) is not None:
            return accessor.read(self)
        return address.read(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or hasattr(Context, name):
            object.__setattr__(self, name, value)
        else:
            address.assign(self, name, value)

    def set(self, key: ServiceKey[T], value: T) -> None:
        """Replace the value of a service this fiber provides. Consumers run on and see it at their next read.

        Listeners of `internal/service` are told.
        """
        address.replace(self, key.name, value)

    def accessor(
        self,
        name: str,
        read: "Callable[[Context], Any]",
        write: "Callable[[Context, Any], None] | None" = None,
    ) -> Effect:
        """Declare the computed attribute `ctx.<name>` for the whole tree, until the effect is undone.

        Raises:
            KernelError: a service, an accessor or the context itself has the name.
        """
        return add_accessor(self, name, Accessor(read, write))

    def mixin(self, source: ServiceKey[Any] | str, names: Iterable[str] | Mapping[str, str]) -> Effect:
        """Make members of a service attributes of the contexts that inject it (see `add_mixin`)."""
        return add_mixin(self, source, names)

    # -- plugins ---------------------------------------------------------------------------------

    def plugin(self, plugin: Any, config: Any = None, *, name: str = "", inject: Any = None) -> Fiber:
        """Mount a plugin: a function, a class, or an object or module with `apply`.

        The body runs after at least one turn of the event loop, once every injected service is there.
        `await` the fiber to wait for it.
        """
        self.fiber.admit()
        kernel = self.kernel
        kernel.loop()
        runtime = runtime_of(kernel.runtimes, plugin, name)
        fiber = Fiber(kernel, self, runtime, config)
        fiber.inject.update(inject_map(inject))
        asked = {name: config for name, config in fiber.inject.items() if config is not None}
        fiber.ctx = self._child(fiber=fiber, intercepts={**runtime.intercept, **asked})
        kernel.runtimes.setdefault(runtime.identity, runtime)
        runtime.fibers[fiber] = None
        self.fiber.children[fiber] = None
        fiber.mount = self.fiber.own("ctx.plugin()")
        fiber.mount.add(fiber.dispose)
        try:
            kernel.events.emit(FIBER_CREATED, fiber, None)
        except Exception:
            kernel.keep(fiber.dispose(), f"dispose {fiber.name}")
            raise
        if fiber.uid is not None and self.fiber.accepts_effects:
            for service in fiber.inject:
                kernel.watch(service, fiber)
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
        return self.fiber.spawn(coro, f"task {label}", self.kernel.failed)

    def export_logs(self, exporter: Exporter) -> Effect:
        """Give every new record of the journal to `exporter(entry)`, until the returned effect is undone."""
        effect = self.fiber.own("ctx.export_logs()")
        effect.add(self.kernel.journal.export_to(exporter))
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
        events = self.kernel.events
        if isinstance(event, str):
            name = event
        else:
            name = event.name
            events.declare(event)
        effect = self.fiber.own(f'ctx.on("{name}")')
        if events.has(LISTENER_ADDED):
            request = ListenerRequest(self, name, listener, prepend, global_)
            if replaced := events.bail(LISTENER_ADDED, request, None):
                effect.add(replaced)
                return effect
        hook = Hook(self, self.fiber, listener, is_global=global_, is_first=prepend)
        events.add(name, hook)
        effect.add(lambda: events.remove(name, hook))
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

    # -- the whole -------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """Counts of what the whole tree holds now."""
        return statistics_of(self.root.fiber)

    async def dispose(self) -> None:
        """End the fiber of this context; on a root: undo everything, after which it can be used again."""
        await self.fiber.dispose()
