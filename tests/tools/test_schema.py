"""The schema subset: what is refused at registration, what a value must be."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.tools.error import JsonSchemaError
from dsh.tools.schema import admits_null, check_schema, validate

DEPTH = 20_000


@pytest.mark.parametrize(
    "keyword", ["$ref", "anyOf", "allOf", "not", "pattern", "minimum", "maxItems", "format", "nullable"]
)
def test_a_keyword_outside_the_subset_is_refused(keyword: str) -> None:
    with pytest.raises(JsonSchemaError, match="is not supported") as failure:
        check_schema({"type": "string", keyword: 1})

    assert failure.value.code == "UNSUPPORTED_SCHEMA"


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("string", "must be an object"),
        ({"type": ["string", "null"]}, "type must be one of"),
        ({"type": "text"}, "type must be one of"),
        ({"type": None}, "type must be one of"),
        ({"oneOf": [{}]}, "at least two"),
        ({"oneOf": {}}, "at least two"),
        ({"oneOf": [{}, {}], "type": "string"}, "stands alone"),
        ({"oneOf": [{}, 3]}, r"oneOf\[1\] must be an object"),
        ({"type": "string", "properties": {}}, "properties needs type 'object'"),
        ({"required": ["a"]}, "required needs type 'object'"),
        ({"type": "object", "required": ["a"]}, "does not declare"),
        ({"type": "object", "properties": {"a": {}}, "required": ["a", "a"]}, "twice"),
        ({"type": "object", "properties": {"a": {}}, "required": "a"}, "list of names"),
        ({"type": "object", "properties": [1]}, "must map names"),
        ({"type": "object", "additionalProperties": {}}, "true or false"),
        ({"items": {}}, "items needs type 'array'"),
        ({"type": "array", "items": [{}]}, "items must be an object"),
        ({"enum": []}, "at least one"),
        ({"type": "string", "enum": ["a", 1]}, "not a string"),
        ({"type": "integer", "enum": [True]}, "not an integer"),
        ({"enum": [[]]}, "no string, finite number"),
        ({"const": float("nan")}, "no string, finite number"),
        ({"type": "string", "const": 1}, "not a string"),
        ({"enum": ["a"], "const": "b"}, "not one of enum"),
        ({"enum": [1], "const": True}, "not one of enum"),
        ({"description": 1}, "must be a string"),
        ({"title": None}, "must be a string"),
        ({"default": {1}}, "not lossless JSON"),
        ({"examples": [float("inf")]}, "not lossless JSON"),
    ],
)
def test_a_malformed_schema_is_refused(schema: Any, problem: str) -> None:
    with pytest.raises(JsonSchemaError, match=problem):
        check_schema(schema)


def test_every_violation_is_named_with_its_place() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"pattern": "x"}}, "b": {"format": "date"}},
        "required": ["c"],
    }

    with pytest.raises(JsonSchemaError) as failure:
        check_schema(schema)

    first, second, third = failure.value.violations
    assert "required names 'c'" in first
    assert second.startswith("a.items: keyword 'pattern'")
    assert third.startswith("b: keyword 'format'")


def test_a_schema_that_contains_itself_is_refused() -> None:
    schema: dict[str, Any] = {"type": "array"}
    schema["items"] = schema

    with pytest.raises(JsonSchemaError, match="contains itself"):
        check_schema(schema)


def test_the_same_schema_may_be_used_in_two_places() -> None:
    shared = {"type": "string"}

    check_schema({"type": "object", "properties": {"a": shared, "b": shared}})


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("object", [{}], [[], "x", None]),
        ("array", [[], ()], [{}, "x"]),
        ("string", ["", "x"], [1, None]),
        ("number", [0, 1.5, -2], [True, False, "1", float("nan"), float("inf"), None]),
        ("integer", [0, 1.0, -2, 10**30], [1.5, True, "1", float("inf"), None]),
        ("boolean", [True, False], [0, 1, "true", None]),
        ("null", [None], [0, "", False]),
    ],
)
def test_types(kind: str, good: list[Any], bad: list[Any]) -> None:
    schema = {"type": kind}

    assert [v for v in good if validate(schema, v)] == []
    assert [v for v in bad if not validate(schema, v)] == []


def test_messages_name_the_place() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "number"}, "c": {}}, "required": ["c"]}
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": inner}}}

    found = validate(schema, {"a": [{"b": "x"}, 1]}, "arguments")

    assert found == [
        'missing required property "a[0].c"',
        '"a[0].b" must be a number',
        '"a[1]" must be an object',
    ]
    assert validate(schema, "x", "arguments") == ['"arguments" must be an object']


def test_an_undeclared_property_is_refused_only_where_the_schema_says_so() -> None:
    closed = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}

    assert validate(closed, {"a": 1, "b": 2}) == ['"b" is not a declared property (declared: a)']
    assert validate({"type": "object", "properties": {"a": {}}}, {"b": 2}) == []


def test_absent_and_null_differ() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}

    assert validate(schema, {}) == ['missing required property "a"']
    assert validate(schema, {"a": None}) == ['"a" must be a string']


def test_choices_compare_as_json_does() -> None:
    assert validate({"enum": [1, "a"]}, 1.0) == []
    assert validate({"enum": [1, "a"]}, True) == ['"value" must be one of [1,"a"]']
    assert validate({"const": False}, 0) == ['"value" must be false']


def test_exactly_one_alternative_must_match() -> None:
    schema = {"oneOf": [{"type": "integer"}, {"type": "number"}, {"type": "string"}]}

    assert validate(schema, 1.5) == []
    assert validate(schema, "x") == []
    assert validate(schema, 1) == ['"value" must match exactly one of 3 alternatives, it matches 2']
    assert validate(schema, None) == ['"value" must match exactly one of 3 alternatives, it matches none']


def test_a_failed_alternative_leaves_no_message_of_its_own() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}},
    }

    assert validate(schema, {"a": ["x"]}) == []


def test_depth_is_no_problem() -> None:
    schema: dict[str, Any] = {}
    value: Any = "leaf"
    for _ in range(DEPTH):
        schema = {"type": "array", "items": schema}
        value = [value]

    check_schema(schema)

    assert validate(schema, value) == []


def test_a_deep_place_is_named_in_bounded_text() -> None:
    schema: dict[str, Any] = {"type": "string"}
    value: Any = 1
    for _ in range(DEPTH):
        schema = {"type": "array", "items": schema}
        value = [value]

    (message,) = validate(schema, value)

    assert message.startswith('"…[0]') and len(message) < 500


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, True),
        ({"description": "x"}, True),
        ({"type": "null"}, True),
        ({"type": "string"}, False),
        ({"enum": ["a", None]}, True),
        ({"enum": ["a"]}, False),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, True),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, False),
    ],
)
def test_which_schemas_admit_null(schema: dict[str, Any], expected: bool) -> None:
    assert admits_null(schema) is expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


def schemas() -> st.SearchStrategy[dict[str, Any]]:
    leaf: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
        [{}, *({"type": k} for k in ("string", "number", "integer", "boolean", "null", "object", "array"))]
    )

    def grow(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
        return (
            inner.map(lambda s: {"type": "array", "items": s})
            | st.dictionaries(st.text(max_size=3), inner, max_size=3).map(
                lambda p: {"type": "object", "properties": p, "required": list(p)[:1]}
            )
            | st.lists(inner, min_size=2, max_size=3).map(lambda b: {"oneOf": b})
        )

    return st.recursive(leaf, grow, max_leaves=6)


@given(schemas(), json_values)
def test_validation_is_total(schema: dict[str, Any], value: Any) -> None:
    check_schema(schema)

    assert all(isinstance(message, str) for message in validate(schema, value))


@given(st.text())
def test_checking_any_text_as_a_keyword_gives_a_named_error(keyword: str) -> None:
    known = {"type", "oneOf", "properties", "required", "additionalProperties", "items", "enum", "const"}
    if keyword in known | {"description", "title", "default", "examples"}:
        return
    with pytest.raises(JsonSchemaError):
        check_schema({keyword: True})


SCALARS = ["string", "number", "integer", "boolean", "null"]
FLAT = st.fixed_dictionaries(
    {"type": st.sampled_from(SCALARS)}, optional={"description": st.just("x"), "const": st.none()}
)
RECORD = st.builds(
    lambda declared, required, more: {
        "type": "object",
        "properties": declared,
        "required": [key for key in declared if key in required],
        **({} if more is None else {"additionalProperties": more}),
    },
    st.dictionaries(
        st.sampled_from("abc"),
        FLAT
        | st.just({})
        | st.just({"type": "array", "items": {"type": "null"}})
        | st.just({"type": "object", "required": ["a"], "properties": {"a": {}}})
        | st.just({"oneOf": [{"type": "string"}, {"type": "null"}]})
        | st.just({"type": "string", "enum": ["", "a"]}),
    ),
    st.sets(st.sampled_from("abc")),
    st.sampled_from([None, True, False]),
)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("ab", max_size=1),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=4,
)


@given(FLAT | RECORD | st.just({"type": "array"}) | st.just({}), st.lists(VALUE, min_size=2, max_size=4))
def test_items_of_a_list_are_looked_at_as_if_each_were_alone(items: Any, values: list[Any]) -> None:
    schema = {"type": "array", "items": items}

    assert validate(schema, values) == [
        problem.replace("[0]", f"[{at}]", 1)
        for at, value in enumerate(values)
        for problem in validate(schema, [value])
    ]
