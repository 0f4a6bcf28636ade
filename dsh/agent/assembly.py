"""Puts the system prompt together from what rows registered: the service behind `systemPrompt`.

Everything that goes out is a function of what is registered and of the variables; nothing depends on
time, on chance or on the order in which rows were loaded, so the text is the same in every run.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from dsh.agent.failure import PromptError
from dsh.agent.prompt import (
    IDENTITY_ORDER,
    PERSONA_ORDER,
    SYSTEM_PROMPT,
    SYSTEM_PROMPT_ASSEMBLE,
    AssembleRequest,
    ContextText,
    PromptAssembly,
    PromptContext,
    PromptSection,
    SectionText,
    VariableValue,
)
from dsh.kernel import Context, Effect, ScopeTarget, Service
from dsh.kernel.layer import Layers
from dsh.session.message import ToolSchema
from dsh.tools.registry import ToolRegistry

T = TypeVar("T")

UNLISTED = "<unlisted-tools>"
"""The place in a configured tool order where all other tools stand, by name."""

IDENTITY = (
    "You are the agent of dsh, a harness that runs software tasks from a terminal or a CI job. You act "
    "through the tools of this request, and the harness gives you back what they did. Often nobody is "
    "there to answer a question: make reasonable choices, carry the task through, check your work where "
    "it can be checked, and end with a plain account of what was done, what was not, and how you know."
)

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_REFERENCE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


class _Section(msgspec.Struct, frozen=True):
    order: float
    text: SectionText
    complete: bool = False


class _Contribution(msgspec.Struct, frozen=True):
    order: float
    text: ContextText


class PromptRegistry(Service):
    """Implements `dsh.agent.prompt.SystemPrompt`. State: sections, variables and contexts by layer."""

    provide = SYSTEM_PROMPT

    def __init__(
        self,
        ctx: Context,
        tools: ToolRegistry,
        *,
        persona: str = "",
        include_identity: bool = True,
        include_runtime_context: bool = True,
        tool_order: Sequence[str] | None = None,
    ) -> None:
        self._tools = tools
        self._with_context = include_runtime_context
        self._tool_order = _checked_order(tool_order)
        self._sections: Layers[_Section] = Layers(_duplicate("section"))
        self._variables: Layers[VariableValue] = Layers(_duplicate("variable"))
        self._contexts: Layers[_Contribution] = Layers(_duplicate("runtime context"))
        self._suppressed: Layers[bool] = Layers(_duplicate("suppression of runtime context"))
        if include_identity:
            self._sections.insert(None, "harness:identity", _Section(IDENTITY_ORDER, IDENTITY))
        if persona:
            self._sections.insert(None, "deployment:persona", _Section(PERSONA_ORDER, persona))
        super().__init__(ctx)

    # -- registration ----------------------------------------------------------------------------

    def section(self, name: str, order: float, text: SectionText, *, complete: bool = False) -> Effect:
        return self._register(self._sections, name, _Section(order, text, complete))

    def variable(self, name: str, value: VariableValue) -> Effect:
        if not _NAME.fullmatch(name):
            raise PromptError(f"prompt variable {name!r}: a name is {_NAME.pattern}", code="INVALID_VARIABLE")
        return self._register(self._variables, name, value)

    def context(self, name: str, order: float, text: ContextText) -> Effect:
        return self._register(self._contexts, name, _Contribution(order, text))

    def suppress_runtime_context(self) -> Effect:
        return self._register(self._suppressed, "all", True)

    def _register(self, layers: Layers[T], name: str, value: T) -> Effect:
        undo = layers.insert(self.ctx.scope, name, value)
        try:
            return self.ctx.effect(lambda: undo, f"systemPrompt {name}")
        except Exception:
            undo()
            raise

    # -- assembly --------------------------------------------------------------------------------

    async def assemble(self, context: PromptContext) -> PromptAssembly:
        scope = context.agent
        variables = {name: value(context) for name, value in self._variables.view(scope).items()}
        request = AssembleRequest(context, variables)

        async def innermost() -> PromptAssembly:
            return PromptAssembly(
                self._rendered(request), self._schemas(scope), self._runtime_context(context)
            )

        answer = await self.owner_ctx.waterfall(
            SYSTEM_PROMPT_ASSEMBLE, request, innermost, subject=ScopeTarget(scope)
        )
        alone = [section for section in answer.sections if section.complete and section.text]
        if len(alone) > 1:
            names = ", ".join(section.name for section in alone)
            raise PromptError(f"several sections claim to be the whole prompt: {names}")
        if alone:
            answer = msgspec.structs.replace(answer, sections=tuple(alone))
        if not self._shows_context(scope):
            answer = msgspec.structs.replace(answer, context=())
        return answer

    def _rendered(self, request: AssembleRequest) -> tuple[PromptSection, ...]:
        sections = []
        for name, entry in self._sections.view(request.context.agent).items():
            raw = entry.text if isinstance(entry.text, str) else entry.text(request.context)
            if raw:
                text = _substitute(raw, request.variables, name)
                sections.append(PromptSection(name, text, entry.order, entry.complete))
        return tuple(sorted(sections, key=lambda section: (section.order, section.name)))

    def _runtime_context(self, context: PromptContext) -> tuple[PromptSection, ...]:
        if not self._shows_context(context.agent):
            return ()
        sections = []
        for name, entry in self._contexts.view(context.agent).items():
            if text := entry.text(context):
                sections.append(PromptSection(name, text, entry.order))
        return tuple(sorted(sections, key=lambda section: (section.order, section.name)))

    def _shows_context(self, scope: object | None) -> bool:
        return self._with_context and not self._suppressed.view(scope)

    def _schemas(self, scope: object | None) -> tuple[ToolSchema, ...]:
        visible = {tool.name: tool for tool in self._tools.schemas(scope)}
        order = self._tool_order
        if order is None:
            return tuple(visible[name] for name in sorted(visible))
        for name in order:
            if name != UNLISTED and name not in visible and self._tools.get(name) is None:
                raise PromptError(f"toolOrder names {name!r}, which no row provides", code="UNKNOWN_TOOL")
        rest = sorted(visible.keys() - set(order))
        names = [n for listed in order for n in (rest if listed == UNLISTED else [listed])]
        return tuple(visible[name] for name in names if name in visible)


def _duplicate(kind: str) -> Callable[[str], PromptError]:
    def error(name: str) -> PromptError:
        return PromptError(f"{kind} {name!r} is registered already in this layer", code="DUPLICATE_NAME")

    return error


def _checked_order(order: Sequence[str] | None) -> tuple[str, ...] | None:
    if order is None:
        return None
    if order.count(UNLISTED) != 1:
        raise PromptError(f"toolOrder: expected {UNLISTED!r} exactly once, found {order.count(UNLISTED)}")
    if len(set(order)) != len(order):
        raise PromptError("toolOrder: a tool is named twice")
    return tuple(order)


def _substitute(text: str, variables: Mapping[str, str | None], where: str) -> str:
    """Replace `{{name}}`; what is put in is not looked at again. A `{{` that is never closed is text."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if not _NAME.fullmatch(name):
            raise PromptError(f"section {where!r}: {match[0][:60]!r} is no variable reference")
        found = variables.get(name)
        if found is None:
            problem = "has no value" if name in variables else "is not defined"
            raise PromptError(f"section {where!r}: variable {name!r} {problem}", code="PROMPT_VARIABLE")
        return found

    return _REFERENCE.sub(value, text)
