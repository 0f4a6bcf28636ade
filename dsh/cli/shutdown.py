"""Decides when and with which code the process ends: one bounded disposal, the first code wins."""

import asyncio
import os
from collections.abc import Awaitable, Callable

DISPOSAL_S = 5.0
"""How long undoing the whole tree may take."""


class Shutdown:
    """Holds the one end of the process. Rules: `spec/composition.md` §9.

    `request` is a normal end: later ones join, the first code wins. `interrupt` is a signal: with an end
    already under way it forces the process out at once with its own code.
    """

    def __init__(
        self,
        dispose: Callable[[], Awaitable[None]],
        *,
        force: Callable[[int], None] = os._exit,
        bound_s: float = DISPOSAL_S,
    ) -> None:
        self._dispose, self._force, self._bound_s = dispose, force, bound_s
        self._requested = asyncio.Event()
        self.code: int | None = None
        """The code of the first request."""

    @property
    def pending(self) -> bool:
        return self.code is not None

    def request(self, code: int, *, bound_s: float | None = None) -> None:
        """Ask for the end. Returns at once; the disposal is done by whoever waits in `run`."""
        if self.code is None:
            self.code = code
            if bound_s is not None:
                self._bound_s = bound_s
            self._requested.set()

    def interrupt(self, code: int) -> None:
        """A signal wants the end."""
        if self.pending:
            self._force(code)
        else:
            self.request(code)

    async def requested(self) -> int:
        """Wait until somebody asks for the end; answers its code."""
        await self._requested.wait()
        assert self.code is not None
        return self.code

    async def run(self) -> int:
        """Wait for a request, then dispose; a disposal that fails or exceeds the bound forces the end."""
        code = await self.requested()
        disposal = asyncio.ensure_future(self._dispose())
        done, _ = await asyncio.wait((disposal,), timeout=self._bound_s)
        if not done or disposal.exception() is not None:
            self._force(code)
        return code
