"""What a script that plays a model tells others: whether everything in it was used."""

from typing import Protocol

from dsh.kernel import ServiceKey


class ModelScript(Protocol):
    """The script of a composition whose model is one."""

    def assert_consumed(self) -> None:
        """Check that every call in it was made.

        Raises:
            ScriptError: `SCRIPT_UNCONSUMED`.
        """


MODEL_SCRIPT: ServiceKey[ModelScript] = ServiceKey("modelScript")
