"""Row `approval`: puts questions to whoever can answer, and logs question and answer."""

import uuid
from typing import Any

import msgspec

from dsh.agent.liveness import is_live
from dsh.agent.prompt import SYSTEM_PROMPT, PromptContext
from dsh.capabilities.agent import TellableAgent
from dsh.capabilities.approval import (
    APPROVAL,
    APPROVAL_OUTCOMES,
    APPROVAL_REQUEST,
    MESSAGE_OWNER,
    ApprovalError,
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalRequest,
)
from dsh.kernel import Cancelled, CancelToken, Context, ScopeTarget
from dsh.session.log import Session
from dsh.session.message import user_message

provide = [APPROVAL]

SECTION = "approval:policy"
SECTION_ORDER = 115
CHANGED = "The approval policy of this session was changed."
POLICY_TEXT: dict[ApprovalPolicy, str] = {
    "ask": (
        "Approval policy: ask. What needs an approval puts a question to whoever can answer it; "
        "where nobody can, the answer is no."
    ),
    "never": "Approval policy: never. Whatever would need an approval is refused; nobody is asked.",
}


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    policy: ApprovalPolicy = "ask"
    """For sessions whose log says nothing else. `never` refuses without asking."""


class ApprovalService:
    """Decides approvals. Implements `dsh.capabilities.approval.Approval`; its state is in the logs."""

    def __init__(self, ctx: Context, default: ApprovalPolicy) -> None:
        self._ctx = ctx
        self._default = default

    def policy_of(self, session: Session | None) -> ApprovalPolicy:
        """The session's last `approval/policy`, else the row's. A word we do not know is `never`."""
        event = None if session is None else session.last("approval/policy")
        if event is None:
            return self._default
        asks = isinstance(event.data, dict) and event.data.get("policy") == "ask"
        return "ask" if asks else "never"

    def set_policy(self, agent: TellableAgent, policy: ApprovalPolicy) -> bool:
        if not is_live(self._ctx, agent):
            raise ApprovalError(f"agent {agent.id} has ended, its approval policy cannot be set")
        if policy not in POLICY_TEXT:
            raise ApprovalError(
                f"{policy!r:.60} is no approval policy", hint=f"policies: {', '.join(POLICY_TEXT)}"
            )
        if policy == self.policy_of(agent.session):
            return False
        agent.session.append("approval/policy", {"policy": policy})
        agent.inject(
            user_message(f"{CHANGED} {POLICY_TEXT[policy]}", {"kind": "plugin", "plugin": MESSAGE_OWNER})
        )
        return True

    async def request(self, request: ApprovalRequest) -> ApprovalOutcome:
        session = request.agent.session
        if session.open_turn is None:
            raise ApprovalError(f"session {session.id}: an approval needs an open turn")
        question: dict[str, Any] = {"id": str(uuid.uuid4()), "toolName": request.tool_name}
        if request.call_id is not None:
            question["callId"] = request.call_id
        if request.reason is not None:
            question["reason"] = request.reason
        session.append("approval/asked", question)
        outcome = await self._decide(request)
        session.append("approval/decided", {"id": question["id"], "outcome": outcome})
        return outcome

    async def _decide(self, request: ApprovalRequest) -> ApprovalOutcome:
        signal = request.signal or CancelToken()
        if signal.cancelled:
            return "cancelled"
        if self.policy_of(request.agent.session) == "never":
            return "rejected"

        async def nobody() -> ApprovalOutcome:
            return "unavailable"

        async def asked() -> object:
            subject = ScopeTarget(request.agent)
            return await self._ctx.waterfall(APPROVAL_REQUEST, request, nobody, subject=subject)

        answer: object
        try:
            answer = await signal.race(asked())
        except Exception as error:
            answer = "unavailable"
            if not (isinstance(error, Cancelled) and _is_cancelled(signal)):
                self._ctx.logger.error("an answerer of approvals failed: %s", error, exc_info=error)
        if _is_cancelled(signal):
            return "cancelled"
        for outcome in APPROVAL_OUTCOMES:
            if answer == outcome:
                return outcome
        self._ctx.logger.error("an answerer of approvals answered %r, which is no outcome", answer)
        return "unavailable"


def _is_cancelled(token: CancelToken) -> bool:
    """Read anew: between two reads somebody was asked."""
    return token.cancelled


def apply(ctx: Context, config: Config) -> None:
    service = ApprovalService(ctx, config.policy)
    ctx.provide(APPROVAL, service)

    def policy_text(prompt: PromptContext) -> str | None:
        return POLICY_TEXT[service.policy_of(prompt.session)] if prompt.session is not None else None

    def tell_the_model(inner: Context) -> None:
        inner.use(SYSTEM_PROMPT).context(SECTION, SECTION_ORDER, policy_text)

    ctx.inject([SYSTEM_PROMPT], tell_the_model)
