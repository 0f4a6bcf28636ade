"""Asking for a wider sandbox for one call."""

from typing import Any

import pytest

from dsh.capabilities.approval import APPROVAL, ApprovalOutcome, ApprovalRequest
from dsh.capabilities.sandbox import SANDBOX_MODES, SANDBOX_POLICY, SandboxMode, SandboxPolicy
from dsh.kernel import Context
from dsh.session.log import Session
from dsh.tools.dsl import compile_parameters
from dsh.tools.error import ToolError
from dsh.tools.escalation import Escalation, approve_escalation, asked_escalation
from dsh.tools.execution import ToolExecution
from tests.aio import aio
from tests.tools.kit import StandInAgent, call

OFFERED = Escalation("command", is_offered=True)
NOT_OFFERED = Escalation("command", is_offered=False)


class Answer:
    """An approval service with one answer."""

    def __init__(self, outcome: ApprovalOutcome) -> None:
        self.outcome = outcome
        self.asked: list[ApprovalRequest] = []

    async def request(self, request: ApprovalRequest) -> ApprovalOutcome:
        self.asked.append(request)
        return self.outcome

    def policy_of(self, session: Session | None) -> Any:
        return "ask"

    def set_policy(self, agent: object, policy: object) -> bool:
        return False


def execution(*, has_agent: bool = True) -> ToolExecution:
    agent = StandInAgent(Context()) if has_agent else None
    return ToolExecution(call("bash", agent=agent), {})


def test_the_parameters_are_two_optional_strings() -> None:
    schema = compile_parameters(OFFERED.parameters({"x": {"type": "string"}}))

    assert list(schema["properties"]) == ["x", "sandbox_permissions", "justification"]
    assert schema["properties"]["sandbox_permissions"]["enum"] == ["workspace-write", "danger-full-access"]
    assert "required" not in schema


def test_neither_field_asks_for_nothing() -> None:
    assert asked_escalation({"command": "ls"}, advertised=False) is None


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"sandbox_permissions": "workspace-write"}, "go together"),
        ({"justification": "because"}, "go together"),
        ({"sandbox_permissions": "workspace-write", "justification": " \n"}, "blank"),
        ({"sandbox_permissions": "root", "justification": "because"}, "must be one of"),
    ],
)
def test_both_or_neither_and_a_reason(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolError, match=problem) as failure:
        asked_escalation(args, advertised=True)

    assert failure.value.code == ""


def test_a_tool_that_does_not_offer_it_refuses() -> None:
    with pytest.raises(ToolError, match="not offered"):
        asked_escalation(
            {"sandbox_permissions": "workspace-write", "justification": "because"}, advertised=False
        )


@pytest.mark.parametrize(
    ("current", "wanted"),
    [
        ("workspace-write", "workspace-write"),
        ("danger-full-access", "workspace-write"),
        ("danger-full-access", "danger-full-access"),
    ],
)
@aio
async def test_a_mode_that_is_not_wider_is_refused_without_a_question(
    current: SandboxMode, wanted: SandboxMode
) -> None:
    ctx, answer = Context(), Answer("allowed-once")
    ctx.provide(APPROVAL, answer)

    with pytest.raises(ToolError, match="not wider"):
        await approve_escalation(ctx, execution(), (wanted, "why"), current=current, subject="command")

    assert answer.asked == []


@aio
async def test_a_granted_mode_is_returned_and_the_question_names_it() -> None:
    ctx, answer = Context(), Answer("allowed-once")
    ctx.provide(APPROVAL, answer)

    mode = await approve_escalation(
        ctx, execution(), ("danger-full-access", "install it"), current="workspace-write", subject="command"
    )

    (request,) = answer.asked
    assert mode == "danger-full-access"
    assert request.reason == "escalate sandbox to danger-full-access: install it"
    assert (request.tool_name, request.call_id) == ("bash", "c1")


@aio
async def test_each_refusal_has_its_own_text_and_no_code() -> None:
    texts: set[str] = set()
    outcomes: list[ApprovalOutcome] = ["rejected", "cancelled", "unavailable"]
    for outcome in outcomes:
        ctx = Context()
        ctx.provide(APPROVAL, Answer(outcome))
        with pytest.raises(ToolError) as failure:
            await approve_escalation(
                ctx, execution(), ("workspace-write", "why"), current="read-only", subject="command"
            )
        assert failure.value.code == ""
        texts.add(failure.value.message)

    assert len(texts) == 3 and not any("{" in t for t in texts)


@aio
async def test_without_a_service_or_an_agent_there_is_nobody_to_ask() -> None:
    ctx = Context()
    with pytest.raises(ToolError, match="no approval service"):
        await approve_escalation(
            ctx, execution(), ("workspace-write", "why"), current="read-only", subject="command"
        )
    ctx.provide(APPROVAL, Answer("allowed-once"))

    with pytest.raises(ToolError, match="only an agent"):
        await approve_escalation(
            ctx,
            execution(has_agent=False),
            ("workspace-write", "why"),
            current="read-only",
            subject="command",
        )


class Policies:
    """A sandbox policy service with one default."""

    default_mode: SandboxMode = "read-only"
    supported_modes = SANDBOX_MODES

    def resolve(self, session: Session | None = None, mode: SandboxMode | None = None) -> SandboxPolicy:
        return SandboxPolicy(mode or self.default_mode, "/w", None if session is None else session.id)


WIDER = {"sandbox_permissions": "workspace-write", "justification": "must write"}


@aio
async def test_the_policy_of_a_call_is_the_sessions_or_the_granted_one() -> None:
    ctx = Context()
    ctx.provide(APPROVAL, Answer("allowed-once"))
    assert await OFFERED.policy_of(ctx, execution(), {}) is None
    with pytest.raises(ToolError, match="no sandbox policy"):
        await OFFERED.policy_of(ctx, execution(), WIDER)
    ctx.provide(SANDBOX_POLICY, Policies())

    plain = await OFFERED.policy_of(ctx, execution(), {})
    wider = await OFFERED.policy_of(ctx, execution(), WIDER)
    unconfined = await NOT_OFFERED.policy_of(ctx, execution(), {})

    assert plain == SandboxPolicy("read-only", "/w", "a1")
    assert wider == SandboxPolicy("workspace-write", "/w", "a1")
    assert unconfined is None


@aio
async def test_one_field_alone_is_an_error_before_the_policy_is_looked_at() -> None:
    with pytest.raises(ToolError, match="go together"):
        await OFFERED.policy_of(Context(), execution(), {"sandbox_permissions": "danger-full-access"})


def test_a_denial_is_bracketed_lines_the_second_only_where_it_helps() -> None:
    denied = "[sandbox: file access denied under read-only mode]"
    first, second = OFFERED.denial("read-only").split("\n")

    assert first == NOT_OFFERED.denial("read-only") == denied
    assert second.startswith("[sandbox: escalation available — retry the same command once with")
    assert second.endswith("]")


def test_what_is_not_offered_is_not_spoken_of() -> None:
    assert NOT_OFFERED.parameters({"x": {"type": "string"}}) == {"x": {"type": "string"}}
    assert NOT_OFFERED.description("Do it.") == "Do it."
    assert "sandbox_permissions" in OFFERED.description("Do it.")
