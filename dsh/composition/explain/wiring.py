"""Who would provide each service to whom, told from declarations alone; nothing is mounted.

A plugin declares `inject` and `provide`; a row adds `inject` and `isolate`. What a plugin injects while it
runs (an optional service) is in no declaration and not seen here.
"""

from collections.abc import Iterable
from typing import NamedTuple

from dsh.composition.mount.entry import Entry

LAUNCHER = "<launcher>"
LAUNCHER_SERVICES = (
    "appExit",
    "appOutput",
    "boot",
    "cmdlineArgs",
    "dshHomePath",
    "launchEnvironment",
    "loader",
)
"""What is there before the first row, in the default realm of each name."""


class RealmName(NamedTuple):
    """The address of a service name in a tree that is not mounted."""

    service: str
    label: str | None = None
    """What all rows with this label share; None for the default realm or a private one."""
    owner: str | None = None
    """The row whose subtree has it for itself."""

    def __str__(self) -> str:
        if self.owner is not None:
            return f"private to {self.owner}"
        return "default" if self.label is None else f"label {self.label}"


def realm_of(entry: Entry, service: str) -> RealmName:
    """The realm that a row sees and provides this service in."""
    here: Entry | None = entry
    while here is not None:
        label = (here.row.get("isolate") or {}).get(service)
        if label is True:
            return RealmName(service, owner=here.id)
        if label is not None:
            return RealmName(service, label)
        here = here.parent
    return RealmName(service)


def injected(entry: Entry) -> dict[str, str]:
    """The services a row waits for, each with who asks: `plugin` or `row`."""
    return {**dict.fromkeys(entry.injected, "plugin"), **dict.fromkeys(entry.extra_inject, "row")}


def provided(entry: Entry) -> tuple[str, ...] | None:
    """The services its plugin declares; None where it declares nothing, or is not loaded."""
    return entry.runtime.provides if entry.runtime is not None else None


class Wiring:
    """The rows by what they provide and inject, and which of them would start."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = list(entries)
        self.providers: dict[RealmName, list[Entry]] = {}
        """Rows that run, by each service they declare; groups and includes provide nothing."""
        self.consumers: dict[RealmName, list[Entry]] = {}
        self.undeclared: list[Entry] = []
        """Rows that run and do not say what they provide."""
        for entry in self.entries:
            if entry.is_off or entry.runtime is None:  # one that cannot be loaded is optional and not there
                continue
            names = provided(entry)
            if names is None and not entry.carries_entries:
                self.undeclared.append(entry)
            for name in names or ():
                self.providers.setdefault(realm_of(entry, name), []).append(entry)
            for name in injected(entry):
                self.consumers.setdefault(realm_of(entry, name), []).append(entry)
        self.ready = self._ready(trusting=False)
        """Rows that start whatever those do that declare nothing."""
        self.perhaps = self._ready(trusting=True) - self.ready
        """Rows that start if a row provides what they need without declaring it."""

    def is_from_launcher(self, realm: RealmName) -> bool:
        return realm == RealmName(realm.service) and realm.service in LAUNCHER_SERVICES

    def missing(self, entry: Entry) -> list[str]:
        """The services it injects that no row which surely starts provides to it."""
        return [name for name in injected(entry) if not self._is_provided(entry, name, self.ready)]

    def _is_provided(self, entry: Entry, name: str, ready: set[Entry]) -> bool:
        realm = realm_of(entry, name)
        return self.is_from_launcher(realm) or any(e in ready for e in self.providers.get(realm, ()))

    def _ready(self, *, trusting: bool) -> set[Entry]:
        """The largest set of rows that can start one after the other, without a circle among them.

        Counts the services each row still lacks, so that the work grows with the declarations.
        """
        running = [entry for entry in self.entries if not entry.is_off and entry.runtime is not None]
        guessed = trusting and bool(self.undeclared)
        lacking: dict[Entry, set[RealmName | Entry]] = {}
        waiting: dict[RealmName | Entry, list[Entry]] = {}
        for entry in running:
            wanted: set[RealmName | Entry] = {realm_of(entry, name) for name in injected(entry)}
            if entry.parent is not None:
                wanted.add(entry.parent)
            lacking[entry] = {
                need
                for need in wanted
                if not (isinstance(need, RealmName) and (guessed or self.is_from_launcher(need)))
            }
            for need in lacking[entry]:
                waiting.setdefault(need, []).append(entry)
        started: set[Entry] = set()
        left = [entry for entry in running if not lacking[entry]]
        while left:
            entry = left.pop()
            if entry in started:
                continue
            started.add(entry)
            given: list[RealmName | Entry] = [entry]
            given += [realm_of(entry, name) for name in provided(entry) or ()]
            for need in given:
                for user in waiting.get(need, ()):
                    lacking[user].discard(need)
                    if not lacking[user]:
                        left.append(user)
        return started
