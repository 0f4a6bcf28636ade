"""What a tool is: its schema for the model, its body, and the projection of its value to the model.

Most tools are made with `dsh.tools.typed.typed_tool`, which validates arguments and fills this in.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from dsh.tools.content import Blocks

if TYPE_CHECKING:
    from dsh.tools.execution import ToolCall, ToolExecution, ToolResult
    from dsh.tools.presentation import CallCard, Outcome, ResultCard

Args = Mapping[str, Any]
"""Arguments of a call, as JSON from the model; a typed tool gets them validated."""

RESERVED_NAME = "run_code"
"""Belongs to Code Mode, in every mode."""


class Resources(msgspec.Struct, frozen=True):
    """What a call reads and writes, as keys such as `fs:/abs/path`. Empty: only calls that run alone wait.

    Two calls conflict where one writes what the other reads or writes.
    """

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


class ToolOutput(msgspec.Struct, frozen=True):
    """The contract of a tool's value, and what the model and the log get to see of it."""

    schema: Mapping[str, Any]
    """JSON Schema of the value, in the subset of `dsh.tools.schema`."""
    render: Callable[[Any, Any], str | Blocks]
    """`render(args, value)`: a text or content blocks. Pure; the only source of what the model sees."""
    presentation_meta: Callable[[Any, Any], Any] | None = None
    """`presentation_meta(args, value)`: JSON for `tool/result.meta`, or None for none. Pure."""


TEXT_OUTPUT = ToolOutput(schema={"type": "string"}, render=lambda args, value: str(value))
"""For tools whose value is the text that the model sees."""


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One tool. Only `name`, `description` and `parameters` ever reach a model."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema sent to the model. Arguments are not checked against it unless the tool is typed."""
    output: ToolOutput
    execute: "Callable[[Any, ToolExecution], Awaitable[Any]]"
    """`await execute(arguments, execution)`: the JSON value. An exception is a failed result."""
    finalize_content: "Callable[[ToolExecution, ToolResult], Blocks | None] | None" = None
    """Last word on the content of any outcome, failures of the pipeline included; None keeps it."""
    timeout_ms: float | msgspec.UnsetType | None = msgspec.UNSET
    """Unset: the policy's default applies. A number: the deadline. None: the tool bounds itself."""
    is_concurrency_safe: Callable[[Any], bool] | None = None
    """`is_concurrency_safe(arguments)`: exactly True lets the call overlap with others."""
    resources: "Callable[[Any, ToolCall], Resources | None] | None" = None
    """`resources(arguments, call)`: what the call touches; None runs it alone. Decides over the above."""
    present_call: "Callable[[Any], CallCard | None] | None" = None
    """`present_call(arguments)`: what a display shows of the call. Pure; None shows the arguments."""
    present_result: "Callable[[Any, Outcome], ResultCard | None] | None" = None
    """`present_result(arguments, outcome)`: the same of its result, from what the log holds of it."""
