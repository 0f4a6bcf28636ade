"""The short way to write a tool: declare parameters and output, get validated arguments."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from dsh.tools.arguments import check_arguments, without_nulls
from dsh.tools.definition import TEXT_OUTPUT, Args, Blocks, Resources, ToolDefinition, ToolOutput
from dsh.tools.dsl import Node, compile_parameters, compile_schema
from dsh.tools.execution import ToolCall, ToolExecution, ToolResult
from dsh.tools.schema import validate

__all__ = ["TEXT_OUTPUT", "ToolOutput", "typed_tool"]


def typed_tool(
    *,
    name: str,
    description: str,
    parameters: Mapping[str, Node],
    output: ToolOutput,
    execute: Callable[[Args, ToolExecution], Awaitable[Any]],
    concurrency_safe: bool | Callable[[Args], bool] = False,
    resources: Callable[[Args, ToolCall], Resources | None] | None = None,
    timeout_ms: float | msgspec.UnsetType | None = msgspec.UNSET,
    finalize_content: Callable[[ToolExecution, ToolResult], Blocks | None] | None = None,
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

    Raises:
        JsonSchemaError: parameters or output schema leave the subset.
    """
    schema = compile_parameters(parameters, where=f"parameters of tool {name!r}")
    compiled = compile_schema(output.schema, where=f"output of tool {name!r}")
    meta = output.presentation_meta

    async def run(arguments: Any, execution: ToolExecution) -> Any:
        return await execute(check_arguments(schema, arguments, execution.arguments_problem), execution)

    def fitting(arguments: Any) -> Any:
        arguments = without_nulls(schema, arguments)
        return None if validate(schema, arguments) else arguments

    def is_safe(arguments: Any) -> bool:
        args = fitting(arguments)
        if args is None:
            return False
        return concurrency_safe is True or (callable(concurrency_safe) and concurrency_safe(args) is True)

    def touched(arguments: Any, call: ToolCall) -> Resources | None:
        args = fitting(arguments)
        return None if args is None or resources is None else resources(args, call)

    def projected(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        return lambda arguments, value: function(without_nulls(schema, arguments), value)

    return ToolDefinition(
        name=name,
        description=description,
        parameters=schema,
        output=ToolOutput(compiled, projected(output.render), projected(meta) if meta else None),
        execute=run,
        finalize_content=finalize_content,
        timeout_ms=timeout_ms,
        is_concurrency_safe=is_safe if concurrency_safe else None,
        resources=touched if resources else None,
    )
