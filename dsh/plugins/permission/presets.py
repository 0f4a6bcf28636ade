"""The table of presets: what a new session's log gets, which preset a session has, and the change of it.

There is no state but the logs. A damaged event counts as the narrowest of what it could say.
"""

from collections.abc import Callable, Mapping

from dsh.capabilities.agent import AgentRef, TellableAgent
from dsh.capabilities.approval import Approval, ApprovalError
from dsh.capabilities.permission import CUSTOM, Preset, PresetError
from dsh.capabilities.sandbox import SandboxMode, SandboxPolicyService
from dsh.session.log import Session


class Presets:
    """Implements `dsh.capabilities.permission.Permissions`."""

    def __init__(
        self,
        table: Mapping[str, Preset],
        default: Callable[[], str],
        sandbox: SandboxPolicyService,
        approval: Approval,
        is_live: Callable[[AgentRef], bool],
    ) -> None:
        self._table, self._default_now, self._is_live = dict(table), default, is_live
        self._sandbox, self._approval = sandbox, approval

    @property
    def table(self) -> Mapping[str, Preset]:
        return dict(self._table)

    @property
    def default(self) -> str:
        return self._default_now()

    def pin(self, session: Session) -> None:
        """Log what the session's log does not say yet: preset, sandbox mode, approval policy, in that order.

        What it does say, in a seed for instance, stays: the missing half of a pair comes from the preset
        it names, else from the default, and a pair without a name gets none.
        """
        chosen = logged(session, "permission/preset", "preset")
        mode, policy = logged(session, "sandbox/mode", "mode"), logged(session, "approval/policy", "policy")
        default = self._default_now()
        base = self._table.get(chosen or default, self._table[default])
        if chosen is None:
            pair = (base.sandbox if mode is None else mode, base.approval if policy is None else policy)
            is_fresh = mode is None and policy is None
            preset = default if is_fresh else match(self._table, *pair)
            if preset is not None:
                session.append("permission/preset", {"preset": preset})
        if mode is None:
            session.append("sandbox/mode", {"mode": base.sandbox})
        if policy is None:
            session.append("approval/policy", {"policy": base.approval})

    def effective(self, session: Session) -> str:
        mode, policy = self._sandbox.resolve(session).mode, self._approval.policy_of(session)
        chosen = logged(session, "permission/preset", "preset")
        entry = self._table.get(chosen) if chosen is not None else None
        if chosen is not None and entry is not None and (entry.sandbox, entry.approval) == (mode, policy):
            return chosen
        return match(self._table, mode, policy) or CUSTOM

    def choose(self, agent: TellableAgent, key: str) -> bool:
        entry, session = entry_of(self._table, key, self._sandbox.supported_modes), agent.session
        if not self._is_live(agent):
            raise ApprovalError(f"agent {agent.id} has ended, its permissions cannot be changed")
        if self.effective(session) == key:
            return False
        session.append("permission/preset", {"preset": key})
        if logged(session, "sandbox/mode", "mode") != entry.sandbox:
            session.append("sandbox/mode", {"mode": entry.sandbox})
        self._approval.set_policy(agent, entry.approval)
        if logged(session, "approval/policy", "policy") != entry.approval:
            session.append("approval/policy", {"policy": entry.approval})
        return True


def entry_of(table: Mapping[str, Preset], key: str, supported: tuple[SandboxMode, ...]) -> Preset:
    """The preset of that name.

    Raises:
        PresetError: there is none, or its sandbox mode cannot be kept.
    """
    if key not in table:
        raise PresetError(
            f"{key!r:.60} is not a preset",
            code="UNKNOWN_PRESET",
            hint=f"presets: {', '.join(table) or 'none'}",
        )
    if (mode := table[key].sandbox) not in supported:
        raise PresetError(
            f"preset {key!r} asks for sandbox mode {mode!r}, which cannot be kept",
            code="UNSUPPORTED_MODE",
            hint=f"modes that can: {', '.join(supported)}",
        )
    return table[key]


def logged(session: Session, kind: str, key: str) -> str | None:
    """What the last event of a kind says, None where there is none; a damaged one says nothing usable."""
    event = session.last(kind)
    if event is None:
        return None
    value = event.data.get(key) if isinstance(event.data, dict) else None
    return value if isinstance(value, str) else ""


def match(table: Mapping[str, Preset], sandbox: str, approval: str) -> str | None:
    """The first entry with this pair."""
    pair = (sandbox, approval)
    return next((name for name, entry in table.items() if (entry.sandbox, entry.approval) == pair), None)
