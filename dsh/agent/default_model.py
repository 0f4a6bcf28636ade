"""Which model an agent gets when nobody says so."""

from collections.abc import Awaitable
from typing import Protocol

import msgspec

from dsh.kernel import ServiceKey


class ModelSelection(msgspec.Struct, frozen=True):
    """A route and how hard to think on it."""

    provider: str
    model: str
    reasoning_effort: str | None = None
    """One of the model's own effort ids; absent lets the adapter choose."""


class DefaultModel(Protocol):
    """The configured selection, read anew each time (`spec/agent-loop.md` §15)."""

    def current_selection(self) -> ModelSelection: ...

    def save_selection(self, selection: ModelSelection) -> Awaitable[None]:
        """Make it the user's choice for all sessions, in the settings; without settings nothing happens.

        Raises:
            SettingsError: it cannot be stored.
        """


DEFAULT_MODEL: ServiceKey[DefaultModel] = ServiceKey("agentDefaultModel")
