"""What a script that plays a model tells others: whether everything in it was used."""

from typing import Protocol

from dsh.kernel import Context, ServiceKey
from dsh.llm.script.error import ScriptError


class ModelScript(Protocol):
    """The script of a composition whose model is one."""

    @property
    def is_begun(self) -> bool:
        """Whether a call was made at all."""

    def assert_consumed(self) -> None:
        """Check that every call in it was made.

        Raises:
            ScriptError: `SCRIPT_UNCONSUMED`.
        """


MODEL_SCRIPT: ServiceKey[ModelScript] = ServiceKey("modelScript")


def provide_script(ctx: Context, script: ModelScript) -> None:
    """Provide a script, and warn when the row goes before every call in it was made; a run that asks for none
    has something else to say."""

    def tell() -> None:
        if not script.is_begun:
            return
        try:
            script.assert_consumed()
        except ScriptError as error:
            ctx.logger.warning(str(error))

    ctx.effect(lambda: tell, "what is left of the script")
    ctx.provide(MODEL_SCRIPT, script)
