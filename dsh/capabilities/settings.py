"""What a person set for all sessions: one document of sections, each under a namespace with one owner.

A row that lets people override its options registers a section, mostly by `install_settings_section`
(`dsh.capabilities.settings_section`). What counts is: the schema's defaults, below the row's own config,
below the section of the document (`spec/composition.md` §11).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from dsh.composition.value import Mark
from dsh.errors import CompositionError
from dsh.kernel import Effect, Event, ServiceKey

S = TypeVar("S", bound=msgspec.Struct)
W = TypeVar("W", bound=msgspec.Struct, covariant=True)

Applies = Literal["live", "restart"]
"""Whether a change counts at once or with the next start."""
SettingsSource = Literal["update", "provider"]
"""Who changed a section: a write through the service, or the document itself was edited."""

SECRET = msgspec.Meta(extra={"role": "secret"})
"""Marks a field whose value is never shown: `key: Annotated[str, SECRET]`."""
CREDENTIAL_REF = msgspec.Meta(extra={"role": "credential-ref"})
"""Marks a field that holds the name of a key, such as DEEPSEEK_API_KEY."""


class SettingsError(CompositionError):
    """A section, or a write to one, is not accepted. Codes: `SETTINGS_…`."""


class SettingsSectionError(SettingsError):
    """A section does not fit its owner's schema. Code `SETTINGS_INVALID`."""

    def __init__(
        self, namespace: str, problem: str, *, path: tuple[str, ...] = (), mark: Mark | None, hint: str = ""
    ) -> None:
        self.namespace = namespace
        self.problem = problem
        self.path = path
        """The keys within the section."""
        self.mark = mark
        """Where it is written; None for a write that never reached the document."""
        at = ".".join((namespace, *path))
        place = f"{mark}: " if mark is not None else ""
        super().__init__(f"{place}settings {at}: {problem}", code="SETTINGS_INVALID", hint=hint)


class SettingsConflict(SettingsError):
    """The section is not at the revision that the writer has seen. Code `SETTINGS_CONFLICT`."""

    def __init__(self, namespace: str, *, expected: int, actual: int) -> None:
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"settings {namespace} are at revision {actual}, the change was made for revision {expected}",
            code="SETTINGS_CONFLICT",
            hint="read the section again and repeat the change",
        )


class SettingsChange(msgspec.Struct, frozen=True):
    """One step of a `mutate`."""

    op: Literal["set", "unset"]
    path: tuple[str, ...] = ()
    """Keys within the section; none for the whole of it. `set` makes the parents that are missing."""
    value: Any = None
    """What to set: JSON data, for the whole section a mapping."""


class SettingsUpdated(msgspec.Struct, frozen=True):
    """Payload of `settings/updated`: the value that counts is another one now."""

    namespace: str
    next: Any
    """The owner's struct. Not to be changed."""
    prev: Any
    source: SettingsSource


class SettingsDocumentUpdated(msgspec.Struct, frozen=True):
    """Payload of `settings/document-updated`: the section as it is written has changed."""

    namespace: str
    revision: int


class SecretPlace(msgspec.Struct, frozen=True):
    """Where a section holds something that is not shown."""

    path: tuple[str, ...]
    set: bool
    """Whether anything stands there."""


class SettingsDescription(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A section for display, as JSON data."""

    ns: str
    schema: dict[str, Any]
    """JSON Schema of the section."""
    value: Any
    """What counts now."""
    revision: int
    applies: Applies
    base: Any = None
    """What the owner's row says."""
    user: Any = None
    """The section as it is written; None where there is none."""
    secrets: tuple[SecretPlace, ...] = ()


class SettingsScope(Protocol[W]):
    """One registered section, as its owner holds it."""

    @property
    def revision(self) -> int:
        """Counts the changes of the section as it is written, from 0."""

    def get(self) -> W:
        """What counts now. It belongs to the caller: changing it changes nothing here."""

    def watch(self, callback: Callable[[W, W], Any]) -> Effect:
        """Call `callback(next, prev)` after each change of what counts, until the effect is undone.

        Callbacks run one at a time, in the order of the changes; they may be coroutine functions. One that
        fails is logged.
        """

    def update(self, patch: Mapping[str, Any], *, expected_revision: int | None = None) -> Awaitable[int]: ...

    def replace(
        self, section: Mapping[str, Any], *, expected_revision: int | None = None
    ) -> Awaitable[int]: ...

    def mutate(
        self, changes: Sequence[SettingsChange], *, expected_revision: int | None = None
    ) -> Awaitable[int]: ...


class Settings(Protocol):
    """The sections of one composition.

    Writes of one namespace happen one after the other. What is written is copied when the method is called,
    judged by the owner, stored, and only then counts. They answer the new revision, or raise `SettingsError`:
    `SETTINGS_UNREGISTERED`, `SETTINGS_DISPOSED`, `SETTINGS_NOT_JSON`, `SETTINGS_INVALID`,
    `SETTINGS_CONFLICT`, `SETTINGS_UNWRITABLE`. A write that failed changes nothing and hinders no other.
    """

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
        """Own a section until the caller's fiber goes.

        Args:
            namespace: `^[a-z][a-z0-9-]*$`.
            schema: a msgspec struct; what it does not know is refused if it forbids unknown fields.
            base: what counts where the section says nothing: the row's config.
            validate: judges what the schema cannot, by raising `ValueError` or `ValidationError`.
            shared: others with the same schema may own it too, if they say so as well. Each has its own base;
                what one of them does not accept counts for none.

        Raises:
            SettingsSectionError: the document has a section that is not accepted; names file, line and key.
            SettingsError: `SETTINGS_DUPLICATE`, `SETTINGS_NAMESPACE`.
        """

    def update(
        self, namespace: str, patch: Mapping[str, Any], *, expected_revision: int | None = None
    ) -> Awaitable[int]:
        """Merge into the section (RFC 7386): mappings merge, null takes a key out, all else replaces."""

    def replace(
        self, namespace: str, section: Mapping[str, Any], *, expected_revision: int | None = None
    ) -> Awaitable[int]:
        """Put this in place of the whole section."""

    def mutate(
        self, namespace: str, changes: Sequence[SettingsChange], *, expected_revision: int | None = None
    ) -> Awaitable[int]:
        """Do these steps in order, all or none. Unsetting what is not there does nothing."""

    def describe(
        self, namespace: str | None = None, *, redact_secrets: bool = True
    ) -> list[SettingsDescription]:
        """The section of this namespace, or every registered one, once for each owner.

        What leaves the process must be redacted: then everything that is or may be a secret by the schema is
        `***`, in doubt too.
        """


SETTINGS: ServiceKey[Settings] = ServiceKey("settings")

SETTINGS_UPDATED: Event[SettingsUpdated, None] = Event("settings/updated", "emit", contained=True)
SETTINGS_DOCUMENT_UPDATED: Event[SettingsDocumentUpdated, None] = Event(
    "settings/document-updated", "emit", contained=True
)
