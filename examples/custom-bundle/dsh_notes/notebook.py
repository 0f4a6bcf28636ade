"""Plugin `notebook`: keeps notes for as long as it is mounted."""

import msgspec

from dsh.capabilities.launch import APP_OUTPUT
from dsh.kernel import Context, Service
from dsh_notes.contract import NOTEBOOK, NOTED

inject = [APP_OUTPUT]
provide = [NOTEBOOK]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    max_notes: int = 100
    """More are refused."""


class Notes(Service):
    """Holds the notes. Implements `Notebook`."""

    provide = NOTEBOOK

    def __init__(self, ctx: Context, config: Config) -> None:
        super().__init__(ctx)
        self._config = config
        self._notes: list[str] = []

    def add(self, text: str) -> None:
        if len(self._notes) >= self._config.max_notes:
            raise ValueError(f"the notebook holds {self._config.max_notes} notes and is full")
        self._notes.append(text)
        self.ctx.effect(lambda: lambda: self._notes.remove(text), f"note {text!r}")
        self.ctx.emit(NOTED, text)

    def all(self) -> list[str]:
        return list(self._notes)


def apply(ctx: Context, config: Config) -> None:
    Notes(ctx, config)
    output = ctx.use(APP_OUTPUT)
    ctx.on(NOTED, lambda text: output.notice(f"noted: {text}"))
