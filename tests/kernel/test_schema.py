"""Config schemas: absent, null, unknown, wrong (`spec/kernel.md` §9)."""

from typing import Any, Literal

import msgspec
import pytest

from dsh.kernel import ValidationError, resolve_config


class Inner(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    deep_value: int = 2


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    required_word: str
    max_count: int = 3
    ratio: float = 0.5
    mode: Literal["a", "b"] = "a"
    names: list[str] = msgspec.field(default_factory=list)
    inner: Inner = msgspec.field(default_factory=Inner)
    maybe: str | None = "set"
    rows: list[Inner] = msgspec.field(default_factory=list)
    by_name: dict[str, Inner] = msgspec.field(default_factory=dict)


def test_defaults_materialise_at_every_depth() -> None:
    config = resolve_config(Config, {"requiredWord": "w", "rows": [{}]})

    assert (config.max_count, config.names, config.inner.deep_value) == (3, [], 2)
    assert config.rows[0].deep_value == 2


@pytest.mark.parametrize("raw", [{"requiredWord": "w", "maxCount": None, "inner": {"deepValue": None}}])
def test_null_counts_as_absent_where_there_is_no_null(raw: dict[str, Any]) -> None:
    config = resolve_config(Config, raw)

    assert (config.max_count, config.inner.deep_value) == (3, 2)


def test_null_stays_where_the_type_has_it() -> None:
    assert resolve_config(Config, {"requiredWord": "w", "maybe": None}).maybe is None


@pytest.mark.parametrize("raw", [None, {}, {"requiredWord": None}])
def test_required_is_reported_also_for_null(raw: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        resolve_config(Config, raw)

    assert caught.value.message == "invalid config:\n  - missing required value (at requiredWord)"


@pytest.mark.parametrize(
    ("raw", "problem", "path"),
    [
        ({"maxCount": "3"}, "expected integer but got string", "maxCount"),
        ({"maxCount": True}, "expected integer but got boolean", "maxCount"),
        ({"names": [1]}, "expected string but got integer", "names.0"),
        ({"inner": {"deepValue": []}}, "expected integer but got array", "inner.deepValue"),
        ({"rows": [{}, {"deepValue": "x"}]}, "expected integer but got string", "rows.1.deepValue"),
        ({"inner": {"dep": 1}}, "unknown key 'dep'", "inner"),
        ({"nope": 1}, "unknown key 'nope'", ""),
        ({"ratio": "x"}, "expected number but got string", "ratio"),
        ({"mode": "c"}, "expected a | b", "mode"),
        ({"byName": {"x": {"deepValue": "y"}}}, "expected integer but got string", "byName.x.deepValue"),
        ({"byName": {"x": {"dep": 1}}}, "unknown key 'dep'", "byName.x"),
    ],
)
def test_the_first_problem_is_named_with_its_place(raw: dict[str, Any], problem: str, path: str) -> None:
    with pytest.raises(ValidationError) as caught:
        resolve_config(Config, {"requiredWord": "w", **raw})

    assert (caught.value.problem, caught.value.path) == (problem, path)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("key", ["maxCount", "mode", "names", "rows"])
def test_values_are_never_printed(key: str) -> None:
    with pytest.raises(ValidationError) as caught:
        resolve_config(Config, {"requiredWord": "w", key: "sk-secret"})

    assert "sk-secret" not in str(caught.value) + caught.value.hint


@pytest.mark.parametrize(
    ("raw", "hint"),
    [
        ({"inner": {"deepvalue": 1}}, "did you mean 'deepValue'?"),
        ({"byName": {"x": {"zzz": 1}}}, "known keys: deepValue"),
        ({"max_count": 1}, "did you mean 'maxCount'?"),
    ],
)
def test_an_unknown_key_is_answered_with_those_that_are_known(raw: dict[str, Any], hint: str) -> None:
    with pytest.raises(ValidationError) as caught:
        resolve_config(Config, {"requiredWord": "w", **raw})

    assert caught.value.hint == hint


def test_a_row_without_options_says_so() -> None:
    class Nothing(msgspec.Struct, forbid_unknown_fields=True):
        pass

    with pytest.raises(ValidationError) as caught:
        resolve_config(Nothing, {"k": 1})

    assert caught.value.hint == "there are no keys"
