"""Where keys come from. Configuration holds their names, never their values."""

from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

from dsh.kernel import Event, ServiceKey

CredentialSource = Literal["env", "file", "project-env", "user-env"]


class Credential(msgspec.Struct, frozen=True):
    """A resolved value. Its `repr` hides it."""

    value: str
    source: CredentialSource
    where: str
    """The variable or file it came from, for messages; never the value."""

    def __repr__(self) -> str:
        return f"Credential({self.source}: {self.where})"


class CredentialInfo(msgspec.Struct, frozen=True):
    """What is known of a reference, without its value."""

    configured: bool
    source: CredentialSource | None = None
    writable: bool = True
    """False while the inherited environment supplies it: what is stored would not count."""


class ApiKeyRecord(
    msgspec.Struct,
    frozen=True,
    tag_field="kind",
    tag="api-key",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """A key of one account, or the name of the variable that holds it. Its `repr` hides it."""

    key: str | None = None
    env: str | None = None

    def __repr__(self) -> str:
        return "ApiKeyRecord(…)"


class GrantRecord(msgspec.Struct, frozen=True, tag_field="kind", tag="grant", forbid_unknown_fields=True):
    """What an authorization flow was given, in a form that only its owner knows. Its `repr` hides it."""

    payload: Any
    """JSON data."""

    def __repr__(self) -> str:
        return "GrantRecord(…)"


CredentialRecord = ApiKeyRecord | GrantRecord


class ReferenceUpdated(msgspec.Struct, frozen=True):
    """Payload of `credentials/reference-updated`: what is stored under a name has changed or gone."""

    ref: str


class RecordUpdated(msgspec.Struct, frozen=True):
    """Payload of `credentials/record-updated`: what is stored under a record's key has changed or gone."""

    key: str


class Credentials(Protocol):
    """Looks a reference such as `DEEPSEEK_API_KEY` up, each time anew (`spec/composition.md` §12)."""

    def resolve(self, ref: str) -> Credential | None:
        """Inherited environment, then `.credentials.yaml`, then project and home `.env`; empty is absent."""


class CredentialStore(Credentials, Protocol):
    """The same service for those that also store keys.

    Every write raises `CredentialError` where the document is not in order or cannot be written; then nothing
    has changed. Messages name keys and places, never values.
    """

    def describe(self, ref: str) -> CredentialInfo: ...

    async def set(self, ref: str, value: str) -> None:
        """Store a value in `.credentials.yaml`.

        Raises:
            CredentialError: `CREDENTIAL_READ_ONLY`, the inherited environment supplies the reference;
                `INVALID_CREDENTIAL`, the value is blank or the name is none.
        """

    async def unset(self, ref: str) -> None:
        """Take a value out of `.credentials.yaml`; one that is not there is out already.

        Raises:
            CredentialError: `CREDENTIAL_READ_ONLY`, the inherited environment supplies the reference.
        """

    def record(self, key: str) -> CredentialRecord | None:
        """What is stored under `scope/id`."""

    def record_keys(self) -> list[str]: ...

    async def modify_record(
        self, key: str, mutate: Callable[[CredentialRecord | None], CredentialRecord | None]
    ) -> CredentialRecord | None:
        """Replace a record by what `mutate` makes of it, while no other process writes; None takes it out.

        What `mutate` raises comes out and nothing is written.
        """


CREDENTIALS: ServiceKey[Credentials] = ServiceKey("credentials")
CREDENTIAL_STORE: ServiceKey[CredentialStore] = ServiceKey("credentials")
"""The same service, typed for writing."""

CREDENTIAL_REFERENCE_UPDATED: Event[ReferenceUpdated, None] = Event(
    "credentials/reference-updated", "emit", contained=True
)
CREDENTIAL_RECORD_UPDATED: Event[RecordUpdated, None] = Event(
    "credentials/record-updated", "emit", contained=True
)
