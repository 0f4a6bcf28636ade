"""Row `tool-todo`: the tool `todo_write`, the list of tasks that a model keeps of its own work.

The list is in the log, whole, with each call (`todo/write`); the projection `todos` folds it
(`spec/capabilities-core.md` §19).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dsh.kernel import Context
from dsh.session.projection.todos import TODO_EVENT
from dsh.tools.definition import Args, ToolDefinition, ToolOutput
from dsh.tools.error import ToolError
from dsh.tools.execution import ToolExecution
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool

if TYPE_CHECKING:
    from dsh.tools.presentation import GenericCall

inject = [TOOLS]
provide = ()

NAME = "todo_write"
SHOWN_CHARS = 80
"""How much of a task an error quotes."""
STATUSES = ("pending", "in_progress", "completed")
ONE_ACTIVE = "Have exactly one task in progress while you work."
SEVERAL_ACTIVE = "Have more than one task in progress only while work on them really overlaps."

ITEM: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "content": {
            "type": "string",
            "description": "What is to be done, in a few words; different for each task.",
            "required": True,
        },
        "status": {
            "type": "string",
            "description": "How far it is.",
            "enum": list(STATUSES),
            "required": True,
        },
    },
}
PARAMETERS: Mapping[str, Any] = {
    "todos": {
        "type": "array",
        "description": "All tasks, in order; an empty list clears.",
        "items": ITEM,
        "required": True,
    }
}
COUNT = {"type": "integer", "required": True}
VALUE: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "todos": {"type": "array", "items": ITEM, "required": True},
        "counts": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"pending": COUNT, "inProgress": COUNT, "completed": COUNT},
            "required": True,
        },
    },
}


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    allow_parallel_in_progress: bool
    """Whether more than one task may be in progress."""


def todo_tool(*, is_parallel: bool) -> ToolDefinition:
    """The tool; with `is_parallel` several tasks may be in progress."""

    async def write(args: Args, execution: ToolExecution) -> dict[str, Any]:
        session = execution.session
        if session is None:
            raise ToolError("todo_write belongs to an agent, and no agent calls")
        todos = _checked(args["todos"], is_parallel)
        session.append(TODO_EVENT, {"todos": todos})
        counts = Counter(todo["status"] for todo in todos)
        return {
            "todos": todos,
            "counts": {
                "pending": counts["pending"],
                "inProgress": counts["in_progress"],
                "completed": counts["completed"],
            },
        }

    return typed_tool(
        name=NAME,
        description=(
            "Keep the list of tasks of your work, and show it to the person. Use it for work of several "
            "steps, or when you are given several tasks; not for something that is done in one go. Each call "
            "replaces the whole list. Mark a task in_progress before you begin it, and completed as soon as "
            "it is done, one by one. " + (SEVERAL_ACTIVE if is_parallel else ONE_ACTIVE)
        ),
        parameters=PARAMETERS,
        output=ToolOutput(schema=VALUE, render=_render),
        execute=write,
        present_call=_card,
    )


def _checked(items: Sequence[Mapping[str, str]], is_parallel: bool) -> list[dict[str, str]]:
    """The list as it is logged, contents trimmed.

    Raises:
        ToolError: a blank content, one that stands twice, or too many tasks in progress.
    """
    todos: list[dict[str, str]] = []
    seen: dict[str, int] = {}
    active: int | None = None
    for at, item in enumerate(items):
        content = item["content"].strip()
        if not content:
            raise ToolError(f"todos[{at}].content is blank; say what is to be done")
        if content in seen:
            raise ToolError(
                f"todos[{at}].content is the same as that of todos[{seen[content]}]: "
                f"{_quoted(content)}; each task has its own"
            )
        if item["status"] == "in_progress":
            if active is not None and not is_parallel:
                raise ToolError(
                    f"todos[{active}] and todos[{at}] are both in_progress; one task at a time may be"
                )
            active = at
        seen[content] = at
        todos.append({"content": content, "status": item["status"]})
    return todos


def _quoted(content: str) -> str:
    shown = content if len(content) <= SHOWN_CHARS else f"{content[:SHOWN_CHARS]}…"
    return f'"{shown}"'


def _render(args: Args, value: Mapping[str, Any]) -> str:
    counts = value["counts"]
    if not value["todos"]:
        return "The list of tasks is empty now."
    return (
        f"The list of tasks is updated: {counts['pending']} pending, {counts['inProgress']} in progress, "
        f"{counts['completed']} completed."
    )


def _card(args: Args) -> "GenericCall":
    from dsh.tools.presentation import GenericCall  # displays only

    todos = args["todos"]
    done = sum(todo["status"] == "completed" for todo in todos)
    return GenericCall(title=f"Tasks: {done} of {len(todos)} done")


def apply(ctx: Context, config: Config) -> None:
    ctx.use(TOOLS).register(todo_tool(is_parallel=config.allow_parallel_in_progress))
