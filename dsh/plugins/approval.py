"""Row `approval`: puts questions to whoever can answer, and logs question and answer."""

import asyncio
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
from dsh.kernel.foreign import contained, told
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.tools.leftover import leave_with
from dsh.unicode import valid

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
            question["reason"] = valid(request.reason)
        session.append("approval/asked", question)
        outcome = await self._decide(request)
        session.append("approval/decided", {"id": question["id"], "outcome": outcome})
        return outcome

    async def _decide(self, request: ApprovalRequest) -> ApprovalOutcome:
        signal = request.signal or CancelToken()
        if signal.cancelled:
            return "cancelled"
        if self.policy_of(request.agent.session) == "never":
            self._ctx.logger.warning("%s needed an approval, refused by policy never", request.tool_name)
            return "rejected"
        answering = asyncio.ensure_future(self._ask(request))
        try:
            answer = await signal.race(answering)
            signal.raise_if_cancelled()
        except Cancelled:
            leave_with(self._ctx, answering, "an answerer of approvals")
            return "cancelled"
        except asyncio.CancelledError:
            answering.cancel()
            raise
        return answer

    async def _ask(self, request: ApprovalRequest) -> ApprovalOutcome:
        """What the answerers say; one that fails or says something else has not answered."""

        async def nobody() -> ApprovalOutcome:
            self._ctx.logger.warning(
                "%s needed an approval and nobody is there to give it", request.tool_name
            )
            return "unavailable"

        subject = ScopeTarget(request.agent)
        try:
            answer: ApprovalOutcome = await self._ctx.waterfall(
                APPROVAL_REQUEST, request, nobody, subject=subject
            )
        except BaseException as raised:
            error = contained(raised, "an answerer of approvals")
            stopped = isinstance(error, Cancelled) and request.signal is not None and request.signal.cancelled
            if not stopped:
                self._ctx.logger.error("an answerer of approvals failed: %s", told(error), exc_info=error)
            return "unavailable"
        return self._sound(answer)

    def _sound(self, answer: object) -> ApprovalOutcome:
        """The answer, if it is one."""
        if type(answer) is str:
            for outcome in APPROVAL_OUTCOMES:
                if answer == outcome:
                    return outcome
        found = f"{answer!r:.60}" if type(answer) is str else f"a value of type {type(answer).__name__}"
        self._ctx.logger.error("an answerer of approvals answered %s, which is no outcome", found)
        return "unavailable"


def apply(ctx: Context, config: Config) -> None:
    service = ApprovalService(ctx, config.policy)
    ctx.provide(APPROVAL, service)

    def policy_text(prompt: PromptContext) -> str | None:
        return POLICY_TEXT[service.policy_of(prompt.session)] if prompt.session is not None else None

    def tell_the_model(inner: Context) -> None:
        inner.use(SYSTEM_PROMPT).context(SECTION, SECTION_ORDER, policy_text)

    ctx.inject([SYSTEM_PROMPT], tell_the_model)
