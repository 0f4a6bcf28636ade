"""Asking a person before a tool does something. A run with nobody to ask answers at once."""

from collections.abc import Awaitable
from typing import Literal, Protocol

import msgspec

from dsh.capabilities.agent import AgentRef, TellableAgent
from dsh.errors import DshError
from dsh.kernel import CancelToken, Event, ServiceKey
from dsh.session.log import Session

ApprovalOutcome = Literal["allowed-once", "rejected", "cancelled", "unavailable"]
APPROVAL_OUTCOMES: tuple[ApprovalOutcome, ...] = ("allowed-once", "rejected", "cancelled", "unavailable")
ApprovalPolicy = Literal["ask", "never"]


MESSAGE_OWNER = "user-approval"
"""The `source.plugin` of the message that tells the model of a changed policy, as the original writes it."""


class ApprovalError(DshError):
    """A question that cannot be put, or a policy that cannot be set. Nothing was logged."""


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One question. Logged as `approval/asked`, answered by exactly one `approval/decided`."""

    agent: AgentRef
    tool_name: str
    call_id: str | None = None
    reason: str | None = None
    signal: CancelToken | None = None


class Approval(Protocol):
    """The approval service (`spec/tools.md` §7). What it grants holds for one call; nothing is remembered."""

    async def request(self, request: ApprovalRequest) -> ApprovalOutcome:
        """Log the question, decide, log the answer. Needs an open turn.

        Raises:
            ApprovalError: the agent's session has no open turn.
        """

    def policy_of(self, session: Session | None) -> ApprovalPolicy:
        """The session's last `approval/policy`, else the configured one. A damaged one is `never`."""

    def set_policy(self, agent: TellableAgent, policy: ApprovalPolicy) -> bool:
        """Change the policy of a live agent's session: logged, and told to the model at its next step.

        Answers whether anything changed; the policy that holds already is not logged again.

        Raises:
            ApprovalError: no such policy, or the agent has ended.
        """


APPROVAL: ServiceKey[Approval] = ServiceKey("approval")
APPROVAL_REQUEST: Event[ApprovalRequest, Awaitable[ApprovalOutcome]] = Event(
    "approval/request", "waterfall", scoped=lambda request: request.agent
)
"""Answerers wrap each other, in the scope of the asking agent; the end of the chain is `unavailable`."""
