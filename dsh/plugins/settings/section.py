"""What is written under one namespace, with everybody who reads it."""

from typing import Any

from dsh.plugins.settings.document import Document
from dsh.plugins.settings.view import View


class Section:
    """State: the section as it is written, its revision, the views of its owners."""

    def __init__(self, namespace: str, raw: Any) -> None:
        self.namespace = namespace
        self.raw = raw
        self.revision = 0
        self.views: list[View[Any]] = []
        """One for each owner; several only where all of them said that they share."""
        self.complaint = ""
        """What was last said of a section that does not count, so that it is said once."""

    @property
    def is_closed(self) -> bool:
        """Nobody owns it any more."""
        return not self.views

    def resolve(self, raw: Any, document: Document | None = None) -> list[Any]:
        """What would count for each view with this section. One that any owner refuses counts for none.

        Raises:
            SettingsSectionError: see `View.resolve`.
        """
        return [view.resolve(raw, document) for view in self.views]

    def take(self, raw: Any, values: list[Any]) -> list[tuple[View[Any], Any]]:
        """Let a section count that was resolved; answers the views it changes, each with its value before."""
        self.raw, self.complaint = raw, ""
        taken = [(view, view.take(value)) for view, value in zip(self.views, values, strict=True)]
        return [(view, before) for view, before in taken if before is not None]
