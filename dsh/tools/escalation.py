"""Asking for a wider sandbox for one call: the two parameters, the checks and the question.

The tools that touch the machine (`bash`, `write`, `edit`) offer it where their provider confines; it is
the same for all of them (`spec/capabilities-core.md` §12).
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

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


class Escalation(msgspec.Struct, frozen=True):
    """What one tool offers of it, and the ways it does so."""

    subject: str
    """What one call does, in the model's words: `command` or `operation`."""
    is_offered: bool
    """The tool's provider confines."""

    def parameters(self, own: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """A tool's own parameters and, where it is offered, the two of an escalation."""
        if not self.is_offered:
            return dict(own)
        return {
            **own,
            PERMISSIONS: {
                "type": "string",
                "enum": list(SANDBOX_MODES[1:]),
                "description": (
                    f"Run this one {self.subject} under a wider sandbox mode. Leave it out at first; use it "
                    "only after a sandbox denial, with the narrowest mode that suffices."
                ),
            },
            JUSTIFICATION: {
                "type": "string",
                "description": f"Why the {self.subject} needs the wider mode. Goes with {PERMISSIONS}.",
            },
        }

    def description(self, text: str) -> str:
        """A tool's description and, where it is offered, how to go about an escalation."""
        if not self.is_offered:
            return text
        return (
            f"{text} Try every {self.subject} as it is first. Only when its result reports a sandbox denial, "
            f"and in the same turn, repeat the same {self.subject} once with {PERMISSIONS} set to the "
            f"narrowest mode that suffices and a {JUSTIFICATION}. If that is rejected, the answer is final "
            f"for this {self.subject}."
        )

    def denial(self, mode: SandboxMode) -> str:
        """The lines a result carries when the sandbox stopped something. Protocol: displays parse them."""
        lines = [f"[sandbox: file access denied under {mode} mode]"]
        if self.is_offered:
            lines.append(
                f"[sandbox: escalation available — retry the same {self.subject} once with {PERMISSIONS} "
                f"and {JUSTIFICATION}]"
            )
        return "\n".join(lines)

    async def policy_of(self, ctx: Context, execution: ToolExecution, args: Args) -> SandboxPolicy | None:
        """The policy a call runs under, an approved escalation included; None where nothing confines.

        The one line a tool needs before it does anything: checks the two arguments, resolves the session's
        policy, and puts the question where a wider mode is asked for.

        Raises:
            ToolError: the arguments are wrong, or the wider mode was not granted.
        """
        asked = asked_escalation(args, advertised=self.is_offered)
        service = ctx.get(SANDBOX_POLICY) if self.is_offered else None
        if service is None:
            if asked is not None:
                raise ToolError("a wider sandbox cannot be asked for: there is no sandbox policy")
            return None
        policy = service.resolve(execution.session)
        if asked is None:
            return policy
        mode = await approve_escalation(ctx, execution, asked, current=policy.mode, subject=self.subject)
        return service.resolve(execution.session, mode)


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
        raise ToolError(REFUSALS.get(outcome, REFUSALS["unavailable"]).format(subject=subject))
    return mode
