"""Who lives inside whom and who uses whose services, among the fibers that are mounted now."""

from collections.abc import Iterable, Iterator

from dsh.composition.mount.entry import Entry
from dsh.kernel import Fiber
from dsh.kernel.root import Kernel


class Graph:
    """A snapshot of the live fibers of a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._inside: dict[Fiber, list[Fiber]] = {}
        self._provided: dict[Fiber, list[str]] = {}
        for runtime in kernel.runtimes.values():
            for fiber in runtime.fibers:
                if fiber.parent is not None:
                    self._inside.setdefault(fiber.parent.fiber, []).append(fiber)
        for impl in kernel.impls.values():
            if isinstance(impl.fiber, Fiber):
                self._provided.setdefault(impl.fiber, []).append(impl.name)

    def within(self, fiber: Fiber) -> Iterator[Fiber]:
        """The fiber and every one inside it."""
        yield fiber
        for child in self._inside.get(fiber, ()):
            yield from self.within(child)

    def own(self, entry: Entry) -> Iterator[Fiber]:
        """The fibers of one row: its own and those its plugin mounted, without rows inside it."""
        if entry.fiber is None:
            return
        waiting = [entry.fiber]
        while waiting:
            fiber = waiting.pop()
            yield fiber
            waiting += [f for f in self._inside.get(fiber, ()) if not isinstance(f.entry, Entry)]

    def consumers(self, fiber: Fiber) -> Iterator[Fiber]:
        """The fibers that were given a service which this one provides."""
        for name in self._provided.get(fiber, ()):
            for consumer in tuple(self._kernel.injectors.get(name, ())):
                if self._uses(consumer, name, fiber):
                    yield consumer

    def _uses(self, consumer: Fiber, name: str, provider: Fiber) -> bool:
        impl = self._kernel.impls.get(consumer.realm_of(name))
        holder: object = impl.fiber if impl is not None else None
        return holder is provider

    def restarted_with(self, fibers: Iterable[Fiber]) -> dict[Fiber, Fiber | None]:
        """Every fiber that is unloaded when these are, each with the provider it would lose.

        None for those given and for what is inside of them.
        """
        found: dict[Fiber, Fiber | None] = {}
        waiting: list[tuple[Fiber, Fiber | None]] = [(fiber, None) for fiber in fibers]
        while waiting:
            first, cause = waiting.pop()
            for fiber in self.within(first):
                if fiber not in found:
                    found[fiber] = cause
                    waiting += [(consumer, fiber) for consumer in self.consumers(fiber)]
        return found

    def stop_order(self, entries: list[Entry]) -> list[Entry]:
        """An order in which entries can be stopped: users first, what is inside a group before the group."""
        users: dict[Entry, list[Entry]] = {entry: [] for entry in entries}
        owners = {fiber: entry for entry in entries for fiber in self.own(entry)}
        for fiber, entry in owners.items():
            for consumer in self.consumers(fiber):
                if (user := owners.get(consumer)) is not None and user is not entry:
                    users[entry].append(user)
        for entry in entries:
            if entry.parent is not None and entry.parent in users:
                users[entry.parent].append(entry)
        return _sorted(entries, users)


def _sorted(entries: list[Entry], before: dict[Entry, list[Entry]]) -> list[Entry]:
    """Each entry behind those in `before`; later ones first where nothing else is said, circles cut."""
    done: dict[Entry, None] = {}
    seen: set[Entry] = set()
    for start in reversed(entries):
        stack = [(start, False)]
        while stack:
            entry, is_ready = stack.pop()
            if is_ready:
                done[entry] = None
            elif entry not in seen:
                seen.add(entry)
                stack.append((entry, True))
                stack += [(user, False) for user in before[entry]]
    return list(done)
