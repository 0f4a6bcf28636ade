"""The events of the loader: what a plugin can hear of the rows around it."""

from typing import NamedTuple

from dsh.composition.mount.entry import Entry
from dsh.composition.row import Row
from dsh.kernel import Context, Event


class PartialDispose(NamedTuple):
    """Payload of `loader/partial-dispose`: a row's fiber was ended by an edit."""

    entry: Entry
    old_row: Row
    """What the row said until then."""
    still_active: bool
    """The row goes on with another fiber; False where it was removed or disabled."""


class UpdateFailed(NamedTuple):
    """Payload of `hmr/config-update-failed`: an edited file was not applied, the rows are as before."""

    filename: str
    error: Exception


ENTRY_INIT: Event[Entry, None] = Event("loader/entry-init", "emit", contained=True)
"""A row is about to be mounted; its entry has no fiber yet."""
PARTIAL_DISPOSE: Event[PartialDispose, None] = Event("loader/partial-dispose", "emit", contained=True)
CONFIG_UPDATE: Event[tuple[str, ...], None] = Event("loader/config-update", "emit", contained=True)
"""An edit was applied. The payload holds the ids of the rows that changed."""
PATCH_CONTEXT: Event[Entry, Context] = Event("loader/patch-context", "waterfall")
"""The context of a row is being given its realms and intercepts; answers that context."""
CONFIG_UPDATE_FAILED: Event[UpdateFailed, None] = Event("hmr/config-update-failed", "parallel")
