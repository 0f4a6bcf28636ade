"""Where keys come from. Configuration holds their names, never their values."""

from typing import Literal, Protocol

import msgspec

from dsh.kernel import ServiceKey

CredentialSource = Literal["env", "file", "project-env", "user-env"]


class Credential(msgspec.Struct, frozen=True):
    """A resolved value. Its `repr` hides it."""

    value: str
    source: CredentialSource
    where: str
    """The variable or file it came from, for messages; never the value."""

    def __repr__(self) -> str:
        return f"Credential({self.source}: {self.where})"


class Credentials(Protocol):
    """Looks a reference such as `DEEPSEEK_API_KEY` up, each time anew (`spec/composition.md` §12)."""

    def resolve(self, ref: str) -> Credential | None:
        """Inherited environment, then `.credentials.yaml`, then project and home `.env`; empty is absent."""


CREDENTIALS: ServiceKey[Credentials] = ServiceKey("credentials")
