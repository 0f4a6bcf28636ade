"""Puts the system prompt together from what rows registered: the service behind `systemPrompt`.

Everything that goes out is a function of what is registered and of the variables; nothing depends on
time, on chance or on the order in which rows were loaded, so the text is the same in every run.
"""

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

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
from dsh.kernel.foreign import contained
from dsh.kernel.layer import Contributions, Layers, Undo
from dsh.session.message import ToolSchema
from dsh.tools.registry import ToolRegistry
from dsh.unicode import valid

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
        self._suppressed: Contributions[bool] = Contributions()
        if include_identity:
            self._sections.insert(None, "harness:identity", _Section(IDENTITY_ORDER, IDENTITY))
        if persona:
            self._sections.insert(None, "deployment:persona", _Section(PERSONA_ORDER, persona))
        super().__init__(ctx)

    # -- registration ----------------------------------------------------------------------------

    def section(self, name: str, order: float, text: SectionText, *, complete: bool = False) -> Effect:
        entry = _Section(_checked(name, order, text), text, complete)
        return self._register(lambda scope: self._sections.insert(scope, name, entry), name)

    def variable(self, name: str, value: VariableValue) -> Effect:
        if not _NAME.fullmatch(name):
            raise PromptError(f"prompt variable {name!r}: a name is {_NAME.pattern}", code="INVALID_VARIABLE")
        if not callable(value):
            raise PromptError(f"prompt variable {name!r}: expected a function", code="INVALID_VARIABLE")
        return self._register(lambda scope: self._variables.insert(scope, name, value), name)

    def context(self, name: str, order: float, text: ContextText) -> Effect:
        entry = _Contribution(_checked(name, order, text), text)
        return self._register(lambda scope: self._contexts.insert(scope, name, entry), name)

    def suppress_runtime_context(self) -> Effect:
        return self._register(lambda scope: self._suppressed.add(scope, True), "without runtime context")

    def _register(self, add: Callable[[object | None], Undo], name: str) -> Effect:
        scope = self.ctx.scope
        return self.ctx.effect(lambda: add(scope), f"systemPrompt {name}")

    # -- assembly --------------------------------------------------------------------------------

    async def assemble(self, context: PromptContext) -> PromptAssembly:
        scope = context.agent
        request = AssembleRequest(context, {**self._variables.view(scope)})
        made: PromptAssembly | None = None

        async def innermost() -> PromptAssembly:
            nonlocal made
            made = PromptAssembly(
                self._rendered(request), self._schemas(scope), self._runtime_context(context)
            )
            return made

        found: Any = await self.owner_ctx.waterfall(
            SYSTEM_PROMPT_ASSEMBLE, request, innermost, subject=ScopeTarget(scope)
        )
        answer: PromptAssembly = made if made is not None and found is made else _sound(found)
        return self._ruled(answer, self._rendered(request) if made is None else made.sections, scope)

    def _ruled(
        self, answer: PromptAssembly, rendered: Sequence[PromptSection], scope: object | None
    ) -> PromptAssembly:
        """What listeners may not change: the one complete section, and that runtime context is left out."""
        claims = {s.name: s for s in (*answer.sections, *rendered) if s.complete and s.text}
        if len(claims) > 1:
            names = ", ".join(sorted(claims))
            raise PromptError(
                f"several sections claim to be the whole prompt: {names}",
                code="SEVERAL_COMPLETE_SECTIONS",
                hint="unmount one of the rows that add them, or shadow its section by one without text",
            )
        if claims:
            answer = msgspec.structs.replace(answer, sections=tuple(claims.values()))
        if not self._shows_context(scope):
            answer = msgspec.structs.replace(answer, context=())
        return answer

    def _rendered(self, request: AssembleRequest) -> tuple[PromptSection, ...]:
        sections, context = [], request.context
        for name, entry in self._sections.view(context.agent).items():
            where = f"section {name!r}"
            if raw := _told(where, entry.text, context):
                text = valid(_substitute(raw, request.variables, where, context))
                sections.append(PromptSection(name, text, entry.order, entry.complete))
        return tuple(sorted(sections, key=lambda section: (section.order, section.name)))

    def _runtime_context(self, context: PromptContext) -> tuple[PromptSection, ...]:
        if not self._shows_context(context.agent):
            return ()
        sections = []
        for name, entry in self._contexts.view(context.agent).items():
            if text := _told(f"runtime context {name!r}", entry.text, context):
                sections.append(PromptSection(name, valid(text), entry.order))
        return tuple(sorted(sections, key=lambda section: (section.order, section.name)))

    def _shows_context(self, scope: object | None) -> bool:
        return self._with_context and not self._suppressed.view(scope)

    def _schemas(self, scope: object | None) -> tuple[ToolSchema, ...]:
        visible = {tool.name: tool for tool in self._tools.schemas(scope)}
        order = self._tool_order
        if order is None:
            return tuple(visible[name] for name in sorted(visible))
        for name in order:
            if name != UNLISTED and name not in visible and not self._tools.knows(name):
                raise PromptError(
                    f"toolOrder names {name!r}, which no row provides",
                    code="UNKNOWN_TOOL",
                    hint="correct the name in the config of row system-prompt, or mount the tool's row",
                )
        rest = sorted(visible.keys() - set(order))
        names = [n for listed in order for n in (rest if listed == UNLISTED else [listed])]
        return tuple(visible[name] for name in names if name in visible)


def _duplicate(kind: str) -> Callable[[str], PromptError]:
    def error(name: str) -> PromptError:
        return PromptError(f"{kind} {name!r} is registered already in this layer", code="DUPLICATE_NAME")

    return error


def _checked(name: object, order: object, text: object) -> float:
    """The order of a contribution; nothing is believed of what plugins hand in."""
    if not isinstance(name, str) or not name:
        raise PromptError(f"a contribution to the prompt has a name, found {name!r:.60}")
    if type(order) not in (int, float) or not math.isfinite(order):  # type: ignore[arg-type]
        raise PromptError(f"contribution {name!r}: its order is a finite number, found {order!r:.60}")
    if not (isinstance(text, str) or callable(text)):
        raise PromptError(
            f"contribution {name!r}: expected a text or a function, found {type(text).__name__}"
        )
    return order  # type: ignore[return-value]


def _told(where: str, source: object, context: PromptContext) -> str | None:
    """A plugin's text, or what its function says; whatever else that does is an error that names it."""
    try:
        found = source(context) if callable(source) else source
    except BaseException as raised:
        raise PromptError(f"{where} could not be told", code="PROMPT_CONTRIBUTION") from contained(
            raised, f"the function of {where}"
        )
    if found is None or isinstance(found, str):
        return found
    if inspect.iscoroutine(found):
        found.close()
    raise PromptError(
        f"{where} is a value of type {type(found).__name__}, expected a text or None",
        code="PROMPT_CONTRIBUTION",
    )


def _sound(found: Any) -> PromptAssembly:
    """What listeners made of the prompt, if it can go out; nothing is believed of what plugins answer."""

    def refuse(problem: str) -> PromptError:
        return PromptError(
            f"a listener of {SYSTEM_PROMPT_ASSEMBLE.name} answered {problem}",
            code="PROMPT_CONTRIBUTION",
            hint="it returns what `await next()` gave it, or a PromptAssembly of its own",
        )

    if not isinstance(found, PromptAssembly):
        raise refuse(f"{type(found).__name__}, expected a PromptAssembly")
    parts: tuple[Any, ...] = (found.sections, found.context, found.tools)
    if not all(isinstance(part, tuple | list) for part in parts):
        raise refuse("a PromptAssembly whose sections, tools and context are not all tuples")
    given: tuple[Any, ...] = (*found.sections, *found.context)
    for section in given:
        if not (isinstance(section, PromptSection) and isinstance(section.text, str)):
            raise refuse(f"{section!r:.60} in the place of a section")
    for tool in found.tools:
        if not isinstance(tool, ToolSchema):
            raise refuse(f"{tool!r:.60} in the place of a tool's schema")
    if len({tool.name for tool in found.tools}) < len(found.tools):
        raise refuse("a PromptAssembly that has a tool twice")
    sections, context = (tuple(map(_valid, part)) for part in (found.sections, found.context))
    return PromptAssembly(sections, tuple(found.tools), context)


def _valid(section: PromptSection) -> PromptSection:
    text = valid(section.text)
    return section if text == section.text else msgspec.structs.replace(section, text=text)


def _checked_order(order: Sequence[str] | None) -> tuple[str, ...] | None:
    if order is None:
        return None
    if order.count(UNLISTED) != 1:
        raise PromptError(f"toolOrder: expected {UNLISTED!r} exactly once, found {order.count(UNLISTED)}")
    if len(set(order)) != len(order):
        raise PromptError("toolOrder: a tool is named twice")
    return tuple(order)


def _substitute(text: str, variables: Mapping[str, object], where: str, context: PromptContext) -> str:
    """Replace `{{name}}`; what is put in is not looked at again. A `{{` that is never closed is text."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if not _NAME.fullmatch(name):
            raise PromptError(
                f"{where}: {match[0][:60]!r} is no variable reference",
                code="PROMPT_VARIABLE",
                hint=f"a reference is `{{{{name}}}}` with a name of {_NAME.pattern}",
            )
        found = _told(f"variable {name!r}", variables.get(name), context)
        if found is None:
            problem = "has no value" if name in variables else "is not defined"
            raise PromptError(
                f"{where}: variable {name!r} {problem}",
                code="PROMPT_VARIABLE",
                hint=f"defined here: {', '.join(sorted(variables)) or 'none'}",
            )
        return found

    return _REFERENCE.sub(value, text)
