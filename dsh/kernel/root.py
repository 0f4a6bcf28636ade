"""The state that all contexts of one tree share: services by realm, listeners, plugins, background tasks."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from dsh.errors import KernelError
from dsh.kernel.accessor import Accessor
from dsh.kernel.event import EventTable, Place, Subject
from dsh.kernel.foreign import contained, told
from dsh.kernel.internal import SERVICE_CHANGED, ServiceChange
from dsh.kernel.journal import Journal
from dsh.kernel.key import Event
from dsh.kernel.plugin import Registry
from dsh.kernel.task import KeptTask, retrieve

if TYPE_CHECKING:
    from dsh.kernel.fiber import Fiber
    from dsh.kernel.transition import Machine

logger = logging.getLogger("dsh.kernel")


class Realm:
    """The address of a service name inside one scope; compared by identity."""

    __slots__ = ("label",)

    def __init__(self, label: str) -> None:
        self.label = label

    def __repr__(self) -> str:
        return f"<Realm {self.label}>"


class RealmTarget:
    """The subject of an event about a service name: reaches listeners for whom it has this address."""

    __slots__ = ("_name", "_realm")

    def __init__(self, name: str, realm: Realm) -> None:
        self._name, self._realm = name, realm

    def admits(self, place: Place) -> bool:
        return place.realm_of(self._name) is self._realm


class Impl:
    """One provided service: who provides it, where, since when, and for whom it is available."""

    __slots__ = ("check", "fiber", "generation", "is_told", "name", "place", "realm", "users", "value")

    def __init__(
        self,
        name: str,
        value: Any,
        fiber: "Fiber",
        *,
        place: Place,
        realm: Realm,
        check: Callable[[Any], Any] | None,
        generation: int,
    ) -> None:
        self.name, self.value, self.fiber = name, value, fiber
        self.place, self.realm, self.check, self.generation = place, realm, check, generation
        self.users: dict[Machine, None] = {}
        """The fibers that are loaded with it, those that are being unloaded included."""
        self.is_told = False
        """Listeners of `internal/service` know that it is there."""

    def available_to(self, ctx: Place) -> bool:
        """Active, and accepted by the provider's own check."""
        if not self.fiber.is_active:
            return False
        if self.check is None:
            return True
        try:
            return bool(self.check(ctx))
        except BaseException as raised:
            error = contained(raised, f"the check of service {self.name}")
            self.fiber.logger.error("check of service %s failed: %s", self.name, told(error), exc_info=error)
            return False


class Kernel:
    """Holds the tables and the tasks of one context tree. Its maps grow and shrink with the fibers."""

    def __init__(self) -> None:
        self.events = EventTable()
        self.journal = Journal()
        self.impls: dict[Realm, Impl] = {}
        self.realms: dict[str, Realm] = {}
        self.services: set[str] = set()
        """Every name that was ever provided: it is a service's for good, and no accessor can take it."""
        self.accessors: dict[str, Accessor] = {}
        self.runtimes = Registry()
        self.injectors: dict[str, dict[Fiber, None]] = {}
        self.uids = itertools.count(1)
        self.generations = itertools.count(1)
        self.tasks: set[asyncio.Task[Any]] = set()
        self.is_closing = False
        """The root is being disposed."""
        self.on_failure: Callable[[BaseException, str], None] | None = None
        """Told of background work that died with nobody awaiting it (the fail-loud hook)."""

    def realm(self, name: str) -> Realm:
        """The default realm of a service name."""
        if name not in self.realms:
            self.realms[name] = Realm(name)
        return self.realms[name]

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that everything here runs in.

        Raises:
            KernelError: it is not running, or this is another thread.
        """
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            hint = "from another thread go through the loop's call_soon_threadsafe"
            raise KernelError("contexts work inside a running event loop only", hint=hint) from None

    def keep(self, coro: Coroutine[Any, Any, Any], label: str) -> "asyncio.Task[Any]":
        """Start a task and hold it until it is done. Whoever started it sees to its failure."""
        try:
            loop = self.loop()
        except KernelError:
            coro.close()
            raise
        task = KeptTask(coro, loop=loop, name=label)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        task.add_done_callback(retrieve)
        return task

    def failed(self, error: BaseException, label: str) -> None:
        """Background work died: say so, and tell the process."""
        logger.error("%s failed: %s", label, told(error), exc_info=error)
        if self.on_failure is not None:
            self.on_failure(error, label)

    # -- who injects what ------------------------------------------------------------------------

    def watch(self, name: str, fiber: "Fiber") -> None:
        """Let the fiber know from now on when the service comes or goes."""
        self.injectors.setdefault(name, {})[fiber] = None

    def unwatch(self, name: str, fiber: "Fiber") -> None:
        if (fibers := self.injectors.get(name)) is not None:
            fibers.pop(fiber, None)
            if not fibers:
                del self.injectors[name]

    def notify(
        self, impls: Iterable[tuple[str, Realm]], also: "Iterable[tuple[str, Fiber]]" = ()
    ) -> "list[Fiber]":
        """Let every fiber that injects one of these services look again, and tell their listeners.

        Answers those fibers without waiting for what they start: `await fiber.quiet()`.

        Args:
            also: single fibers that look again at a service.
        """
        impls = tuple(impls)
        touched: dict[Fiber, None] = {}
        for name, fiber in also:
            fiber.evaluate(name)
            touched[fiber] = None
        for name, realm in impls:
            for fiber in tuple(self.injectors.get(name, ())):
                if fiber.realm_of(name) is realm:
                    fiber.evaluate(name)
                    touched[fiber] = None
        for fiber in touched:
            fiber.refresh()
        for _, realm in impls:
            if (impl := self.impls.get(realm)) is not None and (impl.is_told or impl.fiber.is_active):
                self.tell(impl, is_there=impl.fiber.is_active)
        return list(touched)

    def tell(self, impl: Impl, *, is_there: bool) -> None:
        """Tell the listeners of `internal/service` that a service is there, has changed, or is gone."""
        impl.is_told = is_there
        if self.events.has(SERVICE_CHANGED):
            change = ServiceChange(impl.name, impl.value if is_there else None)
            self.announce(SERVICE_CHANGED, change, RealmTarget(impl.name, impl.realm))

    def announce(self, event: "Event[Any, None]", payload: Any, subject: Subject | None = None) -> None:
        """Tell what has happened in the kernel, which goes on whatever observers do.

        A broken invariant is told to the process.
        """
        try:
            self.events.emit(event, payload, subject, is_contained=True)
        except Exception as error:
            self.failed(error, f"an observer of {event.name}")
