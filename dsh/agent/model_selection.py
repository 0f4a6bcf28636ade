"""A model that may be switched while its agent runs, without splitting prompt and request of a step.

The selection is read once per step, when the prompt is put together; the request of that step goes to the
model that the prompt named (`spec/agent-loop.md` §15).
"""

from collections.abc import Awaitable, Callable

import msgspec

from dsh.agent.contract import AGENT_REQUEST, RequestSeed
from dsh.agent.default_model import ModelSelection
from dsh.agent.prompt import SYSTEM_PROMPT_ASSEMBLE, AssembleRequest, PromptAssembly
from dsh.kernel import Context
from dsh.llm.request import LlmCallConfig


class SelectedModel:
    """The current selection of one agent, and the one that its present step was begun with."""

    def __init__(self, selection: ModelSelection) -> None:
        self._current = selection
        self._in_step = selection

    def install(self, ctx: Context) -> None:
        """Take part in the agent's prompts and requests; a setup of `CreateAgent`."""
        ctx.on(SYSTEM_PROMPT_ASSEMBLE, self.on_assemble)
        ctx.on(AGENT_REQUEST, self.on_request)

    def select(self, selection: ModelSelection) -> None:
        """Use another model from the next step on."""
        self._current = selection

    async def on_assemble(
        self, request: AssembleRequest, following: Callable[[], Awaitable[PromptAssembly]]
    ) -> PromptAssembly:
        self._in_step = self._current
        request.variables["provider"] = self._in_step.provider
        request.variables["model"] = self._in_step.model
        return await following()

    async def on_request(
        self, seed: RequestSeed, following: Callable[[], Awaitable[LlmCallConfig]]
    ) -> LlmCallConfig:
        chosen = self._in_step
        return msgspec.structs.replace(
            await following(),
            provider=chosen.provider,
            model=chosen.model,
            reasoning_effort=chosen.reasoning_effort,
        )
