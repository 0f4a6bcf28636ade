"""Row `shell-env`: the `DSH_*` variables that commands see. Inherited ones never reach them."""

import re
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from dsh.capabilities.launch import HOME_PATH
from dsh.capabilities.shell_env import SHELL_ENV, EnvContributor
from dsh.composition.home import home_path
from dsh.errors import CompositionError
from dsh.kernel import Context, Service
from dsh.persistence.service import PERSISTENCE
from dsh.session.log import Session

provide = [SHELL_ENV]

NAME = re.compile(r"DSH_[A-Z][A-Z0-9_]*")
BUILT_IN = {
    "DSH_HOME": "where dsh keeps its files",
    "DSH_SHELL": "1 in every command an agent runs",
    "DSH_SESSION_ID": "the session the command belongs to",
}


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the `shell-env` row."""

    dsh_home: str | None = None
    """Shown as `DSH_HOME`; unset: the home of this process."""


class ShellEnvService(Service):
    """Collects the managed variables of all contributors."""

    provide = SHELL_ENV

    def __init__(self, ctx: Context, home: str) -> None:
        super().__init__(ctx)
        self._home = home
        self._contributors: dict[str, EnvContributor] = {}

    def contribute(self, contributor: EnvContributor) -> None:
        taken = {**BUILT_IN, **{n: "" for c in self._contributors.values() for n in c.variables}}
        if contributor.name in self._contributors:
            raise CompositionError(f"shell environment contributor {contributor.name!r} is already there")
        for name, description in contributor.variables.items():
            if not NAME.fullmatch(name) or name in taken or not description.strip():
                raise CompositionError(
                    f"shell environment contributor {contributor.name!r}: variable {name!r} must match "
                    f"{NAME.pattern}, be new and have a description"
                )
        self._contributors[contributor.name] = contributor
        undo = self._contributors.pop
        self.ctx.effect(lambda: lambda: undo(contributor.name, None), f"variables of {contributor.name}")

    def collect(self, session: Session | None) -> Mapping[str, str]:
        values = {"DSH_HOME": self._home, "DSH_SHELL": "1"}
        if session is not None:
            values["DSH_SESSION_ID"] = session.id
        for contributor in self._contributors.values():
            for name, value in contributor.resolve(session).items():
                if name not in contributor.variables or not isinstance(value, str):
                    raise CompositionError(
                        f"shell environment contributor {contributor.name!r} gave {name!r}, which it does "
                        "not declare or which is no string"
                    )
                values[name] = value
        return MappingProxyType(dict(sorted(values.items())))


def apply(ctx: Context, config: Config) -> None:
    home = ctx.get(HOME_PATH)
    default = str(home()) if home is not None else str(home_path())
    service = ShellEnvService(ctx, config.dsh_home or default)

    def session_file(session: Session | None) -> Mapping[str, str]:
        persistence = ctx.get(PERSISTENCE)
        if persistence is None or session is None:
            return {}
        place = persistence.locate(session.header)
        return {"DSH_SESSION_JSONL": str(place)} if place is not None else {}

    service.contribute(
        EnvContributor("session-log", {"DSH_SESSION_JSONL": "the session's log file"}, session_file)
    )
