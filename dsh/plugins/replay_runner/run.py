"""The replay of one session: life after life, to the end or to the first difference, then the report."""

import math

from dsh.capabilities.launch import APP_EXIT, APP_OUTPUT, BOOT, Interrupt, tell
from dsh.capabilities.replay import REPLAY, ReplayReport
from dsh.errors import DshError
from dsh.kernel import Context
from dsh.kernel.foreign import contained
from dsh.llm.registry import LLM, LLM_STREAM
from dsh.llm.script.derive import recorded_calls
from dsh.plugins.replay_runner.life import LifeRun
from dsh.plugins.replay_runner.model import RecordedModel
from dsh.session.replay.cursor import Counts, Divergence

DIVERGED = 1


class ReplayRun:
    """State: the life that is being replayed, what was compared so far, what is to be noted."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._task = ctx.use(REPLAY)
        self._output = ctx.use(APP_OUTPUT)
        self._counts = Counts()
        self._notes: dict[str, None] = {}
        self._life: LifeRun | None = None
        self._interrupt: Interrupt | None = None

    async def main(self) -> None:
        """Replay, print the report, ask for the end."""
        await self._ctx.use(BOOT).ready()
        try:
            code = await self._replay()
        except BaseException as raised:
            error = contained(raised, "the replay")
            code = self._failed(error) if self._ctx.fiber.is_active else None
        if code is not None:
            self._ctx.use(APP_EXIT)(self._interrupt.exit_code if self._interrupt else code)

    def interrupt(self, interrupt: Interrupt) -> bool:
        """A signal: the replay ends where it stands."""
        self._interrupt = self._interrupt or interrupt
        if self._life is not None:
            self._life.give_up()
        return True

    async def _replay(self) -> int | None:
        recording = self._task.recording
        calls = recorded_calls(recording.entries, start=recording.header.seed_length or 0)
        model = RecordedModel(recording, calls, self._notes)
        model.register(self._ctx.use(LLM))
        self._ctx.on(LLM_STREAM, model.serve)
        divergence: Divergence | None = None
        for life in recording.lives:
            self._life = LifeRun(self._ctx, self._task, life, self._counts, self._notes)
            divergence = await self._life.run(model)
            if divergence is not None or self._interrupt is not None:
                break
        if not self._ctx.fiber.is_active or self._interrupt is not None:
            return None if self._interrupt is None else DIVERGED
        report = ReplayReport(
            session=recording.header.id,
            tools=self._task.tools,
            divergence=_earlier(divergence, self._task.doubt),
            compared=self._counts,
            notes=tuple(self._notes),
        )
        self._output.answer(self._task.show(report))
        return 0 if report.divergence is None else DIVERGED

    def _failed(self, error: Exception) -> int:
        tell(self._output, error)
        return error.exit_code if isinstance(error, DshError) else DshError.exit_code


def _earlier(divergence: Divergence | None, doubt: Divergence | None) -> Divergence | None:
    """The one of the two that stands first in the recording."""
    found = [one for one in (divergence, doubt) if one is not None]
    return min(found, key=lambda one: math.inf if one.seq is None else one.seq, default=None)
