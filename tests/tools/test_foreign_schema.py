"""Schemas from outside: what fits them, and that checking never reaches out or fails."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.session.value import freeze
from dsh.tools.foreign_schema import ForeignSchema, ForeignSchemaError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("schema", "value", "found"),
    [
        ({"type": "integer"}, 1, []),
        ({"type": "integer"}, True, ['true is not of type "integer"']),
        ({"items": {"items": {"minimum": 2}}}, [[2, 1]], ['"[0][1]": 1 is less than the minimum of 2']),
        ({"$ref": "#/$defs/P", "$defs": {"P": {"type": "null"}}}, 0, ['0 is not of type "null"']),
        ({"pattern": "^a+$"}, "b", ['"b" does not match "^a+$"']),
    ],
)  # fmt: skip
def test_each_violation_names_its_place(schema: dict[str, Any], value: Any, found: list[str]) -> None:
    assert ForeignSchema(schema).violations(freeze(value, "value")) == found


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "#/nowhere"},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "file:///etc/hostname"},
        {"pattern": "("},
    ],
)
def test_what_is_no_schema_or_leads_out_of_itself_is_an_error(schema: dict[str, Any]) -> None:
    with pytest.raises(ForeignSchemaError):
        ForeignSchema(schema)


def test_violations_are_bounded_in_number_and_length() -> None:
    found = ForeignSchema({"items": {"type": "string"}}).violations([{"k": "x" * 9_000}] * 400)

    assert len(found) == 50
    assert max(map(len, found)) < 1_000


def test_nulls_of_optional_properties_count_as_absent_only_where_that_helps() -> None:
    schema = ForeignSchema(
        {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["b"]}
    )

    assert schema.fitted({"a": None, "b": "x"}) == ({"b": "x"}, [])
    assert schema.fitted({"a": None, "b": None})[1]
    assert schema.fitted({"c": None, "b": "x"}) == ({"c": None, "b": "x"}, [])


@given(
    schema=st.dictionaries(st.sampled_from(["type", "items", "enum", "anyOf", "not", "minimum"]), JSON),
    value=JSON,
)
def test_any_json_is_a_schema_or_an_error_and_checks_any_value(schema: dict[str, Any], value: Any) -> None:
    try:
        compiled = ForeignSchema(schema)
    except ForeignSchemaError:
        return
    assert all(isinstance(text, str) for text in compiled.violations(value))
