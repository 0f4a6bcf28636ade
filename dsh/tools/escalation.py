"""Asking for a wider sandbox for one call: the two parameters, the checks and the question.

The tools that touch the machine (`bash`, `write`, `edit`) offer it where their provider confines; it is
the same for all of them (`spec/capabilities-core.md` §12).
"""

from collections.abc import Mapping
from typing import Any, cast

from dsh.capabilities.approval import APPROVAL, ApprovalRequest
from dsh.capabilities.sandbox import SANDBOX_MODES, SANDBOX_POLICY, SandboxMode, SandboxPolicy
from dsh.kernel import Context
from dsh.tools.definition import Args
from dsh.tools.error import ToolError
from dsh.tools.execution import ToolExecution

PERMISSIONS = "sandbox_permissions"
JUSTIFICATION = "justification"

REFUSALS: Mapping[str, str] = {
    "rejected": "the request for a wider sandbox was rejected; do not ask again for the same {subject}",
    "cancelled": "the request for a wider sandbox was cancelled before it was answered",
    "unavailable": "a wider sandbox needs an approval and nobody is there to give it in this run",
}


def escalation_parameters(subject: str) -> dict[str, Mapping[str, Any]]:
    """The parameters a tool adds while its provider confines.

    Args:
        subject: what one call does, in the model's words: `command` or `operation`.
    """
    return {
        PERMISSIONS: {
            "type": "string",
            "enum": list(SANDBOX_MODES[1:]),
            "description": (
                f"Run this one {subject} under a wider sandbox mode. Leave it out at first; use it only "
                f"after a sandbox denial, with the narrowest mode that lets the same {subject} succeed."
            ),
        },
        JUSTIFICATION: {
            "type": "string",
            "description": f"Why the {subject} needs the wider mode. Goes together with {PERMISSIONS}.",
        },
    }


def escalation_advice(subject: str) -> str:
    """What the description of a confined tool says about escalating."""
    return (
        f"Try every {subject} as it is first. Only when its result reports a sandbox denial, and in the same "
        f"turn, repeat the same {subject} once with {PERMISSIONS} set to the narrowest mode that suffices "
        f"and a {JUSTIFICATION}. If that is rejected, the answer is final for this {subject}."
    )


def denial_marker(mode: SandboxMode) -> str:
    """The line a result carries when the sandbox stopped something."""
    return f"[sandbox: file access denied under {mode} mode]"


def escalation_marker(subject: str) -> str:
    """The line after it where escalation is offered."""
    return (
        f"[sandbox: escalation available — retry the same {subject} once with {PERMISSIONS} "
        f"and {JUSTIFICATION}]"
    )


async def policy_of_call(
    ctx: Context,
    execution: ToolExecution,
    args: Args,
    *,
    confines: bool,
    subject: str,
) -> SandboxPolicy | None:
    """The policy one call runs under, an approved escalation included; None where nothing confines.

    The one line a tool needs before it does anything: checks the two arguments, resolves the session's
    policy, and puts the question where a wider mode is asked for.

    Args:
        confines: the tool's provider has a sandbox mode, so that the tool offers the two parameters.

    Raises:
        ToolError: the arguments are wrong, or the wider mode was not granted.
    """
    asked = asked_escalation(args, advertised=confines)
    service = ctx.get(SANDBOX_POLICY) if confines else None
    if service is None:
        if asked is not None:
            raise ToolError("a wider sandbox cannot be asked for: there is no sandbox policy")
        return None
    session = execution.agent.session if execution.agent is not None else None
    policy = service.resolve(session)
    if asked is None:
        return policy
    mode = await approve_escalation(ctx, execution, asked, current=policy.mode, subject=subject)
    return service.resolve(session, mode)


def asked_escalation(args: Args, *, advertised: bool) -> tuple[SandboxMode, str] | None:
    """What the arguments ask for: mode and justification, or None. The first check of a call.

    Raises:
        ToolError: one field without the other, a blank justification, or a tool that offers neither.
    """
    mode, reason = args.get(PERMISSIONS), args.get(JUSTIFICATION)
    if mode is None and reason is None:
        return None
    if not advertised:
        raise ToolError(f"{PERMISSIONS} and {JUSTIFICATION} are not offered here: nothing is sandboxed")
    if mode is None or reason is None:
        raise ToolError(f"{PERMISSIONS} and {JUSTIFICATION} go together: give both or neither")
    if mode not in SANDBOX_MODES:
        raise ToolError(f"{PERMISSIONS} must be one of {', '.join(SANDBOX_MODES[1:])}")
    if not isinstance(reason, str) or not reason.strip():
        raise ToolError(f"{JUSTIFICATION} must not be blank")
    return cast(SandboxMode, mode), reason.strip()


async def approve_escalation(
    ctx: Context,
    execution: ToolExecution,
    asked: tuple[SandboxMode, str],
    *,
    current: SandboxMode,
    subject: str,
) -> SandboxMode:
    """Put the question for this call and return the mode that was granted, for this call only.

    Args:
        asked: what `asked_escalation` found.
        current: the mode the call would run under without it.

    Raises:
        ToolError: the mode is not wider, nobody can be asked, or the answer is no.
    """
    mode, justification = asked
    if SANDBOX_MODES.index(mode) <= SANDBOX_MODES.index(current):
        raise ToolError(
            f"{PERMISSIONS} {mode!r} is not wider than {current!r}, the mode of this call; "
            f"leave {PERMISSIONS} and {JUSTIFICATION} out"
        )
    approval = ctx.get(APPROVAL)
    if approval is None:
        raise ToolError("a wider sandbox needs an approval and no approval service is there")
    if execution.agent is None:
        raise ToolError("a wider sandbox needs an approval, which only an agent can ask for")
    outcome = await approval.request(
        ApprovalRequest(
            agent=execution.agent,
            tool_name=execution.name,
            call_id=execution.call_id,
            reason=f"escalate sandbox to {mode}: {justification}",
            signal=execution.signal,
        )
    )
    if outcome != "allowed-once":
        raise ToolError(REFUSALS[outcome].format(subject=subject))
    return mode
