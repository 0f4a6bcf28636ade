"""Row `tool-todo`: which lists are accepted, what is logged, what the model reads."""

import json
from typing import Any

import pytest

from dsh.kernel.schema import ValidationError, resolve_config
from dsh.plugins import tool_todo
from dsh.session.projection.todos import TODOS, Todo
from dsh.session.projection.unit import fold
from dsh.tools.execution import ToolCall
from tests.agent.kit import calls, data_of, loop, text
from tests.aio import aio

PARALLEL: list[Any] = [(tool_todo, {"allowParallelInProgress": True})]
ONE_BY_ONE: list[Any] = [(tool_todo, {"allowParallelInProgress": False})]


def item(content: str, status: str = "pending", **more: str) -> dict[str, str]:
    return {"content": content, "status": status, **more}


async def written(*todos: Any, rows: list[Any] = PARALLEL) -> tuple[str, Any, list[Any]]:
    """What the model reads, the error of the result, and the lists in the log."""
    reply = calls(("c1", "todo_write", json.dumps({"todos": todos})))
    async with loop(reply, text("done"), rows=rows) as run:
        agent = await run.agent()
        await run.prompt(agent, "go")
        [result] = data_of(agent.session, "tool/result")
        assert "meta" not in result
        told = result["message"]["content"][0]["content"][0]["text"]
        return told, result.get("error"), data_of(agent.session, "todo/write")


@aio
async def test_the_whole_list_is_logged_trimmed_and_the_counts_are_told() -> None:
    told, error, lists = await written(
        item(" first ", "completed"), item("second", "in_progress"), item("third"), item("fourth")
    )

    assert error is None
    assert "2 pending, 1 in progress, 1 completed" in told
    assert lists == [
        {
            "todos": (
                {"content": "first", "status": "completed"},
                {"content": "second", "status": "in_progress"},
                {"content": "third", "status": "pending"},
                {"content": "fourth", "status": "pending"},
            )
        }
    ]


@aio
async def test_an_empty_list_clears() -> None:
    told, error, lists = await written()

    assert (told, error, lists) == ("The list of tasks is empty now.", None, [{"todos": ()}])


@pytest.mark.parametrize(
    "todos",
    [
        [item("a", activeForm="doing a")],
        [item("a", id="1")],
        [item("a", "done")],
        [{"content": "a"}],
        [{"status": "pending"}],
        [item("a"), "b"],
        [{"content": 7, "status": "pending"}],
    ],
)
@aio
async def test_a_list_of_another_shape_is_refused_by_the_schema(todos: list[Any]) -> None:
    told, error, lists = await written(*todos)

    assert error == {"name": "ToolArgsError", "code": "INVALID_ARGS"}
    assert told.startswith("Error: invalid arguments: ")
    assert lists == []


@aio
async def test_a_key_that_is_not_declared_is_named() -> None:
    told, _, _ = await written(item("a", activeForm="doing a"), item("b", activeForm="doing b"))

    assert '"todos[0].activeForm" is not a declared property' in told
    assert '"todos[1].activeForm" is not a declared property' in told


@pytest.mark.parametrize(
    ("todos", "named"),
    [
        ([item("a"), item(" \n\t")], "todos[1].content is blank"),
        ([item("a"), item("b"), item(" a ")], "todos[2].content is the same as that of todos[0]"),
        ([item("a", "in_progress"), item("b", "in_progress")], "todos[0] and todos[1] are both in_progress"),
    ],
)
@aio
async def test_a_list_that_breaks_a_rule_is_refused_without_a_code(todos: list[Any], named: str) -> None:
    told, error, lists = await written(*todos, rows=ONE_BY_ONE)

    assert error is None
    assert told.startswith(f"Error: {named}")
    assert lists == []


@aio
async def test_several_tasks_may_be_in_progress_where_the_row_says_so() -> None:
    _, error, lists = await written(item("a", "in_progress"), item("b", "in_progress"))

    assert (error, len(lists)) == (None, 1)


@aio
async def test_the_description_says_whether_one_or_several_tasks_may_be_in_progress() -> None:
    for rows, wanted in ((PARALLEL, "more than one"), (ONE_BY_ONE, "exactly one")):
        async with loop(rows=rows) as run:
            [schema] = run.tools.schemas(None)
            assert wanted in schema.description


@aio
async def test_nobody_but_an_agent_has_a_list() -> None:
    async with loop(rows=PARALLEL) as run:
        result = await run.tools.run(
            ToolCall(call_id="c1", name="todo_write", arguments={"todos": [item("a")]})
        )

    assert result.is_error
    assert "belongs to an agent" in str(result.content)


@aio
async def test_a_log_of_the_other_rule_is_folded_as_it_is() -> None:
    """The rule is the row's; what was written under another one stays readable."""
    async with loop(rows=ONE_BY_ONE) as run:
        agent = await run.agent()
        agent.session.append("turn/start", {"turn": 1})
        agent.session.append("todo/write", {"todos": [item("a", "in_progress"), item("b", "in_progress")]})

        assert fold(TODOS, agent.session.entries()) == (Todo("a", "in_progress"), Todo("b", "in_progress"))


def test_the_rule_has_no_default() -> None:
    with pytest.raises(ValidationError, match="allowParallelInProgress"):
        resolve_config(tool_todo.Config, {})
