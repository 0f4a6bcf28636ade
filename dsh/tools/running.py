"""A body at work: what its tool stands on is not restarted meanwhile, unless nobody waits for it any more."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any

from dsh.kernel import Context
from dsh.tools.leftover import leave_with


class Running:
    """Holds the plugin that registered a tool while a body of the tool runs. State: the hold."""

    def __init__(self, owner: Context, name: str) -> None:
        """`owner` is the context that the tool was registered through."""
        self._owner, self._who = owner, f"tool {name}"
        self._release: Callable[[], None] | None = None

    def __enter__(self) -> "Running":
        self._release = self._owner.fiber.hold(f"{self._who} is running")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_go()

    def leave(self, task: "asyncio.Task[Any]") -> None:
        """The body was given up in the middle: it ends with its plugin, which it no longer holds."""
        if self._release is not None:
            self._let_go()
            leave_with(self._owner, task, self._who)

    def _let_go(self) -> None:
        if self._release is not None:
            self._release()
            self._release = None
