"""Which preset new sessions get."""

from dsh.capabilities.approval import APPROVAL
from dsh.capabilities.launch import LAUNCH_ENVIRONMENT
from dsh.capabilities.sandbox import SANDBOX_POLICY
from dsh.capabilities.settings_section import install_settings_section
from dsh.errors import CompositionError
from dsh.kernel import Context, ValidationError
from dsh.plugins.permission.config import NAMESPACE, Config, Section
from dsh.plugins.permission.presets import match, problem

MODE_VARIABLE = "DSH_PERMISSION_MODE"


class Choice:
    """By variable, settings, row or composed pair, in this order."""

    def __init__(self, ctx: Context, config: Config) -> None:
        """Raises `CompositionError` where variable, row and composition give none that can be kept."""
        self._ctx, self._table = ctx, config.presets
        self._sandbox = ctx.use(SANDBOX_POLICY)
        mode, policy = self._sandbox.default_mode, ctx.use(APPROVAL).policy_of(None)
        composed = match(config.presets, mode, policy)
        self._by_variable = composed if self._variable() == mode else None
        default = self._by_variable or config.default_preset or composed
        if default is None:
            names = ", ".join(self._table) or "none"
            raise CompositionError(
                f"no preset has sandbox {mode!r} with approval {policy!r} (presets: {names})",
                hint="add such a preset, set defaultPreset, or choose both at once with DSH_PERMISSION_MODE",
            )
        if found := self._problem(default):
            raise CompositionError(f"defaultPreset: {found[0]}", hint=found[1])
        self._default = default
        self._section = install_settings_section(ctx, NAMESPACE, Section, Section(), validate=self._judge)

    def now(self) -> str:
        """The default of this moment."""
        return self._by_variable or self._section.get().default_preset or self._default

    def _variable(self) -> str:
        """What the launching environment chose; a mode that a patch has made fixed is not its choice."""
        environment = self._ctx.get(LAUNCH_ENVIRONMENT)
        found = environment.get_from(MODE_VARIABLE, ("process",)) if environment is not None else None
        return found.value if found is not None else ""

    def _judge(self, section: Section) -> None:
        if section.default_preset is None:
            return
        if found := self._problem(section.default_preset):
            raise ValidationError(found[0], "defaultPreset", hint=found[1])

    def _problem(self, name: str) -> tuple[str, str] | None:
        found = problem(self._table, name, self._sandbox.supported_modes)
        return None if found is None else found[1:]
