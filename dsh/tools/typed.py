"""The short way to write a tool: declare parameters and output, get validated arguments."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from dsh.tools.arguments import check_arguments, without_nulls
from dsh.tools.content import Blocks
from dsh.tools.definition import TEXT_OUTPUT, Args, Resources, ToolDefinition, ToolOutput
from dsh.tools.dsl import Node, compile_parameters, compile_schema
from dsh.tools.execution import ToolCall, ToolExecution, ToolResult
from dsh.tools.schema import Schema, validate

if TYPE_CHECKING:
    from dsh.tools.presentation import CallCard, Outcome, ResultCard

__all__ = ["TEXT_OUTPUT", "ToolOutput", "typed_tool"]

Execute = Callable[[Args, ToolExecution], Awaitable[Any]]
Touch = Callable[[Args, ToolCall], Resources | None]


def typed_tool(
    *,
    name: str,
    description: str,
    parameters: Mapping[str, Node],
    output: ToolOutput,
    execute: Execute,
    concurrency_safe: bool | Callable[[Args], bool] = False,
    resources: Touch | None = None,
    timeout_ms: float | msgspec.UnsetType | None = msgspec.UNSET,
    finalize_content: Callable[[ToolExecution, ToolResult], Blocks | None] | None = None,
    present_call: "Callable[[Args], CallCard | None] | None" = None,
    present_result: "Callable[[Args, Outcome], ResultCard | None] | None" = None,
) -> ToolDefinition:
    """A tool whose functions only ever see arguments that fit `parameters`.

        tool = typed_tool(
            name="shout",
            description="Return the text in capitals.",
            parameters={"text": {"type": "string", "description": "What to shout.", "required": True}},
            output=TEXT_OUTPUT,
            execute=shout,  # async def shout(args, execution): return args["text"].upper()
        )

    Arguments that do not fit give the model one readable `INVALID_ARGS` error and never reach `execute`.
    A null for an optional property whose schema has no null counts as absent.

    Args:
        parameters: see `dsh.tools.dsl`.
        output: its schema may be written in the same language.
        concurrency_safe: True, or a function of the arguments: the call may overlap with others.
        present_call, present_result: cards for displays (`dsh.tools.presentation`); arguments that do not fit
            have none.

    Raises:
        JsonSchemaError: parameters or output schema leave the subset.
    """
    schema = compile_parameters(parameters, where=f"parameters of tool {name!r}")
    compiled = compile_schema(output.schema, where=f"output of tool {name!r}")
    typed = _Typed(schema, execute, concurrency_safe, resources)
    meta = output.presentation_meta
    return ToolDefinition(
        name=name,
        description=description,
        parameters=schema,
        output=ToolOutput(
            compiled, typed.projection(output.render), typed.projection(meta) if meta else None
        ),
        execute=typed.execute,
        finalize_content=finalize_content,
        timeout_ms=timeout_ms,
        is_concurrency_safe=typed.is_safe if concurrency_safe else None,
        resources=typed.resources if resources else None,
        present_call=typed.presenter(present_call) if present_call else None,
        present_result=typed.presenter(present_result) if present_result else None,
    )


class _Typed:
    """The functions of one tool behind the check of their arguments."""

    def __init__(
        self, schema: Schema, execute: Execute, safe: bool | Callable[[Args], bool], resources: Touch | None
    ) -> None:
        self._schema, self._execute, self._safe, self._resources = schema, execute, safe, resources

    async def execute(self, arguments: Any, execution: ToolExecution) -> Any:
        args = check_arguments(self._schema, arguments, execution.arguments_problem)
        return await self._execute(args, execution)

    def is_safe(self, arguments: Any) -> bool:
        args = self._fitting(arguments)
        return args is not None and (self._safe(args) if callable(self._safe) else self._safe) is True

    def resources(self, arguments: Any, call: ToolCall) -> Resources | None:
        args = self._fitting(arguments)
        return None if args is None or self._resources is None else self._resources(args, call)

    def projection(self, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        return lambda arguments, value: function(without_nulls(self._schema, arguments), value)

    def presenter(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def present(arguments: Any, *outcome: Any) -> Any:
            args = self._fitting(arguments)
            return None if args is None else function(args, *outcome)

        return present

    def _fitting(self, arguments: Any) -> Args | None:
        """The arguments, None where they do not fit."""
        args: Args = without_nulls(self._schema, arguments)
        return None if validate(self._schema, args) else args
