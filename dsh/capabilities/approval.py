"""Asking a person before a tool does something. A run with nobody to ask answers at once."""

from collections.abc import Awaitable
from typing import Literal, Protocol

import msgspec

from dsh.kernel import CancelToken, Event, ServiceKey
from dsh.session.log import Session

ApprovalOutcome = Literal["allowed-once", "rejected", "cancelled", "unavailable"]
ApprovalPolicy = Literal["ask", "never"]


class ApprovalRequest(msgspec.Struct, frozen=True):
    """One question. Logged as `approval/asked`, answered by exactly one `approval/decided`."""

    session: Session
    tool_name: str
    call_id: str | None = None
    reason: str | None = None
    signal: CancelToken | None = None


class Approval(Protocol):
    """The approval service (`spec/tools.md` §7)."""

    async def request(self, request: ApprovalRequest) -> ApprovalOutcome:
        """Log the question, decide, log the answer. Needs an open turn."""

    def policy_of(self, session: Session | None) -> ApprovalPolicy:
        """The session's last `approval/policy`, else the configured one."""


APPROVAL: ServiceKey[Approval] = ServiceKey("approval")
APPROVAL_REQUEST: Event[ApprovalRequest, Awaitable[ApprovalOutcome]] = Event("approval/request", "waterfall")
"""Answerers wrap each other; the end of the chain is `unavailable`."""
