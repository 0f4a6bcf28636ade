"""Row `sandbox-policy`: under which mode and in which workspace a session's calls run.

Confinement itself is not built yet. Until it is, a mode that promises it is refused at the start rather
than kept in name only.
"""

import json
import os

import msgspec

from dsh.agent.prompt import SYSTEM_PROMPT, PromptContext
from dsh.capabilities.sandbox import SANDBOX_MODES, SANDBOX_POLICY, SandboxMode, SandboxPolicy
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.session.log import Session

provide = [SANDBOX_POLICY]

SUPPORTED: tuple[SandboxMode, ...] = ("danger-full-access",)
SECTION = "sandbox:policy"
SECTION_ORDER = 110


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    mode: SandboxMode = "read-only"
    """For sessions whose log says nothing else."""
    workspace_root: str | None = None
    """For sessions without a directory of their own; unset: the working directory of the process."""


class SandboxPolicies:
    """Resolves policies. Implements `dsh.capabilities.sandbox.SandboxPolicyService`."""

    def __init__(self, default_mode: SandboxMode, workspace_root: str) -> None:
        self._default_mode = default_mode
        self._workspace_root = workspace_root

    @property
    def default_mode(self) -> SandboxMode:
        return self._default_mode

    @property
    def supported_modes(self) -> tuple[SandboxMode, ...]:
        return SUPPORTED

    def override_of(self, session: Session) -> SandboxMode | None:
        """The mode that the session's log chose last. A word we do not know is the narrowest mode."""
        event = session.last("sandbox/mode")
        if event is None:
            return None
        chosen = event.data.get("mode") if isinstance(event.data, dict) else None
        for mode in SANDBOX_MODES:
            if chosen == mode:
                return mode
        return SANDBOX_MODES[0]

    def resolve(self, session: Session | None = None, mode: SandboxMode | None = None) -> SandboxPolicy:
        """What a call runs under: the approved `mode`, else the session's, else the row's."""
        if session is None:
            return SandboxPolicy(mode or self._default_mode, os.path.realpath(self._workspace_root))
        return SandboxPolicy(
            mode or self.override_of(session) or self._default_mode,
            os.path.realpath(session.header.cwd or self._workspace_root),
            session.id,
        )


def describe(policy: SandboxPolicy) -> str:
    """What the model is told of a policy."""
    root = json.dumps(policy.workspace_root, ensure_ascii=False)
    match policy.mode:
        case "read-only":
            return (
                "File policy: read-only. Files may be read, none may be changed. If the task needs a change, "
                "attempt it as usual and follow what the denial says."
            )
        case "workspace-write":
            return (
                f"File policy: workspace-write. Files inside the workspace {root} may be changed, and so may "
                "the temporary folder; everything else is read-only."
            )
        case "danger-full-access":
            return (
                f"File policy: danger-full-access. Nothing is confined: commands and file tools may change "
                f"whatever this user may change. The workspace is {root}."
            )


def apply(ctx: Context, config: Config) -> None:
    if config.mode not in SUPPORTED:
        raise CompositionError(
            f"mode {config.mode!r} cannot be kept, confinement is not built yet",
            hint="set DSH_PERMISSION_MODE=danger-full-access, or that mode in the row, to run unconfined",
        )
    service = SandboxPolicies(config.mode, os.path.realpath(config.workspace_root or "."))
    ctx.provide(SANDBOX_POLICY, service)

    def policy_text(prompt: PromptContext) -> str | None:
        return describe(service.resolve(prompt.session)) if prompt.session is not None else None

    def tell_the_model(inner: Context) -> None:
        inner.use(SYSTEM_PROMPT).context(SECTION, SECTION_ORDER, policy_text)

    ctx.inject([SYSTEM_PROMPT], tell_the_model)
