"""From the model's raw text to arguments, and the short way to write a tool."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.tools.arguments import check_arguments, parse_arguments, without_nulls
from dsh.tools.definition import TEXT_OUTPUT, Resources, ToolOutput
from dsh.tools.dsl import compile_parameters, compile_schema
from dsh.tools.error import JsonSchemaError, ToolArgsError
from dsh.tools.execution import ToolCall, ToolExecution
from dsh.tools.typed import typed_tool
from tests.aio import aio
from tests.tools.kit import call, code, new_registry, text, value


def test_no_text_is_an_empty_object() -> None:
    assert parse_arguments("").value == {}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('{"a": -0}', {"a": 0}),
        ('{"a": 12345678901234567890123}', {"a": 12345678901234567890123}),
        ("[1]", [1]),
        ("null", None),
        ('"text"', "text"),
        ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
        ('{"a": "x\\ud99c"}', {"a": "x\ufffd"}),
    ],
)
def test_what_json_says(raw: str, expected: Any) -> None:
    parsed = parse_arguments(raw)

    assert parsed.value == expected
    assert parsed.problem == ""


def test_negative_zero_is_zero() -> None:
    assert str(parse_arguments("[-0.0]").value[0]) == "0.0"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ('{"command": "echo hi', "line 1, column 13"),
        ('{"a": 1,\n "b" 2}', "line 2, column 6"),
        ('{"a": NaN}', "NaN is not a JSON number at line 1, column 7"),
        ('{"NaN \\" NaN": 1,\n "b": [NaN]}', "NaN is not a JSON number at line 2, column 8"),
        ("[NaNcy]", "NaN is not a JSON number at line 1, column 2"),
        ("[-Infinity]", "-Infinity is not a JSON number at line 1, column 2"),
        ("[1, 11e400, 1e400]", "the number 11e400 is out of range at line 1, column 5"),
        ("[21e400, 1e400]", "the number 21e400 is out of range at line 1, column 2"),
        (f"[1,\n{'9' * 5000}]", "an integer of 5000 digits is out of range at line 2, column 1"),
        ("[" * 200_000, "nested too deeply"),
        ("{'a': 1}", "line 1, column 2"),
        ('{"a": 1} x', "Extra data"),
        ("   ", "line 1"),
        ("\ufeff{}", "line 1, column 1"),
    ],
)
def test_what_is_no_json_comes_back_as_text_with_the_place(raw: str, problem: str) -> None:
    parsed = parse_arguments(raw)

    assert parsed.value == raw
    assert problem in parsed.problem


@given(
    st.text()
    | st.text(st.sampled_from('[]{},:"\\-+.eE1 \nNaN') | st.sampled_from("Infity")).map("[NaN".__add__)
)
def test_parsing_is_total(raw: str) -> None:
    parsed = parse_arguments(raw)

    assert parsed.problem == "" or parsed.value == raw


PARAMETERS = compile_parameters(
    {
        "path": {"type": "string", "required": True},
        "limit": {"type": "integer"},
        "maybe": {"oneOf": [{"type": "string"}, {"type": "null"}]},
        "free": {"type": "json"},
        "list": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": True,
                "properties": {"x": {"type": "string"}},
            },
        },
    }
)


def test_null_for_an_optional_property_is_absent_unless_its_schema_has_null() -> None:
    given_args = {"path": "p", "limit": None, "maybe": None, "free": None, "list": [{"x": None, "y": None}]}

    args = check_arguments(PARAMETERS, given_args)

    assert args == {"path": "p", "maybe": None, "free": None, "list": [{"y": None}]}
    assert given_args["limit"] is None and "limit" in given_args


def test_null_for_a_required_property_is_a_violation() -> None:
    with pytest.raises(ToolArgsError, match=r'^invalid arguments: "path" must be a string$'):
        check_arguments(PARAMETERS, {"path": None})


def test_arguments_without_nulls_are_not_copied() -> None:
    args = {"path": "p", "list": [{"x": "y"}]}

    assert without_nulls(PARAMETERS, args) is args


def test_undeclared_arguments_pass_at_the_root() -> None:
    assert check_arguments(PARAMETERS, {"path": "p", "more": 1}) == {"path": "p", "more": 1}


def test_all_violations_are_in_one_message() -> None:
    with pytest.raises(ToolArgsError) as failure:
        check_arguments(PARAMETERS, {"limit": "x", "list": [{"x": 1}]})

    assert failure.value.message == (
        'invalid arguments: missing required property "path"; "limit" must be an integer; '
        '"list[0].x" must be a string'
    )
    assert failure.value.code == "INVALID_ARGS"


def test_a_flood_of_violations_is_counted_not_listed() -> None:
    with pytest.raises(ToolArgsError) as failure:
        check_arguments(PARAMETERS, {"path": "p", "list": [0] * 1000})

    assert failure.value.message.endswith("and 980 more")
    assert len(failure.value.violations) == 1000


def test_the_parameter_root_is_open_and_required_comes_last_and_only_when_needed() -> None:
    assert list(PARAMETERS) == ["type", "properties", "required"]
    assert PARAMETERS["required"] == ["path"]
    assert PARAMETERS["properties"]["path"] == {"type": "string"}
    assert PARAMETERS["properties"]["free"] == {}
    assert compile_parameters({}) == {"type": "object", "properties": {}}


def test_required_flags_work_at_every_level() -> None:
    node = {
        "type": "object",
        "properties": {"a": {"type": "string", "required": True}, "b": {"type": "string"}},
        "additionalProperties": False,
    }

    assert compile_schema(node) == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        ({"type": "object"}, "must say additionalProperties"),
        ({"type": "string", "pattern": "x"}, "not supported"),
        ({"type": "array", "items": {"type": "object"}}, "must say additionalProperties"),
        ("string", "must be a mapping"),
    ],
)
def test_the_author_language_is_strict(node: Any, problem: str) -> None:
    with pytest.raises(JsonSchemaError, match=problem):
        compile_parameters({"a": node})


def test_a_self_referring_description_is_refused() -> None:
    node: dict[str, Any] = {"type": "array"}
    node["items"] = node

    with pytest.raises(JsonSchemaError, match="levels deep"):
        compile_parameters({"a": node})


async def shout(args: Any, _: ToolExecution) -> str:
    text: str = args["text"]
    return text.upper() + "!" * int(args.get("times", 1))


SHOUT = typed_tool(
    name="shout",
    description="Return the text in capitals.",
    parameters={"text": {"type": "string", "required": True}, "times": {"type": "integer"}},
    output=TEXT_OUTPUT,
    execute=shout,
    concurrency_safe=True,
)


@aio
async def test_a_typed_tool_gets_arguments_that_fit() -> None:
    _, tools = new_registry()
    tools.register(SHOUT)

    assert value(await tools.run(call("shout", {"text": "hi", "times": None}))) == "HI!"
    assert text(await tools.run(call("shout", {"text": "hi", "times": 2.0}))) == "HI!!"


@aio
async def test_arguments_that_do_not_fit_never_reach_the_body() -> None:
    _, tools = new_registry()
    tools.register(SHOUT)

    result = await tools.run(call("shout", {"times": True}))

    assert text(result) == (
        'Error: invalid arguments: missing required property "text"; "times" must be an integer'
    )
    assert code(result) == "INVALID_ARGS"


@aio
async def test_broken_json_is_told_with_its_place() -> None:
    _, tools = new_registry()
    tools.register(SHOUT)
    parsed = parse_arguments('{"text": "echo hi')

    result = await tools.run(call("shout", parsed.value, arguments_problem=parsed.problem))

    assert text(result) == (
        'Error: invalid arguments: "arguments" must be an object; the text is not valid JSON: '
        "Unterminated string at line 1, column 10"
    )
    assert code(result) == "INVALID_ARGS"


@pytest.mark.parametrize("arguments", [[], "x", 1, None, True])
@aio
async def test_anything_but_an_object_is_refused(arguments: Any) -> None:
    _, tools = new_registry()
    tools.register(SHOUT)

    result = await tools.run(ToolCall(call_id="c", name="shout", arguments=arguments))

    assert text(result) == 'Error: invalid arguments: "arguments" must be an object'


def test_only_exactly_true_is_concurrency_safe() -> None:
    _, tools = new_registry()
    answers: list[Any] = [True, 1, "yes", None, False]
    for at, answer in enumerate(answers):
        tools.register(
            typed_tool(
                name=f"t{at}",
                description="",
                parameters={},
                output=TEXT_OUTPUT,
                execute=shout,
                concurrency_safe=lambda args, answer=answer: answer,  # type: ignore[misc]
            )
        )

    modes = [tools.execution_mode(call(f"t{at}")) for at in range(len(answers))]

    assert modes == ["parallel", "exclusive", "exclusive", "exclusive", "exclusive"]


def test_a_call_whose_arguments_do_not_fit_is_exclusive() -> None:
    _, tools = new_registry()
    tools.register(SHOUT)

    assert tools.execution_mode(call("shout", {"text": "x"})) == "parallel"
    assert tools.execution_mode(call("shout", {"text": 1})) == "exclusive"


def test_resources_decide_over_concurrency_safety() -> None:
    _, tools = new_registry()
    tools.register(
        typed_tool(
            name="edit",
            description="",
            parameters={"path": {"type": "string", "required": True}},
            output=TEXT_OUTPUT,
            execute=shout,
            concurrency_safe=True,
            resources=lambda args, _: Resources(writes=frozenset({args["path"]})) if args["path"] else None,
        )
    )

    one, two = tools.resources(call("edit", {"path": "a"})), tools.resources(call("edit", {"path": "b"}))

    assert (one, two) == tuple(Resources(writes=frozenset({path})) for path in "ab")
    assert tools.resources(call("edit", {"path": ""})) is None
    assert tools.resources(call("edit", {"path": 1})) is None


@aio
async def test_projections_see_the_arguments_that_the_body_saw() -> None:
    _, tools = new_registry()

    async def nothing(_: Any, __: ToolExecution) -> str:
        return ""

    tools.register(
        typed_tool(
            name="show",
            description="",
            parameters={"a": {"type": "string"}},
            output=ToolOutput(
                {"type": "string"}, lambda args, _: repr(dict(args)), lambda args, _: dict(args)
            ),
            execute=nothing,
        )
    )

    result = await tools.run(call("show", {"a": None, "b": 1}))

    assert text(result) == "{'b': 1}"
    assert result.meta == {"b": 1}
