"""Why a model call failed: one validated record from the wire into the log, and its exception."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from dsh.errors import CredentialError, DshError

CREDENTIAL_CODES = frozenset({"AUTH", "INVALID_CREDENTIAL", "MISSING_CREDENTIAL"})
"""Failures that only a person with a key can mend; the process exits with 4 (`design.md` §10.38)."""


class LlmFailure(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The facts of one failed attempt, in the key order of the log."""

    message: str
    """For a person, in one line. Never holds a key."""
    code: str
    """Stable upper-case name (`spec/llm.md` §4.5)."""
    status: int | None = None
    """HTTP status, 100 to 599."""
    provider_retry_after_ms: float | None = None
    """How long the provider asks to wait, in milliseconds."""
    request_id: str | None = None
    """The provider's name for the request."""

    def __post_init__(self) -> None:
        if not self.message:
            raise ValueError("LlmFailure.message is empty")
        if not self.code:
            raise ValueError("LlmFailure.code is empty")
        if self.status is not None and not 100 <= self.status <= 599:
            raise ValueError(f"LlmFailure.status is {self.status}, expected 100 to 599")
        delay = self.provider_retry_after_ms
        if delay is not None and not (math.isfinite(delay) and delay > 0):
            raise ValueError(f"LlmFailure.provider_retry_after_ms is {delay}, expected a positive number")
        if self.request_id == "":
            raise ValueError("LlmFailure.request_id is empty")

    def to_json(self) -> dict[str, Any]:
        """`{message, code, status?, providerRetryAfterMs?, requestId?}`."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "LlmFailure":
        """The record behind a finish reason or a log row.

        Raises:
            msgspec.ValidationError: it is none.
        """
        return msgspec.convert(dict(value), cls)


class LlmError(DshError):
    """A model call failed with known facts. `code` is `failure.code`."""

    def __init__(self, failure: LlmFailure, *, hint: str = "") -> None:
        super().__init__(failure.message, code=failure.code, hint=hint)
        self.failure = failure
        if failure.code in CREDENTIAL_CODES:
            self.exit_code = CredentialError.exit_code

    @classmethod
    def of(cls, code: str, message: str, *, hint: str = "", status: int | None = None) -> "LlmError":
        """The common case: a code, a message, perhaps a status."""
        return cls(LlmFailure(message, code, status), hint=hint)
