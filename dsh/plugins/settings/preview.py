"""What the document says to rows that are not mounted, for an explanation of them.

A plugin names the sections that it registers beside `inject` and `provide`: `sections = {namespace: schema}`.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from dsh.capabilities.settings import SETTINGS
from dsh.composition.dump import shown
from dsh.composition.explain.gather import NO_SETTINGS, Settled
from dsh.composition.explain.shape import Place, SectionInfo, ValueInfo
from dsh.composition.explain.wiring import realm_of
from dsh.composition.expression.evaluation import config_data
from dsh.composition.expression.language import find_expressions
from dsh.composition.mount.entry import Entry
from dsh.composition.mount.facts import Facts, scope_of
from dsh.composition.value import Mark
from dsh.errors import DshError
from dsh.kernel import resolve_config
from dsh.plugins import settings
from dsh.plugins.settings.describe import Redactor
from dsh.plugins.settings.document import Document, FileStore
from dsh.plugins.settings.view import View


class Preview:
    """Answers what the settings say to each row. State: the document, and the row that would read it."""

    def __init__(self, entries: Iterable[Entry], facts: Facts) -> None:
        """Read the document as the row would that is to provide the settings; without one there are none."""
        self._facts = facts
        self._row = next((e for e in entries if e.plugin is settings and not e.is_off), None)
        self._document, self._file = Document(None), ""
        self._problem: str | None = None
        if self._row is None:
            return
        try:
            config = resolve_config(settings.Config, self._config(self._row), lambda path, key, hint: None)
            path = settings.document_path(facts.home, config)
            self._file = str(path)
            self._document = FileStore(path).load()
        except DshError as error:
            self._problem = error.message

    def of(self, entry: Entry) -> Settled:
        """The sections of a row, and why its start would fail on them."""
        if entry is self._row:
            return Settled((), self._problem)
        if self._row is None or entry.is_off:
            return NO_SETTINGS
        name = SETTINGS.name
        sections = getattr(entry.plugin, "sections", None)
        if not isinstance(sections, dict) or realm_of(entry, name) != realm_of(self._row, name):
            return NO_SETTINGS
        told = tuple(self._section(namespace, schema) for namespace, schema in sections.items())
        problems = (self._refused(entry, namespace, schema) for namespace, schema in sections.items())
        return Settled(told, next((problem for problem in problems if problem), None))

    def _section(self, namespace: str, schema: Any) -> SectionInfo:
        try:
            raw = shown(Redactor(schema).hidden(self._document.section(namespace)))
        except DshError:  # an expression stands in it, which is told as the problem
            raw = None
        return SectionInfo(section=namespace, file=self._file, values=tuple(self._values(namespace, raw, ())))

    def _values(self, namespace: str, value: Any, path: tuple[str, ...]) -> Iterator[ValueInfo]:
        if isinstance(value, dict):
            for key, item in value.items():
                yield from self._values(namespace, item, (*path, key))
        elif path:
            mark = self._document.mark(namespace, *path)
            place = None if mark is None else _place(mark)
            yield ValueInfo(
                path=path, value=value, expression=None, source="written", place=place, unknown=False
            )

    def _refused(self, entry: Entry, namespace: str, schema: Any) -> str | None:
        """What is wrong with a section, as far as its schema tells."""
        try:
            raw = self._document.section(namespace)
            if raw is None or any(expr.checked.services for _, expr in find_expressions(entry.row.config)):
                return None
            config = self._config(entry) or {}
            view: View[Any] = View(
                namespace,
                schema,
                owner=entry.id,
                base=_below(namespace, schema, config),
                applies="live",
                validate=None,
                is_shared=True,
                logger=logging.getLogger(__name__),
            )
            view.resolve(raw, self._document)
        except DshError as error:
            return error.message
        return None

    def _config(self, entry: Entry) -> Any:
        return config_data(entry.row.config, scope_of(self._facts))


def _below(namespace: str, schema: Any, config: dict[str, Any]) -> dict[str, Any]:
    """What a row's config says of a section: its keys, or the value of its name where it maps free names."""
    if isinstance(schema, type) and issubclass(schema, msgspec.Struct):
        names = {field.encode_name for field in msgspec.structs.fields(schema)}
        return {key: value for key, value in config.items() if key in names and value is not None}
    below = config.get(namespace)
    return below if isinstance(below, dict) else {}


def _place(mark: Mark) -> Place:
    short = f"{mark.file.rpartition('/')[2]}:{mark.line}"
    return Place(layer=None, file=mark.file, line=mark.line, column=mark.column, short=short)
