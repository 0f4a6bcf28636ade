"""What a notebook is."""

from typing import Protocol

from dsh.kernel import Event, ServiceKey


class Notebook(Protocol):
    """Notes, in the order in which they were taken."""

    def add(self, text: str) -> None:
        """Take a note; it is gone when whoever took it is unmounted."""

    def all(self) -> list[str]:
        """All notes."""


NOTEBOOK: ServiceKey[Notebook] = ServiceKey("notebook")
NOTED: Event[str, None] = Event("notebook/noted", "emit", contained=True)
