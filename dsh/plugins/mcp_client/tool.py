"""The tool that the model sees for one tool of a server."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from dsh.plugins.mcp_client.failure import McpError
from dsh.plugins.mcp_client.listed import Listed
from dsh.plugins.mcp_client.result import VALUE_SCHEMA, text_of
from dsh.session.value import clean
from dsh.tools.definition import ToolDefinition, ToolOutput
from dsh.tools.error import ToolArgsError
from dsh.tools.execution import ToolExecution
from dsh.tools.foreign_schema import ForeignSchema, ForeignSchemaError

Call = Callable[[str, Mapping[str, Any], ToolExecution], Awaitable[dict[str, Any]]]
"""`await call(raw name, arguments, execution)`: the server's answer."""


def definition(public: str, server: str, listed: Listed, call: Call) -> ToolDefinition:
    """A tool that checks arguments by the server's own schema and hands them on.

    A schema that cannot be compiled checks nothing: the server does.
    """
    parameters, output = _compiled(listed.parameters), _compiled(listed.output_schema)

    async def execute(arguments: Any, execution: ToolExecution) -> dict[str, Any]:
        if not isinstance(arguments, Mapping):
            problem = execution.arguments_problem
            raise ToolArgsError([problem or '"arguments" must be an object'])
        given: Mapping[str, Any] = clean(arguments)
        if parameters is not None:
            given, found = parameters.fitted(given)
            if found:
                raise ToolArgsError(found)
        answer = await call(listed.name, given, execution)
        return _value(server, answer, output)

    return ToolDefinition(
        name=public,
        description=listed.description,
        parameters=listed.parameters,
        output=ToolOutput(schema=VALUE_SCHEMA, render=_rendered),
        execute=execute,
        timeout_ms=None,
        is_concurrency_safe=_always if listed.is_read_only else None,
    )


def _always(arguments: Any) -> bool:
    return True


def _rendered(arguments: Any, value: Any) -> str:
    return text_of(value["content"], value.get("structuredContent"))


def _value(server: str, answer: dict[str, Any], output: ForeignSchema | None) -> dict[str, Any]:
    content, structured = answer.get("content") or [], answer.get("structuredContent")
    text = text_of(content, structured)
    if answer.get("isError"):
        raise McpError(text)
    if output is not None and structured is not None and (found := output.violations(structured)):
        raise McpError(
            f"the answer of MCP server {server!r} does not fit the schema that it gave for it "
            f"({'; '.join(found[:3])}). It answered:\n{text}",
            code="INVALID_TOOL_OUTPUT",
        )
    return {"content": content, **({} if structured is None else {"structuredContent": structured})}


def _compiled(schema: Mapping[str, Any] | None) -> ForeignSchema | None:
    if schema is None:
        return None
    try:
        return ForeignSchema(schema)
    except ForeignSchemaError:
        return None
