"""What is different between the mounted tree and the one that an edit asks for."""

from dsh.composition.mount.entry import Entry
from dsh.composition.same import same, same_row

Pair = tuple[Entry, Entry]


class Changes:
    """What is different between two trees, by the ids of their rows."""

    def __init__(self, old: list[Entry], new: list[Entry]) -> None:
        self.stopped: list[Entry] = []
        """Entries of the old tree whose fiber ends: removed, disabled or replaced."""
        self.started: list[Entry] = []
        """Entries of the new tree that get a fiber."""
        self.kept: list[Pair] = []
        """(old, new): the fiber goes on."""
        self.updated: list[Pair] = []
        """Those of them with another config."""
        self.rebound: list[Pair] = []
        """Those of them with other realms or intercepts."""
        olds, news = _by_id(old), _by_id(new)
        fresh: set[Entry] = set()
        for entry in news.values():
            self._judge(olds.get(entry.id), entry, fresh)
        self.stopped += [entry for key, entry in olds.items() if key not in news and entry.is_live]

    def _judge(self, old: Entry | None, new: Entry, fresh: set[Entry]) -> None:
        is_on = not new.is_off
        if (
            old is not None
            and old.is_given_up
            and is_on
            and new.parent not in fresh
            and same_row(old.row, new.row)
        ):
            self.kept.append((old, new))
        elif old is None or not old.is_live:
            if is_on:
                fresh.add(new)
                self.started.append(new)
        elif not is_on:
            self.stopped.append(old)
        elif new.parent in fresh or _needs_another_fiber(old, new):
            fresh.add(new)
            self.stopped.append(old)
            self.started.append(new)
        else:
            self._keep(old, new)

    def _keep(self, old: Entry, new: Entry) -> None:
        self.kept.append((old, new))
        if not new.carries_entries and not same(old.row.config, new.row.config):
            self.updated.append((old, new))
        if not (_agree(old, new, "isolate") and _agree(old, new, "intercept")):
            self.rebound.append((old, new))

    @property
    def disturbed(self) -> list[Entry]:
        """Entries of the old tree whose fiber ends or starts again, or is moved to other realms."""
        moved = (old for old, new in self.rebound if not _agree(old, new, "isolate"))
        return [*self.stopped, *(old for old, _ in self.updated), *moved]

    @property
    def ids(self) -> tuple[str, ...]:
        """The rows that changed, without those that only start again with the group around them."""
        changed = [*self.stopped, *self.started, *(new for _, new in (*self.updated, *self.rebound))]
        return tuple(dict.fromkeys(entry.id for entry in changed))


def _by_id(roots: list[Entry]) -> dict[str, Entry]:
    return {entry.id: entry for root in roots for entry in root.walk()}


def _agree(old: Entry, new: Entry, field: str) -> bool:
    return same(old.row.get(field) or {}, new.row.get(field) or {})


def _needs_another_fiber(old: Entry, new: Entry) -> bool:
    if (old.parent.id if old.parent else None) != (new.parent.id if new.parent else None):
        return True
    assert old.runtime is not None
    assert new.runtime is not None
    if old.runtime.identity != new.runtime.identity or old.row.is_group != new.row.is_group:
        return True
    if old.included is not None and new.included is not None and old.included.path != new.included.path:
        return True
    return old.extra_inject != new.extra_inject
