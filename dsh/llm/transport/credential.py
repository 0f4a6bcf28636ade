"""The key of a provider: looked up by name for each call, judged before it goes near a header."""

import re
from typing import Protocol

import msgspec

from dsh.capabilities.credentials import CREDENTIALS, Credentials
from dsh.capabilities.launch import LAUNCH_ENVIRONMENT, LaunchEnvironment
from dsh.capabilities.subprocess import SUBPROCESS
from dsh.composition.home import home_label
from dsh.errors import DshError
from dsh.kernel import Context
from dsh.llm.failure import LlmError
from dsh.masking import masked

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class KeySources(Protocol):
    """Where keys may be looked up; either may be missing from a composition."""

    @property
    def credentials(self) -> Credentials | None: ...

    @property
    def environment(self) -> LaunchEnvironment | None: ...


class ContextKeys:
    """The sources of a composition, looked up when they are needed. Implements `KeySources`."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    @property
    def credentials(self) -> Credentials | None:
        return self._ctx.get(CREDENTIALS)

    @property
    def environment(self) -> LaunchEnvironment | None:
        return self._ctx.get(LAUNCH_ENVIRONMENT)


class ProviderKey(msgspec.Struct, frozen=True):
    """A usable key and where it came from. Its `repr` hides it."""

    value: str
    where: str

    def __repr__(self) -> str:
        return f"ProviderKey({self.where})"


def is_key_name(ref: str) -> bool:
    """Whether a key can be looked up under this name; what looks like a key cannot."""
    return _NAME.match(ref) is not None and (ref.isupper() or masked(ref) == ref)


def hide_key(ctx: Context, ref: str) -> None:
    """Keep the variable `ref` out of every child process while the caller is mounted.

    For each row with an `apiKeyEnv`: its name need not look like that of a secret.
    """

    def hide(inner: Context) -> None:
        inner.use(SUBPROCESS).hide(ref)

    ctx.inject([SUBPROCESS], hide)


def find_key(sources: KeySources, ref: str, provider: str) -> ProviderKey:
    """The key named `ref`, without outer white space.

    Raises:
        LlmError: `MISSING_CREDENTIAL`, there is none; `INVALID_CREDENTIAL`, it cannot stand in a header. The
            message says where it was looked for or found and how to set it, and holds no part of it.
    """
    value, where = _look_up(sources, ref)
    key = value.strip()
    if not key:
        raise LlmError.of(
            "MISSING_CREDENTIAL",
            f"no API key for {provider}: {ref} is not set (looked in the environment, "
            f"{home_label()}/.credentials.yaml, ./.env and {home_label()}/.env); "
            f"set it with: export {ref}=…, choose another provider (agent-default-model in "
            f"{home_label()}/settings.yaml), or try the program without a key: dsh --profile demo",
        )
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise LlmError.of(
            "INVALID_CREDENTIAL",
            f"the API key for {provider} in {where} holds characters that a key cannot have "
            f"(blanks, line breaks or non-ASCII); set {ref} again",
        )
    return ProviderKey(key, where)


def _look_up(sources: KeySources, ref: str) -> tuple[str, str]:
    if (store := sources.credentials) is not None:
        try:
            found = store.resolve(ref)
        except DshError as error:
            raise LlmError.of("INVALID_CREDENTIAL", error.message, hint=error.hint) from error
        return (found.value, found.where) if found is not None else ("", "")
    variable = sources.environment.get(ref) if sources.environment is not None else None
    if variable is None:
        return "", ""
    return variable.value, variable.path or f"the environment variable {ref}"
