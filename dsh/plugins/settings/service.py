"""The service `settings`: who owns which section, how sections change, and who is told.

Every change, a write of ours as well as an edit from outside, goes through one queue, and what stands in the
document is looked at before it is changed.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Generic, TypeVar

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
from dsh.capabilities.user_document import changed, plain
from dsh.kernel import Context, Effect, Service
from dsh.plugins.settings.describe import describe
from dsh.plugins.settings.document import Document, SectionWrite, Store
from dsh.plugins.settings.merge import patched, same
from dsh.plugins.settings.section import Section
from dsh.session.error import JsonError
from dsh.session.value import freeze

S = TypeVar("S", bound=msgspec.Struct)
Operation = Callable[[Any], Any]
"""Makes the next section, as it is to be written, of the present one."""

_NAMESPACE = re.compile(r"[a-z][a-z0-9-]*\Z")


class SettingsService(Service):
    """Implements `dsh.capabilities.settings.Settings` over a store."""

    provide = SETTINGS

    def __init__(self, ctx: Context, store: Store) -> None:
        """Raises `SettingsError` where the document cannot be read: nobody should run without it unawares."""
        self._store = store
        self._document = store.load()
        self._sections: dict[str, Section[Any]] = {}
        self._turn = asyncio.Lock()
        self._writes: set[asyncio.Task[int]] = set()
        self._complaint = ""
        self._is_closed = False
        super().__init__(ctx)
        ctx.effect(lambda: self._close, "settings")

    @property
    def unowned(self) -> list[str]:
        """Namespaces of the document that nobody has registered."""
        return [name for name in self._document.namespaces if name not in self._sections]

    @property
    def namespaces(self) -> list[str]:
        """What is registered."""
        return list(self._sections)

    @property
    def document(self) -> Document:
        """What was read last."""
        return self._document

    # -- sections --------------------------------------------------------------------------------

    def register(
        self,
        namespace: str,
        schema: type[S],
        *,
        base: msgspec.Struct | Mapping[str, Any] | None = None,
        applies: Applies = "live",
        validate: Callable[[S], None] | None = None,
    ) -> SettingsScope[S]:
        if not _NAMESPACE.match(namespace):
            raise SettingsError(
                f"settings cannot have a namespace {namespace!r}",
                code="SETTINGS_NAMESPACE",
                hint="a letter, then letters, digits and dashes, all lower case",
            )
        if namespace in self._sections:
            raise SettingsError(f"settings {namespace} have an owner already", code="SETTINGS_DUPLICATE")
        ctx = self.ctx
        if not self._turn.locked():
            self.refresh()
        section = Section(namespace, schema, base=base, applies=applies, validate=validate, logger=ctx.logger)
        section.open(self._document)

        def close() -> Awaitable[None]:
            self._sections.pop(namespace, None)
            return section.close()

        def own() -> Callable[[], Awaitable[None]]:
            self._sections[namespace] = section
            return close

        ctx.effect(own, f"settings {namespace}")
        return _Scope(self, section, ctx)

    def describe(self, *, redact_secrets: bool = True) -> list[SettingsDescription]:
        return [describe(section, redact=redact_secrets) for section in self._sections.values()]

    # -- writes ----------------------------------------------------------------------------------

    def update(
        self, namespace: str, patch: Mapping[str, Any], *, expected_revision: int | None = None
    ) -> Awaitable[int]:
        taken = _snapshot(patch)
        return self.write(self._owned(namespace), lambda raw: patched(raw, taken), expected_revision)

    def replace(
        self, namespace: str, section: Mapping[str, Any], *, expected_revision: int | None = None
    ) -> Awaitable[int]:
        taken = _snapshot(section)
        return self.write(self._owned(namespace), lambda _: taken, expected_revision)

    def mutate(
        self, namespace: str, changes: Sequence[SettingsChange], *, expected_revision: int | None = None
    ) -> Awaitable[int]:
        return self.write(self._owned(namespace), mutation(namespace, changes), expected_revision)

    def write(self, section: Section[Any], operation: Operation, expected: int | None) -> Awaitable[int]:
        """Queue a write; it happens also if nobody awaits it."""
        if section.is_closed or self._is_closed:
            raise _disposed(section)
        label = f"write settings {section.namespace}"
        task = self.owner_ctx.kernel.keep(self._write(section, operation, expected), label)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return _Write(task)

    async def _write(self, section: Section[Any], operation: Operation, expected: int | None) -> int:
        outcome: tuple[Any, Any] | None = None

        def plan(document: Document) -> SectionWrite | None:
            nonlocal outcome
            self._adopt(document)
            if section.is_closed:
                raise _disposed(section)
            if expected is not None and expected != section.revision:
                raise SettingsConflict(section.namespace, expected=expected, actual=section.revision)
            wanted = operation(section.raw)
            value = section.resolve(wanted)
            if same(wanted, section.raw):
                return None
            outcome = (wanted, value)
            return SectionWrite(section.namespace, wanted)

        async with self._turn:
            self._document = await self._store.write(plan)
            if outcome is not None:
                self._commit(section, *outcome, source="update")
            return section.revision

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
        self._document = document
        self._adopt(document)

    def _adopt(self, document: Document) -> None:
        """Let every section that has changed in the document count, or keep the last good one and say so."""
        for section in list(self._sections.values()):
            try:
                raw = section.written(document)
                if same(raw, section.raw):
                    continue
                value = section.resolve(raw, document)
            except SettingsSectionError as error:
                self._refuse(section, document, error)
            else:
                self._commit(section, raw, value, source="provider")

    def _refuse(self, section: Section[Any], document: Document, error: SettingsSectionError) -> None:
        try:
            raw = section.written(document)
        except SettingsSectionError:
            raw = section.raw
        if not same(raw, section.raw):
            section.raw = raw
            self._count(section)
        if section.complaint != error.message:
            section.complaint = error.message
            self.owner_ctx.logger.warning("%s; what was valid before still counts", _line(error))

    def _commit(self, section: Section[Any], raw: Any, value: Any, *, source: SettingsSource) -> None:
        before = section.take(raw, value)
        self._count(section)
        if before is None:
            return
        payload = SettingsUpdated(section.namespace, section.value, before, source)
        self.owner_ctx.emit(SETTINGS_UPDATED, payload)
        section.tell(before, self.owner_ctx.kernel.keep)

    def _count(self, section: Section[Any]) -> None:
        section.revision += 1
        payload = SettingsDocumentUpdated(section.namespace, section.revision)
        self.owner_ctx.emit(SETTINGS_DOCUMENT_UPDATED, payload)

    # -- ends ------------------------------------------------------------------------------------

    def _owned(self, namespace: str) -> Section[Any]:
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


class _Scope(Generic[S]):
    """What an owner holds. Implements `dsh.capabilities.settings.SettingsScope`."""

    def __init__(self, service: SettingsService, section: Section[S], ctx: Context) -> None:
        self._service, self._section, self._ctx = service, section, ctx

    @property
    def revision(self) -> int:
        return self._section.revision

    def get(self) -> S:
        return self._section.value

    def watch(self, callback: Callable[[S, S], Any]) -> Effect:
        section = self._section

        def own() -> Callable[[], None]:
            return lambda: section.drop(effect)

        effect = self._ctx.effect(own, f"watch settings {section.namespace}")
        section.add(effect, callback)
        return effect

    def update(self, patch: Mapping[str, Any], *, expected_revision: int | None = None) -> Awaitable[int]:
        taken = _snapshot(patch)
        return self._service.write(self._section, lambda raw: patched(raw, taken), expected_revision)

    def replace(self, section: Mapping[str, Any], *, expected_revision: int | None = None) -> Awaitable[int]:
        taken = _snapshot(section)
        return self._service.write(self._section, lambda _: taken, expected_revision)

    def mutate(
        self, changes: Sequence[SettingsChange], *, expected_revision: int | None = None
    ) -> Awaitable[int]:
        operation = mutation(self._section.namespace, changes)
        return self._service.write(self._section, operation, expected_revision)


class _Write:
    """A write under way. Awaiting it gives the new revision; a caller who gives up does not stop it."""

    def __init__(self, task: "asyncio.Task[int]") -> None:
        self._task = task

    def __await__(self) -> Generator[Any, None, int]:
        return asyncio.shield(self._task).__await__()


def mutation(namespace: str, changes: Sequence[SettingsChange]) -> Operation:
    """The changes, copied now, as one operation."""
    taken = [(one.op, tuple(one.path), _snapshot(one.value)) for one in changes]

    def operation(raw: Any) -> Any:
        for op, path, value in taken:
            try:
                raw = changed(raw, op, path, value)
            except ValueError as error:
                raise SettingsSectionError(namespace, str(error), path=path, mark=None) from None
        return raw

    return operation


def _snapshot(value: Any) -> Any:
    """A copy of JSON data.

    Raises:
        SettingsError: it is something else; the path begins with `$`, the value is not shown.
    """
    if not isinstance(value, dict) and isinstance(value, Mapping):
        value = dict(value)
    try:
        return plain(freeze(value, "$"))
    except JsonError as error:
        raise SettingsError(
            f"settings hold JSON data only: {error.message}", code="SETTINGS_NOT_JSON"
        ) from None


def _disposed(section: Section[Any]) -> SettingsError:
    return SettingsError(
        f"settings {section.namespace} have no owner any more; nothing was written", code="SETTINGS_DISPOSED"
    )


def _line(error: SettingsError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message
