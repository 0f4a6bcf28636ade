"""Where sections are stored: a YAML or JSON document of the home, or memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from dsh.capabilities.settings import SettingsError, SettingsSectionError
from dsh.capabilities.user_document import Change, Content, UserDocument, UserFileError, plain
from dsh.composition.value import Map, Mark, MarkedError, Seq, type_name

LOCK_WAIT_S = 2.0
"""How long a write waits for another process (`spec/composition.md` §11)."""


class SectionWrite(NamedTuple):
    """What a write comes to."""

    namespace: str
    section: dict[str, Any] | None
    """The whole section; None to take it out."""


Plan = Callable[["Document"], SectionWrite | None]
"""Decides a write when it is known what stands there; None for nothing to do."""


class Document:
    """All sections as they are written, with their places."""

    def __init__(self, top: Any) -> None:
        self._top: dict[str, Any] = top if isinstance(top, dict) else {}

    def section(self, namespace: str) -> Any:
        """What stands under a namespace, None where nothing does.

        Raises:
            SettingsSectionError: an expression stands in it.
        """
        try:
            return plain(self._top.get(namespace))
        except MarkedError as error:
            raise SettingsSectionError(namespace, error.problem, mark=error.mark) from None

    @property
    def namespaces(self) -> list[str]:
        return list(self._top)

    def mark(self, namespace: str, *path: str, key: str = "") -> Mark | None:
        """Where a value of a section is written, or as much of the way to it as there is.

        Args:
            key: a key of that value whose own place is asked for.
        """
        value: Any = self._top
        mark: Mark | None = None
        for part in (namespace, *path):
            if isinstance(value, Map) and part in value:
                mark, value = value.value_at(part), value[part]
            elif isinstance(value, Seq) and part.isdigit() and int(part) < len(value):
                mark, value = value.item_at(int(part)), value[int(part)]
            else:
                break
        return value.key_at(key) if isinstance(value, Map) and key in value else mark

    def key_mark(self, namespace: str) -> Mark | None:
        """Where the namespace itself is written."""
        return self._top.key_at(namespace) if isinstance(self._top, Map) and namespace in self._top else None


class Store(Protocol):
    """Keeps the document for the service."""

    def load(self) -> Document:
        """What stands there now; a missing document is an empty one.

        Raises:
            SettingsError: code `SETTINGS_UNREADABLE`.
        """

    def is_changed(self) -> bool:
        """Whether `load` would see something else than the last load or write did, as far as can be told."""

    async def write(self, plan: Plan) -> Document:
        """Read anew, ask the plan, and store what it says, while nobody else writes.

        Raises:
            SettingsError: code `SETTINGS_UNREADABLE` or `SETTINGS_UNWRITABLE`; nothing was stored. What the
                plan raises comes out as it is.
        """


class MemoryStore:
    """A document that lives as long as the process."""

    def __init__(self, sections: dict[str, Any] | None = None) -> None:
        self.sections = dict(sections or {})
        self._is_changed = False

    def put(self, namespace: str, section: Any) -> None:
        """Change a section from outside, as an editor would."""
        self.sections = {**self.sections, namespace: section}
        self._is_changed = True

    def load(self) -> Document:
        self._is_changed = False
        return Document(self.sections)

    def is_changed(self) -> bool:
        return self._is_changed

    async def write(self, plan: Plan) -> Document:
        if (wanted := plan(self.load())) is not None:
            self.sections = {key: value for key, value in self.sections.items() if key != wanted.namespace}
            if wanted.section is not None:
                self.sections[wanted.namespace] = wanted.section
        return self.load()


class FileStore:
    """A file of the home. State: which state of it was seen last."""

    def __init__(self, path: Path) -> None:
        self._file = UserDocument(path, lock_timeout_s=LOCK_WAIT_S)
        self._seen: Any = ()

    def load(self) -> Document:
        try:
            return self._document(self._file.read())
        except MarkedError as error:
            self._seen = self._stamp()
            raise self._unreadable(error) from None

    def is_changed(self) -> bool:
        return bool(self._stamp() != self._seen)

    async def write(self, plan: Plan) -> Document:
        try:
            async with self._file.writing():
                content = self._file.read()
                document = self._document(content)
                if (wanted := plan(document)) is None:
                    return document
                op: Literal["set", "unset"] = "unset" if wanted.section is None else "set"
                change = Change(op, (wanted.namespace,), wanted.section)
                return self._document(await self._file.write(content, change))
        except UserFileError as error:
            raise SettingsError(error.message, code="SETTINGS_UNWRITABLE", hint=error.hint) from None
        except MarkedError as error:
            raise self._unreadable(error) from None

    def _document(self, content: Content) -> Document:
        self._seen = content.stamp
        if content.value is not None and not isinstance(content.value, Map):
            mark = getattr(content.value, "mark", Mark(str(self._file.path), 1, 1))
            problem = f"settings must be a mapping of sections, not {type_name(content.value)}"
            raise MarkedError(problem, mark)
        return Document(content.value)

    def _stamp(self) -> Any:
        try:
            return self._file.stamp()
        except MarkedError as error:
            return error.problem

    @staticmethod
    def _unreadable(error: MarkedError) -> SettingsError:
        if isinstance(error, SettingsError):
            return error
        return SettingsError(error.message, code="SETTINGS_UNREADABLE", hint=error.hint)
