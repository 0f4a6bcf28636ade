"""The `tools` service: what is registered, who sees it, and the way to run a call.

What a plugin registers through its context goes with the plugin. Through the context of a scope (an
agent's) it belongs to that scope and shadows inherited tools of the same name (`spec/tools.md` §1).
"""

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from dsh.capabilities.bounds import MAX_TIMER_MS
from dsh.errors import DshError
from dsh.kernel import Context, Effect, Service, ServiceKey
from dsh.kernel.layer import Undo
from dsh.session.error import JsonError
from dsh.session.message import ToolSchema
from dsh.session.value import freeze
from dsh.tools.definition import RESERVED_NAME, Resources, ToolDefinition, ToolOutput
from dsh.tools.error import ToolRegistrationError
from dsh.tools.event import TOOLS_CHANGE, ToolsChanged
from dsh.tools.execution import ToolCall, ToolResult
from dsh.tools.foreign import called
from dsh.tools.layer import Guard, Registered, Restriction, ToolLayers
from dsh.tools.pipeline import Invocation
from dsh.tools.schema import check_schema

if TYPE_CHECKING:
    from dsh.tools.presentation import CallCard, Outcome, ResultCard

TOOLS: "ServiceKey[ToolRegistry]" = ServiceKey("tools")

ExecutionMode = Literal["parallel", "exclusive"]


class ToolRegistry(Service):
    """Holds the layers of tools. Implements the `tools` service."""

    provide = TOOLS

    def __init__(self, ctx: Context) -> None:
        self._layers = ToolLayers()
        super().__init__(ctx)

    # -- registration ----------------------------------------------------------------------------

    def register(self, definition: ToolDefinition) -> Effect:
        """Make a tool visible to the caller's scope and those inside, until the effect is undone.

        Raises:
            ToolRegistrationError: the definition is incomplete (INVALID_TOOL), its name is reserved
                (RESERVED_TOOL) or taken in this very layer (DUPLICATE_TOOL).
            JsonSchemaError: its output schema leaves the subset.
        """
        checked = _checked(definition, self.ctx)
        return self._change(
            lambda scope: self._layers.tools.insert(scope, checked.name, checked),
            f'tools.register("{checked.name}")',
        )

    def restrict(self, *, allow: Iterable[str] | None = None, deny: Iterable[str] | None = None) -> Effect:
        """Hide inherited tools from the caller's scope and those inside; the scope's own stay visible.

        `allow=[]` hides all of them. Several restrictions add up.

        Raises:
            ToolRegistrationError: the context has no scope (UNSCOPED), there is neither list
                (EMPTY_RESTRICTION), or a name that the scope does not inherit (UNKNOWN_TOOL).
        """
        scope = self.ctx.scope
        if scope is None:
            raise ToolRegistrationError("restrict needs the context of a scope", code="UNSCOPED")
        if allow is None and deny is None:
            raise ToolRegistrationError("restrict needs allow or deny", code="EMPTY_RESTRICTION")
        allowed = None if allow is None else frozenset(allow)
        denied = frozenset(deny or ())
        inherited = self._layers.inherited_names(scope)
        if unknown := sorted(((allowed or frozenset()) | denied) - inherited):
            raise ToolRegistrationError(
                f"restrict names tools that this scope does not inherit: {', '.join(unknown)}",
                code="UNKNOWN_TOOL",
                hint=f"inherited: {', '.join(sorted(inherited)) or 'none'}",
            )
        restriction = Restriction(allowed, denied)
        return self._change(
            lambda scope: self._layers.restrictions.add(scope, restriction), "tools.restrict()"
        )

    def guard(self, check: Guard) -> Effect:
        """Ask `check(execution)` before each call of the caller's scope; a reason denies. It cannot allow."""
        scope = self.ctx.scope
        return self.ctx.effect(lambda: self._layers.guards.add(scope, check), "tools.guard()")

    def _change(self, add: Callable[[object | None], Undo], label: str) -> Effect:
        """Change what the caller's scope sees, and tell; who objects undoes it."""
        ctx = self.ctx

        def tell() -> None:
            self.owner_ctx.emit(TOOLS_CHANGE, ToolsChanged(ctx.scope))

        def setup() -> Undo:
            remove = add(ctx.scope)
            try:
                tell()
            except BaseException:
                remove()
                raise

            def undo() -> None:
                remove()
                tell()

            return undo

        return ctx.effect(setup, label)

    # -- look-up ---------------------------------------------------------------------------------

    def get(self, name: str, scope: object | None = None) -> Registered | None:
        """The tool of that name as `scope` (an agent) sees it; without a scope, the global one."""
        return self._layers.find(name, scope)

    def schemas(self, scope: object | None = None) -> tuple[ToolSchema, ...]:
        """What a model is told of the tools that `scope` sees, sorted by name. Immutable."""
        return tuple(
            ToolSchema(tool.name, tool.description, tool.parameters)
            for tool in self._layers.visible(scope).values()
        )

    def knows(self, name: str) -> bool:
        """Whether anybody at all has registered a tool of that name, in whatever scope."""
        return name in self._layers.tools.names()

    def guards(self, scope: object | None = None) -> list[Guard]:
        """The guards that a call from `scope` passes, in order."""
        return self._layers.guards.view(scope)

    def resources(self, call: ToolCall) -> Resources | None:
        """What the call may touch; None means that it must run alone.

        Anything unclear is exclusive: an unknown tool, a function that raises or answers something else.
        """
        definition = self.get(call.name, call.agent)
        try:
            return None if definition is None else called("resources", _touched, definition, call)
        except Exception:
            return None

    def execution_mode(self, call: ToolCall) -> ExecutionMode:
        """Whether the call may overlap with any other at all."""
        return "exclusive" if self.resources(call) is None else "parallel"

    # -- display ---------------------------------------------------------------------------------

    def present_call(self, call: ToolCall) -> "CallCard | None":
        """What a display may show of a call, live or from a log; None where its tool has nothing to say.

        Never raises: an unknown tool, arguments that do not fit and a broken presenter have no card.
        """
        definition = self.get(call.name, call.agent)
        if definition is None or definition.present_call is None:
            return None
        from dsh.tools.presentation import call_card  # a run without a display needs no cards

        return call_card(definition.present_call, call.arguments)

    def present_result(self, call: ToolCall, outcome: "Outcome") -> "ResultCard | None":
        """The same of a call's result (`dsh.tools.presentation.outcome_of`, `outcome_in_log`)."""
        definition = self.get(call.name, call.agent)
        if definition is None or definition.present_result is None:
            return None
        from dsh.tools.presentation import result_card

        return result_card(definition.present_result, call.arguments, outcome)

    # -- running ---------------------------------------------------------------------------------

    def begin(self, call: ToolCall) -> Invocation:
        """Take a call up; its stages are the caller's to drive."""
        return Invocation(self, call)

    async def run(self, call: ToolCall) -> ToolResult:
        """Take a call through all stages."""
        invocation = self.begin(call)
        await invocation.prepare()
        await invocation.dispatch()
        return await invocation.finalize()


def _touched(definition: ToolDefinition, call: ToolCall) -> Resources | None:
    """What the tool says that the call touches; nothing is believed of what it answers."""
    if definition.resources is not None:
        found: Any = definition.resources(call.arguments, call)
        is_right = type(found) is Resources and type(found.reads) is type(found.writes) is frozenset
        return found if is_right else None
    safe = definition.is_concurrency_safe
    return Resources() if safe is not None and safe(call.arguments) is True else None


def _checked(found: Any, owner: Context) -> Registered:
    """The definition with its schemas checked and frozen. Nothing is believed of what plugins hand in."""

    def refuse(problem: str, code: str = "INVALID_TOOL") -> DshError:
        return ToolRegistrationError(f"tool {found.name!r}: {problem}", code=code)

    if not isinstance(found, ToolDefinition):
        raise ToolRegistrationError(
            f"register takes a ToolDefinition, found {type(found).__name__}", code="INVALID_TOOL"
        )
    texts: tuple[Any, ...] = (found.name, found.description)
    if not all(isinstance(text, str) for text in texts) or not found.name:
        raise refuse("name and description must be texts")
    if found.name == RESERVED_NAME:
        raise refuse("this name is reserved", "RESERVED_TOOL")
    output: Any = found.output
    if not isinstance(output, ToolOutput) or not callable(output.render):
        raise refuse("output must be a ToolOutput with a render function")
    if not callable(found.execute):
        raise refuse("execute must be a coroutine function")
    limit = found.timeout_ms
    if limit is not None and limit is not msgspec.UNSET:
        is_number = type(limit) in (int, float) and math.isfinite(limit)
        if not is_number or not 0 < limit <= MAX_TIMER_MS:
            raise refuse(f"timeout_ms must be a number from 1 to {MAX_TIMER_MS}, found {limit!r}")
    for presenter in (found.present_call, found.present_result):
        if presenter is not None and not callable(presenter):
            raise refuse("present_call and present_result must be functions")
    check_schema(found.output.schema, where=f"output of tool {found.name!r}")
    try:
        parameters = freeze(found.parameters, "parameters")
        schema = freeze(found.output.schema, "output schema")
    except JsonError as error:
        raise refuse(str(error)) from None
    if not isinstance(parameters, dict):
        raise refuse("parameters must be a JSON Schema object")
    fields = {name: getattr(found, name) for name in ToolDefinition.__struct_fields__}
    fields |= {"parameters": parameters, "output": msgspec.structs.replace(found.output, schema=schema)}
    return Registered(**fields, owner=owner)
