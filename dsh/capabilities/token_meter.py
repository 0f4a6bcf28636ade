"""How large the next request of a session is, in tokens: estimated, and corrected by what providers report.

Two prices: the *estimate* decides (UTF-8 bytes over a ratio learned from the session's own usage); the *log
price* (UTF-16 units / 4, `spec/tools.md` §8) is what `shadowedTokenCount` has to say.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from dsh.kernel import ServiceKey
from dsh.session.error import SessionError
from dsh.session.log import Session

BaselineKind = Literal["none", "usage", "estimated"]


class PricedNode(msgspec.Struct, frozen=True):
    """One node of the surface."""

    seq: int
    tokens: int
    """Estimated; 0 where it puts no message before the model."""
    log_tokens: int
    """The log price of the same message."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it stands."""

    log_length: int
    """Up to which seq the log is taken into account."""
    baseline: BaselineKind
    """What the total stands on: a provider's usage, an estimate, or nothing yet."""
    total_tokens: int
    """Of the next request: head, tools and surface."""
    head_tokens: int
    """Of system text and tools, estimated."""
    surface_tokens: int
    """Of all nodes, estimated."""
    nodes: Sequence[PricedNode]
    """In model order. Shared and immutable."""


class UnmeasurableLog(SessionError):
    """A log breaks a rule that its measure stands on, at event `seq`."""

    def __init__(self, session_id: str, seq: int, problem: str) -> None:
        self.seq = seq
        super().__init__(
            f"session {session_id} cannot be measured: event {seq}: {problem}",
            code="LOG_UNMEASURABLE",
            hint=f"dsh sessions verify {session_id} tells what is wrong with the log",
        )


class TokenMeter(Protocol):
    """Measures live sessions. Costs as much as there are new events."""

    def measure(self, session: Session) -> Measurement:
        """The session as it stands.

        Raises:
            UnmeasurableLog: its log breaks a rule that the measure stands on; asked again it says so again.
        """


TOKEN_METER: ServiceKey[TokenMeter] = ServiceKey("tokenMeter")
