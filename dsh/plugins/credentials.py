"""Row `credentials`: looks keys up by name.

The inherited environment comes first, then `.credentials.yaml`, the project's `.env`, the home's `.env`.
Nothing is cached but the parsed document, which is read again when the file has changed. No message holds
a value, nor a name that nobody checked: it may be a key in the wrong place.
"""

import re
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import msgspec

from dsh.capabilities.bounds import MAX_TIMER_MS
from dsh.capabilities.credentials import CREDENTIALS, Credential, CredentialSource
from dsh.capabilities.launch import HOME_PATH, LAUNCH_ENVIRONMENT, EnvSource, LaunchEnvironment
from dsh.composition.home import home_label
from dsh.composition.source import read_bytes
from dsh.composition.value import Map, Mark, type_name
from dsh.composition.yaml import YamlError, parse_yaml
from dsh.errors import CredentialError
from dsh.kernel import Context

FILE = ".credentials.yaml"
OTHERS = stat.S_IRWXG | stat.S_IRWXO
_REF = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_TOP = frozenset(["version", "refs", "records"])
_RECORD = re.compile(r"[a-z][a-z0-9-]*/[a-z][a-z0-9-]*\Z")
_BELOW: tuple[tuple[EnvSource, CredentialSource], ...] = (
    ("project-env", "project-env"),
    ("user-env", "user-env"),
)

inject = [LAUNCH_ENVIRONMENT, HOME_PATH]
provide = [CREDENTIALS]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the `credentials` row."""

    watch: bool = True
    """Read the document again when it has changed; otherwise it counts as it was at start."""
    debounce_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_TIMER_MS)] = 100
    """How long the original lets a changed document rest. Known, so that rows written for it load; here a
    change is seen by the next look-up and nothing waits.
    """


class Store:
    """Holds the last good document. Implements `dsh.capabilities.credentials.Credentials`."""

    def __init__(self, ctx: Context, path: Path, environment: LaunchEnvironment, *, watch: bool) -> None:
        self._ctx, self._path, self._environment, self._watch = ctx, path, environment, watch
        self._stamp: tuple[int, ...] | None = None
        self._refs: dict[str, str] = {}
        self._read()

    def resolve(self, ref: str) -> Credential | None:
        """The value under a name from the highest source that has one; blank counts as absent.

        Raises:
            CredentialError: the name cannot be one.
        """
        if not _REF.match(ref):
            raise CredentialError(
                "a key is looked up by the name of a variable, letters, digits and _ only; this is none",
                code="INVALID_CREDENTIAL",
                hint="write the name, such as DEEPSEEK_API_KEY, where the key itself may stand now",
            )
        if found := self._from_environment(ref, "process", "env"):
            return found
        value = self._document().get(ref, "")
        if value.strip():
            return Credential(value, "file", f"{home_label()}/{FILE}")
        for layer, source in _BELOW:
            if found := self._from_environment(ref, layer, source):
                return found
        return None

    def _from_environment(self, ref: str, layer: EnvSource, source: CredentialSource) -> Credential | None:
        found = self._environment.get_from(ref, (layer,))
        if found is None or not found.value.strip():
            return None
        return Credential(found.value, source, found.path or f"the environment variable {ref}")

    def _document(self) -> dict[str, str]:
        if self._watch:
            try:
                self._read()
            except CredentialError as error:
                self._ctx.logger.warning("%s; the keys read before still count", error)
        return self._refs

    def _read(self) -> None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._stamp, self._refs = None, {}
            return
        except OSError as error:
            raise CredentialError(f"{self._path}: {error.strerror}") from None
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        if not stat.S_ISREG(found.st_mode):
            raise CredentialError(f"{self._path}: not a file")
        if found.st_mode & OTHERS:
            raise CredentialError(
                f"{self._path}: mode {stat.S_IMODE(found.st_mode):04o} lets others at the keys",
                hint=f"chmod 600 {self._path}",
            )
        try:
            data = read_bytes(self._path)
        except OSError as error:
            raise CredentialError(f"{self._path}: {error.strerror}") from None
        self._refs = read_document(data, str(self._path))


def read_document(data: bytes, file: str) -> dict[str, str]:
    """The values under `refs` of a credentials document; an empty document has none.

    A flat mapping of names to keys, which early versions of the original wrote, is read as it is.

    Raises:
        CredentialError: the document is not exactly of the known form. Names key and place, no value.
    """
    try:
        document = parse_yaml(data, file)
    except YamlError as error:
        what = "a key stands there twice" if "twice" in error.problem else "this cannot be read as YAML"
        raise CredentialError(f"{error.mark}: {what}") from None
    if document is None:
        return {}
    if (
        isinstance(document, Map)
        and document
        and all(map(_REF.match, document))
        and _TOP.isdisjoint(document)
    ):
        for name in document:
            _text(document, name)
        return dict(document)
    top = _mapping(document, "the document", Mark(file, 1, 1), known=_TOP)
    if top.get("version") != 1 or isinstance(top["version"], bool):
        raise CredentialError(f"{top.value_at('version')}: version must be 1")
    refs = _mapping(top.get("refs", Map(top.mark)), "refs", top.value_at("refs"))
    for name in refs:
        if not _REF.match(name):
            raise CredentialError(f"{refs.key_at(name)}: a name is letters, digits and _ only")
        _text(refs, name)
    records = _mapping(top.get("records", Map(top.mark)), "records", top.value_at("records"))
    for name in records:
        if not _RECORD.match(name):
            raise CredentialError(f"{records.key_at(name)}: a record is named scope/id")
        _check_record(_mapping(records[name], f"record {name}", records.value_at(name)))
    return dict(refs)


def _check_record(record: Map) -> None:
    kind = record.get("kind")
    if kind == "api-key":
        known = {"kind", "key", "env"}
        for field in ("key", "env"):
            if field in record:
                _text(record, field)
    elif kind == "grant":
        known = {"kind", "payload"}
        if "payload" not in record:
            raise CredentialError(f"{record.mark}: a grant needs a payload")
    else:
        raise CredentialError(f"{record.value_at('kind')}: kind must be api-key or grant")
    _known(record, known)


def _mapping(value: Any, what: str, mark: Mark, *, known: Collection[str] | None = None) -> Map:
    if not isinstance(value, Map):
        raise CredentialError(f"{mark}: {what} must be a mapping, not {type_name(value)}")
    if known is not None:
        _known(value, known)
    return value


def _known(mapping: Map, known: Collection[str]) -> None:
    for key in mapping:
        if key not in known:
            raise CredentialError(
                f"{mapping.key_at(key)}: unknown key; known are {', '.join(sorted(known))}",
                hint="names and keys stand under refs:, below version: 1",
            )


def _text(mapping: Map, key: str) -> None:
    value = mapping[key]
    if not isinstance(value, str):
        raise CredentialError(f"{mapping.value_at(key)}: {key} must be a string, not {type_name(value)}")
    if not value:
        raise CredentialError(f"{mapping.value_at(key)}: {key} is empty")


def apply(ctx: Context, config: Config) -> None:
    """Read the document, which must be in order, and provide the look-up."""
    path = ctx.use(HOME_PATH)(FILE)
    ctx.provide(CREDENTIALS, Store(ctx, path, ctx.use(LAUNCH_ENVIRONMENT), watch=config.watch))
