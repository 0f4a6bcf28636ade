"""The service `settings`: who owns which section, how sections change, and who is told.

Every change, a write of ours as well as an edit from outside, goes through one queue, and what stands in the
document is looked at before it is changed.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from dsh.capabilities.settings import (
    SETTINGS,
    SETTINGS_DOCUMENT_UPDATED,
    SETTINGS_UPDATED,
    Applies,
    SettingsChange,
    SettingsConflict,
    SettingsDescription,
    SettingsDocumentUpdated,
    SettingsError,
    SettingsScope,
    SettingsSectionError,
    SettingsSource,
    SettingsUpdated,
)
from dsh.kernel import Context, Service
from dsh.plugins.settings.describe import describe
from dsh.plugins.settings.document import Document, SectionWrite, Store
from dsh.plugins.settings.merge import same
from dsh.plugins.settings.operation import Operation, merging, mutating, replacing
from dsh.plugins.settings.scope import Scope
from dsh.plugins.settings.section import Section
from dsh.plugins.settings.view import View

S = TypeVar("S", bound=msgspec.Struct)

_NAMESPACE = re.compile(r"[a-z][a-z0-9-]*\Z")


class SettingsService(Service):
    """Implements `dsh.capabilities.settings.Settings` over a store."""

    provide = SETTINGS

    def __init__(self, ctx: Context, store: Store) -> None:
        """Raises `SettingsError` where the document cannot be read: nobody should run without it unawares."""
        self._store = store
        self._document = store.load()
        self._sections: dict[str, Section] = {}
        self._turn = asyncio.Lock()
        self._writes: set[asyncio.Task[int]] = set()
        self._complaint = ""
        self._strangers: set[str] | None = None
        """The sections without an owner that were named; None before anybody is to be told of them."""
        self._is_closed = False
        super().__init__(ctx)
        ctx.effect(lambda: self._close, "settings")

    # -- sections --------------------------------------------------------------------------------

    def register(
        self,
        namespace: str,
        schema: type[S],
        *,
        base: msgspec.Struct | Mapping[str, Any] | None = None,
        applies: Applies = "live",
        validate: Callable[[S], None] | None = None,
        shared: bool = False,
    ) -> SettingsScope[S]:
        if not _NAMESPACE.match(namespace):
            raise SettingsError(
                f"settings cannot have a namespace {namespace!r}",
                code="SETTINGS_NAMESPACE",
                hint="a letter, then letters, digits and dashes, all lower case",
            )
        ctx = self.ctx
        view = View(
            namespace,
            schema,
            owner=ctx.fiber.row_chain,
            base=base,
            applies=applies,
            validate=validate,
            is_shared=shared,
            logger=ctx.logger,
        )
        section = self._sections.get(namespace)
        if section is not None:
            _require_shared(section.views[0], view)
        if not self._turn.locked():
            self.refresh()
        raw = self._document.section(namespace)
        view.open(raw, self._document)
        if section is None:
            section = Section(namespace, raw)

        def close() -> Awaitable[None]:
            section.views.remove(view)
            if section.is_closed:
                del self._sections[namespace]
            return view.close()

        def own() -> Callable[[], Awaitable[None]]:
            self._sections[namespace] = section
            section.views.append(view)
            return close

        ctx.effect(own, f"settings {namespace}")
        return Scope(ctx, section, view, lambda do, expected: self._queue(section, do, expected, view))

    def describe(
        self, namespace: str | None = None, *, redact_secrets: bool = True
    ) -> list[SettingsDescription]:
        return [
            describe(section, view, redact=redact_secrets)
            for section in self._sections.values()
            if namespace in (None, section.namespace)
            for view in section.views
        ]

    # -- writes ----------------------------------------------------------------------------------

    def update(
        self, namespace: str, patch: Mapping[str, Any], *, expected_revision: int | None = None
    ) -> Awaitable[int]:
        return self._queue(self._owned(namespace), merging(patch), expected_revision)

    def replace(
        self, namespace: str, section: Mapping[str, Any], *, expected_revision: int | None = None
    ) -> Awaitable[int]:
        return self._queue(self._owned(namespace), replacing(section), expected_revision)

    def mutate(
        self, namespace: str, changes: Sequence[SettingsChange], *, expected_revision: int | None = None
    ) -> Awaitable[int]:
        return self._queue(self._owned(namespace), mutating(namespace, changes), expected_revision)

    def _queue(
        self, section: Section, operation: Operation, expected: int | None, view: View[Any] | None = None
    ) -> Awaitable[int]:
        """Queue a write, of one owner or of anybody; it happens also if nobody awaits it."""
        self._require_open(section, view)
        label = f"write settings {section.namespace}"
        task = self.owner_ctx.kernel.keep(self._write(section, operation, expected, view), label)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return _Write(task)

    async def _write(
        self, section: Section, operation: Operation, expected: int | None, view: View[Any] | None
    ) -> int:
        def plan(document: Document) -> SectionWrite | None:
            self._adopt(document)
            self._require_open(section, view, is_queued=True)
            if expected is not None and expected != section.revision:
                raise SettingsConflict(section.namespace, expected=expected, actual=section.revision)
            wanted = operation(section.raw)
            section.resolve(wanted)
            return None if same(wanted, section.raw) else SectionWrite(section.namespace, wanted)

        async with self._turn:
            self._adopt(await self._store.write(plan), written=section)
            return section.revision

    def _require_open(self, section: Section, view: View[Any] | None, *, is_queued: bool = False) -> None:
        is_gone = section.is_closed if view is None else view.is_closed
        if is_gone or (self._is_closed and not is_queued):
            raise SettingsError(
                f"settings {section.namespace} have no owner any more; nothing was written",
                code="SETTINGS_DISPOSED",
            )

    # -- changes from outside --------------------------------------------------------------------

    @property
    def is_changed(self) -> bool:
        """Whether the document looks different from when it was read or written last."""
        return self._store.is_changed()

    async def reload(self) -> None:
        """Read the document again, after whatever is being written. What is wrong with it is told, once."""
        async with self._turn:
            self.refresh()

    def refresh(self) -> None:
        """The same at once, for a moment at which nothing is being written."""
        if not self._store.is_changed():
            return
        try:
            document = self._store.load()
        except SettingsError as error:
            if self._complaint != error.message:
                self._complaint = error.message
                self.owner_ctx.logger.warning("%s; the settings read before still count", _line(error))
            return
        self._complaint = ""
        self._adopt(document)
        if self._strangers is not None:
            self.tell_strangers()

    def tell_strangers(self) -> None:
        """Name each section that nobody reads but whose name looks like one that somebody does.

        To be called once all rows are up; edits are judged by it from then on.
        """
        unowned = [name for name in self._document.namespaces if name not in self._sections]
        told = (self._strangers or set()).intersection(unowned)
        for namespace in unowned:
            from difflib import get_close_matches

            meant = get_close_matches(namespace, list(self._sections), n=1, cutoff=0.75)
            if meant and namespace not in told:
                told.add(namespace)
                self.owner_ctx.logger.warning(
                    "%s: nobody reads settings %s; did you mean %s?",
                    self._document.key_mark(namespace), namespace, meant[0],
                )  # fmt: skip
        self._strangers = told

    def _adopt(self, document: Document, *, written: Section | None = None) -> None:
        """Let every section that has changed in the document count, or keep the last good one and say so.

        Args:
            written: the section that a write of ours has changed.
        """
        self._document = document
        for section in list(self._sections.values()):
            try:
                raw = document.section(section.namespace)
                if same(raw, section.raw):
                    continue
                values = section.resolve(raw, document)
            except SettingsSectionError as error:
                self._refuse(section, document, error)
            else:
                self._commit(section, raw, values, "update" if section is written else "provider")

    def _refuse(self, section: Section, document: Document, error: SettingsSectionError) -> None:
        try:
            raw = document.section(section.namespace)
        except SettingsSectionError:
            raw = section.raw
        if not same(raw, section.raw):
            section.raw = raw
            self._count(section)
        if section.complaint != error.message:
            section.complaint = error.message
            self.owner_ctx.logger.warning("%s; what was valid before still counts", _line(error))

    def _commit(self, section: Section, raw: Any, values: list[Any], source: SettingsSource) -> None:
        changed = section.take(raw, values)
        self._count(section)
        for view, before in changed:
            payload = SettingsUpdated(section.namespace, view.value, before, source)
            self.owner_ctx.emit(SETTINGS_UPDATED, payload)
            view.tell(before, self.owner_ctx.kernel.keep)

    def _count(self, section: Section) -> None:
        section.revision += 1
        payload = SettingsDocumentUpdated(section.namespace, section.revision)
        self.owner_ctx.emit(SETTINGS_DOCUMENT_UPDATED, payload)

    # -- ends ------------------------------------------------------------------------------------

    def _owned(self, namespace: str) -> Section:
        section = self._sections.get(namespace)
        if section is None:
            known = ", ".join(sorted(self._sections)) or "none"
            raise SettingsError(
                f"settings {namespace} have no owner",
                code="SETTINGS_UNREGISTERED",
                hint=f"registered are: {known}",
            )
        return section

    async def _close(self) -> None:
        self._is_closed = True
        if writes := tuple(self._writes):
            await asyncio.wait(writes)


class _Write:
    """A write under way. Awaiting it gives the new revision; a caller who gives up does not stop it."""

    def __init__(self, task: "asyncio.Task[int]") -> None:
        self._task = task

    def __await__(self) -> Generator[Any, None, int]:
        return asyncio.shield(self._task).__await__()


def _require_shared(present: View[Any], new: View[Any]) -> None:
    """Raise unless both owners share the section and understand the same by it."""
    if present.is_shared and new.is_shared and present.schema is new.schema:
        return
    raise SettingsError(
        f"settings {new.namespace} have an owner already: {present.owner}",
        code="SETTINGS_DUPLICATE",
        hint="two plugins cannot read one section; mount one of them, or choose another namespace",
    )


def _line(error: SettingsError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message
