"""The system prompt: named sections, variables and runtime context that rows contribute, and their assembly.

What is registered through a scoped context belongs to that scope and shadows the same name further out.
Sections are the stable head of every request; facts that change travel as runtime context at the tail.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from dsh.agent.contract import Agent
from dsh.kernel import CancelToken, Effect, Event, ServiceKey
from dsh.session.log import Session
from dsh.session.message import ToolSchema

IDENTITY_ORDER = -100
PERSONA_ORDER = 0

RUNTIME_CONTEXT_OWNER = "@deepseek-ai/dsh-system-prompt"
"""The `source.plugin` of runtime-context messages, as the original writes it."""


class PromptContext(msgspec.Struct, frozen=True, eq=False):
    """What a contribution may look at. `agent` is absent where no agent asks."""

    agent: Agent | None = None
    signal: CancelToken | None = None

    @property
    def session(self) -> Session | None:
        return self.agent.session if self.agent is not None else None


SectionText = str | Callable[[PromptContext], str | None]
"""A text, or a function of the context; an empty answer leaves the section out. May hold `{{variables}}`."""
ContextText = Callable[[PromptContext], str | None]
VariableValue = Callable[[PromptContext], str | None]


class PromptSection(msgspec.Struct, frozen=True):
    """One section with its text as it goes out."""

    name: str
    text: str
    order: float = 0
    complete: bool = False
    """This section alone is the system prompt."""


class PromptAssembly(msgspec.Struct, frozen=True):
    """What `system-prompt/assemble` answers: the parts of a request's head, and the runtime context."""

    sections: tuple[PromptSection, ...]
    tools: tuple[ToolSchema, ...]
    context: tuple[PromptSection, ...] = ()
    """Runtime-context sections in order; empty ones are left out."""

    @property
    def system(self) -> str:
        """The non-empty sections, joined by one blank line."""
        return "\n\n".join(section.text for section in self.sections if section.text)


class SystemPrompt(Protocol):
    """The registry that rows contribute to and the loop assembles from."""

    def section(self, name: str, order: float, text: SectionText, *, complete: bool = False) -> Effect:
        """Add a section. Ties of `order` go by name, so that the text is the same in every run.

        Raises:
            PromptError: this layer has a section of that name (code DUPLICATE_NAME).
        """

    def variable(self, name: str, value: VariableValue) -> Effect:
        """Define `{{name}}`; the name is `[a-z][a-z0-9_]*`."""

    def context(self, name: str, order: float, text: ContextText) -> Effect:
        """Add a runtime-context section, read anew at every step."""

    def suppress_runtime_context(self) -> Effect:
        """Leave all runtime context out for this scope."""

    async def assemble(self, context: PromptContext) -> PromptAssembly:
        """The prompt as the agent's scope sees it.

        Raises:
            PromptError: a section refers to an unknown or valueless variable, or is malformed.
        """


class AssembleRequest(msgspec.Struct, eq=False):
    """Payload of `system-prompt/assemble`. Listeners may add to or replace `variables`, then call next."""

    context: PromptContext
    variables: dict[str, str | VariableValue | None]
    """What `{{name}}` stands for, or a function that says it: one that no section refers to is not called."""


SYSTEM_PROMPT: ServiceKey[SystemPrompt] = ServiceKey("systemPrompt")
SYSTEM_PROMPT_ASSEMBLE: Event[AssembleRequest, Awaitable[PromptAssembly]] = Event(
    "system-prompt/assemble", "waterfall", scoped=lambda request: request.context.agent
)
