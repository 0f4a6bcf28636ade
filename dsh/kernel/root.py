"""The state that all contexts of one tree share: services by realm, listeners, plugins, background tasks."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from dsh.kernel.event import EventTable, Place
from dsh.kernel.plugin import Runtime
from dsh.kernel.task import retrieve

logger = logging.getLogger("dsh.kernel")


class Realm:
    """The address of a service name inside one scope; compared by identity."""

    __slots__ = ("label",)

    def __init__(self, label: str) -> None:
        self.label = label

    def __repr__(self) -> str:
        return f"<Realm {self.label}>"


class Provider(Protocol):
    """The fiber behind a service."""

    @property
    def is_active(self) -> bool: ...

    @property
    def name(self) -> str: ...

    @property
    def logger(self) -> logging.Logger: ...


class Consumer(Protocol):
    """A fiber that injects services."""

    def realm_of(self, name: str) -> Realm: ...

    def evaluate(self, name: str) -> None: ...

    def refresh(self) -> None: ...

    async def quiet(self) -> None: ...


class Impl:
    """One provided service: who provides it, since when, and for whom it is available."""

    __slots__ = ("check", "fiber", "generation", "name", "realm", "value")

    def __init__(
        self,
        name: str,
        value: Any,
        fiber: Provider,
        *,
        realm: Realm,
        check: Callable[[Any], bool] | None,
        generation: int,
    ) -> None:
        self.name, self.value, self.fiber = name, value, fiber
        self.realm, self.check, self.generation = realm, check, generation

    def available_to(self, ctx: Place) -> bool:
        """Active, and accepted by the provider's own check."""
        if not self.fiber.is_active:
            return False
        if self.check is None:
            return True
        try:
            return bool(self.check(ctx))
        except Exception as error:
            self.fiber.logger.error("check of service %s failed: %s", self.name, error, exc_info=error)
            return False


class Kernel:
    """Holds the tables and the tasks of one context tree. Its maps grow and shrink with the fibers."""

    def __init__(self) -> None:
        self.events = EventTable()
        self.impls: dict[Realm, Impl] = {}
        self.realms: dict[str, Realm] = {}
        self.runtimes: dict[Any, Runtime] = {}
        self.injectors: dict[str, dict[Consumer, None]] = {}
        self.uids = itertools.count(1)
        self.generations = itertools.count(1)
        self.tasks: set[asyncio.Task[Any]] = set()
        self.on_failure: Callable[[BaseException, str], None] | None = None
        """Told of background work that died with nobody awaiting it (the fail-loud hook)."""

    def realm(self, name: str) -> Realm:
        """The default realm of a service name."""
        if name not in self.realms:
            self.realms[name] = Realm(name)
        return self.realms[name]

    def keep(self, coro: Coroutine[Any, Any, Any], label: str) -> "asyncio.Task[Any]":
        """Start a task and hold it until it is done. Whoever started it sees to its failure."""
        task = asyncio.get_running_loop().create_task(coro, name=label)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        task.add_done_callback(retrieve)
        return task

    def failed(self, error: BaseException, label: str) -> None:
        """Background work died: say so, and tell the process."""
        logger.error("%s failed: %s", label, error, exc_info=error)
        if self.on_failure is not None:
            self.on_failure(error, label)

    async def notify(self, impls: list[tuple[str, Realm]]) -> list[Consumer]:
        """Let every fiber that injects one of these services look again, and wait until each has settled."""
        touched = self.touch(impls)
        for fiber in touched:
            await fiber.quiet()
        return touched

    def touch(self, impls: list[tuple[str, Realm]]) -> list[Consumer]:
        """The first half of `notify`: re-evaluate and start what follows, without waiting."""
        touched: dict[Consumer, None] = {}
        for name, realm in impls:
            for fiber in tuple(self.injectors.get(name, ())):
                if fiber.realm_of(name) is realm:
                    fiber.evaluate(name)
                    touched[fiber] = None
        for fiber in touched:
            fiber.refresh()
        return list(touched)
