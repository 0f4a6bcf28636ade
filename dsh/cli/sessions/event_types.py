"""The session commands read logs that hold events of plugins: they know the types that are installed."""

from collections.abc import Callable

from dsh.composition.event_type import InstalledEventTypes
from dsh.composition.home import home_path
from dsh.session.vocabulary import install_finder

_undo: dict[str, Callable[[], None]] = {}
"""What takes the installed finder out again, by its home: one at a time."""


def know_plugin_types() -> None:
    """Let the reader of logs know the event types of installed packages. Nothing is looked up yet."""
    home = str(home_path())
    if home not in _undo:
        for undo in _undo.values():
            undo()
        _undo.clear()
        _undo[home] = install_finder(InstalledEventTypes(home_path()))
