"""What the launcher says on its own account once the tree stands."""

from dsh.capabilities.launch import LaunchEnvironment
from dsh.capabilities.sandbox import SANDBOX_POLICY
from dsh.capabilities.settings import SETTINGS
from dsh.composition.compose import Composition
from dsh.kernel import Context
from dsh.persistence.service import PERSISTENCE
from dsh.session.store import SESSIONS

MODE_VARIABLE = "DSH_PERMISSION_MODE"
POLICY_ROW = "sandbox-policy"
SECTION = "permission"
UNCONFINED = (
    "dsh: commands and file tools are not confined: they may do what you may "
    f"({MODE_VARIABLE}=danger-full-access says that you know)"
)

NOT_STORED = (
    "dsh: sessions are not stored: no row provides sessionPersistence (row session-persistence-jsonl does)"
)


def notices(root: Context, environment: LaunchEnvironment, composition: Composition) -> list[str]:
    """The lines on what a run does without, in the order in which they are to be printed."""
    found = []
    if (text := unconfined_notice(root, environment, composition)) is not None:
        found.append(text)
    if root.get(SESSIONS) is not None and root.get(PERSISTENCE) is None:
        found.append(NOT_STORED)
    return found


def unconfined_notice(root: Context, environment: LaunchEnvironment, composition: Composition) -> str | None:
    """The line that tells about missing walls, unless the user chose so by variable, patch or settings."""
    policy = root.get(SANDBOX_POLICY)
    if policy is None or policy.default_mode != "danger-full-access":
        return None
    if environment.get(MODE_VARIABLE) is not None or _is_chosen(composition) or _is_saved(root):
        return None
    return UNCONFINED


def _is_chosen(composition: Composition) -> bool:
    """Whether a file of the user, whose layer is labelled by its path, configures the policy row."""
    return any(
        patch.get("id") == POLICY_ROW and ("config" in patch or "merge" in patch)
        for layer in composition.layers
        if layer.label.startswith("/")
        for patch in layer.patches
    )


def _is_saved(root: Context) -> bool:
    """Whether the user's settings name the preset of new sessions."""
    settings = root.get(SETTINGS)
    described = settings.describe(SECTION) if settings is not None else []
    return any(section.user for section in described)
