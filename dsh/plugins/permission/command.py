"""The command `/permission`: shows the presets, or gives the session another one."""

from collections.abc import Iterator

from dsh.capabilities.commands import Command, CommandCall, CommandSuccess
from dsh.capabilities.permission import Permissions, Preset
from dsh.session.log import Session


def permission_command(permissions: Permissions) -> Command:
    """The command over one table of presets."""

    async def run(call: CommandCall) -> CommandSuccess:
        key = call.raw_input.strip()
        if not key:
            return CommandSuccess("\n".join(_listed(permissions, call.agent.session)))
        permissions.choose(call.agent, key)
        return CommandSuccess(f"Permission preset: {key}.")

    return Command(
        name="permission",
        description="Show the permission presets, or choose one for this session.",
        input_hint="[preset]",
        handler=run,
    )


def _listed(permissions: Permissions, session: Session) -> Iterator[str]:
    effective = permissions.effective(session)
    yield f"Permission preset: {effective}."
    for key, preset in permissions.table.items():
        yield f"{'*' if key == effective else ' '} {key}: {_described(preset)}"


def _described(preset: Preset) -> str:
    pair = f"sandbox {preset.sandbox}, approval {preset.approval}"
    words = [word for word in (preset.name, preset.description) if word]
    return f"{'; '.join(words)} ({pair})" if words else pair
