"""The service `credentials`: looks keys up by name, and stores them."""

import asyncio
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from dsh.capabilities.credentials import (
    CREDENTIAL_RECORD_UPDATED,
    CREDENTIAL_REFERENCE_UPDATED,
    Credential,
    CredentialInfo,
    CredentialRecord,
    CredentialSource,
    RecordUpdated,
    ReferenceUpdated,
)
from dsh.capabilities.launch import EnvSource, LaunchEnvironment
from dsh.capabilities.user_document import Change, Content, UserDocument, UserFileError, plain, stamp_of
from dsh.composition.home import home_label
from dsh.composition.value import MarkedError
from dsh.errors import CredentialError
from dsh.kernel import Context
from dsh.plugins.credentials.document import RECORD, REF, VERSION, Keys, keys_of, nested, read_document
from dsh.session.error import JsonError
from dsh.session.value import freeze

FILE = ".credentials.yaml"
LOCK_WAIT_S = 30.0
"""How long a write waits for another process (`spec/composition.md` §12)."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO
_BELOW: tuple[tuple[EnvSource, CredentialSource], ...] = (
    ("project-env", "project-env"),
    ("user-env", "user-env"),
)
_NOT_READ: Any = object()


class Store:
    """Holds the last good document. Implements `dsh.capabilities.credentials.CredentialStore`."""

    def __init__(self, ctx: Context, path: Path, environment: LaunchEnvironment, *, watch: bool) -> None:
        """Raises `CredentialError` where the document is not in order."""
        self._ctx, self._environment, self._watch = ctx, environment, watch
        self._file = UserDocument(path, lock_timeout_s=LOCK_WAIT_S)
        self._stamp: Any = _NOT_READ
        self._keys = Keys({}, {})
        self._complaint = ""
        self._turn = asyncio.Lock()
        self._is_open = False
        self._read()
        self._is_open = True

    # -- look-ups --------------------------------------------------------------------------------

    def resolve(self, ref: str) -> Credential | None:
        """The value under a name from the highest source that has one; blank counts as absent.

        Raises:
            CredentialError: the name cannot be one.
        """
        _check_name(ref)
        if found := self._from_environment(ref, "process", "env"):
            return found
        value = self._current().refs.get(ref, "")
        if value.strip():
            return Credential(value, "file", f"{home_label()}/{FILE}")
        for layer, source in _BELOW:
            if found := self._from_environment(ref, layer, source):
                return found
        return None

    def describe(self, ref: str) -> CredentialInfo:
        found = self.resolve(ref)
        if found is None:
            return CredentialInfo(configured=False)
        return CredentialInfo(configured=True, source=found.source, writable=found.source != "env")

    def record(self, key: str) -> CredentialRecord | None:
        _check_record_key(key)
        return self._current().records.get(key)

    def record_keys(self) -> list[str]:
        return list(self._current().records)

    def _from_environment(self, ref: str, layer: EnvSource, source: CredentialSource) -> Credential | None:
        found = self._environment.get_from(ref, (layer,))
        if found is None or not found.value.strip():
            return None
        return Credential(found.value, source, found.path or f"the environment variable {ref}")

    # -- the document ----------------------------------------------------------------------------

    def _current(self) -> Keys:
        """The document as it is now; one that is not in order any more is told, once, and does not count."""
        if self._watch:
            try:
                self._read()
            except CredentialError as error:
                if self._complaint != error.message:
                    self._complaint = error.message
                    hint = f" ({error.hint})" if error.hint else ""
                    self._ctx.logger.warning("%s%s; the keys read before still count", error.message, hint)
        return self._keys

    def _read(self) -> None:
        """Read the document if it has changed."""
        try:
            stamp = stamp_of(self._file.status())
        except MarkedError as error:
            raise CredentialError(f"{self._file.path}: {error.problem}") from None
        if stamp != self._stamp:
            self._stamp = stamp
            self._adopt(*self._load())

    def _load(self) -> tuple[Content, Keys]:
        """What stands there now.

        Raises:
            CredentialError: others may read it, which is judged first, or it is not in order.
        """
        path = self._file.path
        try:
            found = self._file.status()
            if found is not None and found.st_mode & OTHERS:
                raise CredentialError(
                    f"{path}: mode {stat.S_IMODE(found.st_mode):04o} lets others at the keys",
                    hint=f"chmod 600 {path}",
                )
            content = self._file.read()
        except MarkedError as error:
            raise CredentialError(error.message, hint=error.hint) from None
        return content, keys_of(content.value, str(path))

    def _adopt(self, content: Content, keys: Keys) -> None:
        """Let a document count and tell what has changed against the one before."""
        before, self._keys, self._complaint = self._keys, keys, ""
        self._stamp = content.stamp
        if not self._is_open:
            return
        for ref in _differing(before.refs, keys.refs):
            self._ctx.emit(CREDENTIAL_REFERENCE_UPDATED, ReferenceUpdated(ref))
        for key in _differing(before.records, keys.records):
            self._ctx.emit(CREDENTIAL_RECORD_UPDATED, RecordUpdated(key))

    # -- writes ----------------------------------------------------------------------------------

    async def set(self, ref: str, value: str) -> None:
        self._check_writable(ref)
        if not value.strip():
            raise CredentialError(
                f"{ref} would be blank", code="INVALID_CREDENTIAL", hint="to remove it, unset it"
            )
        async with self._writing() as (content, _):
            await self._write(content, Change("set", ("refs", ref), value))

    async def unset(self, ref: str) -> None:
        self._check_writable(ref)
        async with self._writing() as (content, keys):
            if ref in keys.refs:
                await self._write(content, Change("unset", ("refs", ref)))

    async def modify_record(
        self, key: str, mutate: Callable[[CredentialRecord | None], CredentialRecord | None]
    ) -> CredentialRecord | None:
        _check_record_key(key)
        async with self._writing() as (content, keys):
            before = keys.records.get(key)
            made = mutate(before)
            if made is not None:
                await self._write(content, Change("set", ("records", key), _data(key, made)))
            elif before is not None:
                await self._write(content, Change("unset", ("records", key)))
        return self._keys.records.get(key)

    async def migrate(self) -> None:
        """Give a document of the flat form the known one, its lines as they are. Else nothing happens.

        Raises:
            CredentialError: it cannot be done; the flat form still counts.
        """
        if self._keys.is_flat:
            async with self._writing():
                pass

    def _check_writable(self, ref: str) -> None:
        _check_name(ref)
        if self._from_environment(ref, "process", "env") is not None:
            raise CredentialError(
                f"{ref} comes from the environment that started dsh; what is stored would not count",
                code="CREDENTIAL_READ_ONLY",
                hint=f"unset {ref} there first",
            )

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[tuple[Content, Keys]]:
        """The present document, in the known form, while nobody else writes it."""
        try:
            async with self._turn, self._file.writing():
                content, keys = self._load()
                if keys.is_flat:
                    content, keys = await self._renewed(content, keys)
                self._adopt(content, keys)
                yield content, keys
        except UserFileError as error:
            raise CredentialError(error.message, hint=error.hint) from None

    async def _renewed(self, content: Content, keys: Keys) -> tuple[Content, Keys]:
        text = nested(content.text.removeprefix("\ufeff"))
        problem = CredentialError(
            f"{self._file.path}: the old form of this document cannot be renewed by dsh",
            hint="put version: 1 and refs: above the names and indent these",
        )
        try:
            made = read_document(text.encode(), str(self._file.path))
        except CredentialError:
            raise problem from None
        if made.refs != keys.refs:
            raise problem
        await self._file.put(text)
        return self._load()

    async def _write(self, content: Content, change: Change) -> None:
        changes = (change,) if content.value is not None else (Change("set", ("version",), VERSION), change)
        try:
            content = await self._file.write(content, *changes)
        except MarkedError as error:
            raise CredentialError(error.message, hint=error.hint) from None
        self._adopt(content, keys_of(content.value, str(self._file.path)))


def _differing(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]


def _check_name(ref: str) -> None:
    if not REF.match(ref):
        raise CredentialError(
            "a key is looked up by the name of a variable, letters, digits and _ only; this is none",
            code="INVALID_CREDENTIAL",
            hint="write the name, such as DEEPSEEK_API_KEY, where the key itself may stand now",
        )


def _check_record_key(key: str) -> None:
    if not RECORD.match(key):
        raise CredentialError(
            "a record is named scope/id, both of small letters, digits and dashes; this is none",
            code="INVALID_CREDENTIAL",
        )


def _data(key: str, record: CredentialRecord) -> dict[str, Any]:
    """The record as it is written.

    Raises:
        CredentialError: its payload is not JSON data, or a text of it is empty.
    """
    try:
        data: dict[str, Any] = plain(freeze(msgspec.to_builtins(record), "$"))
        msgspec.convert(data, CredentialRecord)
    except msgspec.ValidationError:
        raise CredentialError(f"record {key} is neither an api-key nor a grant") from None
    except (JsonError, TypeError) as error:
        raise CredentialError(f"record {key} holds what is not JSON data: {error}") from None
    if any(data.get(field) == "" for field in ("key", "env")):
        raise CredentialError(f"record {key} has an empty key or env", code="INVALID_CREDENTIAL")
    return data
