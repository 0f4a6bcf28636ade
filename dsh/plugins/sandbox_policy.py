"""Row `sandbox-policy`: under which mode and in which workspace a session's calls run.

A mode that no sandbox here can keep is refused at the start rather than kept in name only.
"""

import contextlib
import json
import os

import msgspec

from dsh.agent.prompt import SYSTEM_PROMPT, PromptContext
from dsh.capabilities import scratch
from dsh.capabilities.fs import FsError
from dsh.capabilities.local_fs.fence import writable_roots
from dsh.capabilities.local_fs.path import checked, is_within
from dsh.capabilities.sandbox import (
    SANDBOX,
    SANDBOX_MODES,
    SANDBOX_POLICY,
    Sandbox,
    SandboxMode,
    SandboxPolicy,
    SandboxUnavailable,
)
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.session.log import Session
from dsh.session.store import SESSION_DISPOSED

inject = [SANDBOX]
provide = [SANDBOX_POLICY]

SECTION = "sandbox:policy"
SECTION_ORDER = 110


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row. Paths are absolute or start with `~/`."""

    mode: SandboxMode = "read-only"
    """For sessions whose log says nothing else."""
    workspace_root: str | None = None
    """For sessions without a directory of their own; unset: the working directory of the process."""
    extra_roots: list[str] = []
    """More directories that `workspace-write` may change."""
    protected_paths: list[str] = []
    """What `workspace-write` may not change although it lies in a directory that it may change; `.git/hooks`
    and `.dsh` of the workspace and of the extra directories are protected anyway. A directory that is itself
    one of those that may be changed is not protected by this.
    """
    hidden_paths: list[str] = []
    """What the confined modes may not even read, with all that lies below. Neither the directories that may
    be changed nor the temporary folder may lie in it.
    """
    network: bool = True
    """Whether confined commands have a network. Web tools and MCP servers have it in any case."""

    def __post_init__(self) -> None:
        if self.workspace_root is not None:
            _judge("workspaceRoot", self.workspace_root)
        for key, paths in (
            ("extraRoots", self.extra_roots),
            ("protectedPaths", self.protected_paths),
            ("hiddenPaths", self.hidden_paths),
        ):
            for path in paths:
                _judge(key, path)
                if not os.path.isabs(os.path.expanduser(path)):  # noqa: PTH111, PTH117
                    raise ValueError(f"{key}: {path!r:.80} is neither absolute nor starts with ~/")


def _judge(key: str, path: str) -> None:
    try:
        checked(path)
    except FsError as error:
        raise ValueError(f"{key}: {error.message}") from None


def _canonical(paths: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(os.path.expanduser(path)) for path in paths))  # noqa: PTH111


class SandboxPolicies:
    """Resolves policies. Implements `dsh.capabilities.sandbox.SandboxPolicyService`.

    Every path is made canonical once, when it is first seen: what a command puts in its place later is not
    followed.
    """

    def __init__(self, config: Config, sandbox: Sandbox) -> None:
        self._default_mode = config.mode
        self._sandbox = sandbox
        self._real: dict[str, str] = {}
        self._workspace_root = self._realpath(config.workspace_root or ".")
        self._is_network_open = config.network
        self._extra_roots = _canonical(config.extra_roots)
        self._hidden_paths = _canonical(config.hidden_paths)
        self._protected_paths = _canonical(config.protected_paths)

    @property
    def default_mode(self) -> SandboxMode:
        return self._default_mode

    @property
    def supported_modes(self) -> tuple[SandboxMode, ...]:
        return SANDBOX_MODES if self._sandbox.has_backends else SANDBOX_MODES[-1:]

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
        own = self.override_of(session) if session is not None else None
        root = session.header.cwd if session is not None else None
        return SandboxPolicy(
            mode or own or self._default_mode,
            self._realpath(root) if root else self._workspace_root,
            session.id if session is not None else None,
            _temp_folder(session),
            self._extra_roots,
            self._is_network_open,
            self._hidden_paths,
            self._protected_paths,
        )

    def _realpath(self, path: str) -> str:
        if path not in self._real:
            self._real[path] = os.path.realpath(path)
        return self._real[path]


def _temp_folder(session: Session | None) -> str | None:
    """The folder of a session; calls outside of all sessions share one. None where none can be made."""
    with contextlib.suppress(OSError):
        return str(scratch.session_folder(session.id if session is not None else ""))
    return None


def describe(policy: SandboxPolicy) -> str:
    """What the model is told of a policy."""
    root = json.dumps(policy.workspace_root, ensure_ascii=False)
    network = "" if policy.is_network_open else " Commands have no network."
    match policy.mode:
        case "read-only":
            return (
                "File policy: read-only. Files may be read, none may be changed. If the task needs a change, "
                f"attempt it as usual and follow what the denial says.{network}"
            )
        case "workspace-write":
            return (
                f"File policy: workspace-write. Files inside {_listed(policy)} may be changed, and so may "
                "those in the temporary folder $TMPDIR, which is the session's own: use it in place of /tmp. "
                f"Everything else is read-only; `.git/hooks` and `.dsh` are protected.{network}"
            )
        case "danger-full-access":
            return (
                f"File policy: danger-full-access. Nothing is confined: commands and file tools may change "
                f"whatever this user may change. The workspace is {root}."
            )


def _listed(policy: SandboxPolicy) -> str:
    workspace, *more = (
        json.dumps(root, ensure_ascii=False) for root in (policy.workspace_root, *policy.extra_roots)
    )
    return f"the workspace {workspace}" + "".join(f" and {root}" for root in more)


def _refuse_what_hides_too_much(policy: SandboxPolicy) -> None:
    for root in writable_roots(msgspec.structs.replace(policy, mode="workspace-write")):
        for path in policy.hidden_paths:
            if is_within(path, root):
                raise CompositionError(
                    f"hiddenPaths: in {path!r} lies {root!r}, where the session works",
                    hint="hide only what is not needed, such as ~/.ssh",
                )


def policies_of(config: Config, sandbox: Sandbox) -> SandboxPolicies:
    """The service of a row.

    Raises:
        CompositionError: what a session needs would be hidden.
    """
    service = SandboxPolicies(config, sandbox)
    if config.hidden_paths and config.mode != "danger-full-access":
        _refuse_what_hides_too_much(service.resolve())
    return service


async def apply(ctx: Context, config: Config) -> None:
    service = policies_of(config, ctx.use(SANDBOX))
    try:
        await ctx.use(SANDBOX).require(config.mode)
    except SandboxUnavailable as error:
        raise CompositionError(error.message, hint=error.hint) from None
    ctx.provide(SANDBOX_POLICY, service)
    ctx.on(SESSION_DISPOSED, lambda session: scratch.drop_session(session.id))

    def policy_text(prompt: PromptContext) -> str | None:
        return describe(service.resolve(prompt.session)) if prompt.session is not None else None

    def tell_the_model(inner: Context) -> None:
        inner.use(SYSTEM_PROMPT).context(SECTION, SECTION_ORDER, policy_text)

    ctx.inject([SYSTEM_PROMPT], tell_the_model)
