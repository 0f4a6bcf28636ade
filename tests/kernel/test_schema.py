"""Config schemas: absent, null, unknown, wrong (`spec/kernel.md` §9)."""

from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.errors import KernelError
from dsh.kernel import ValidationError, resolve_config, simplify


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


def test_unknown_keys_are_left_out_where_somebody_is_told() -> None:
    told: list[tuple[str, str, str]] = []
    raw = {
        "requiredWord": "w",
        "nope": 1,
        "inner": {"deep_value": 3, "deepValue": 4},
        "rows": [{}, {"x": None}],
        "byName": {"k": {"y": {"z": 1}}},
    }
    config = resolve_config(Config, raw, lambda *what: told.append(what))

    assert [(path, key) for path, key, _ in told] == [
        ("", "nope"), ("inner", "deep_value"), ("rows.1", "x"), ("byName.k", "y"),
    ]  # fmt: skip
    assert told[1][2] == "did you mean 'deepValue'?"
    assert (config.inner.deep_value, config.by_name) == (4, {"k": Inner()})


def test_what_is_wrong_besides_unknown_keys_is_an_error_all_the_same() -> None:
    with pytest.raises(ValidationError, match="expected integer"):
        resolve_config(Config, {"requiredWord": "w", "maxCount": "3", "nope": 1}, lambda *_: None)


class Lenient(msgspec.Struct):
    """A schema whose author did not think of unknown keys."""

    word: str = ""


class Circle(msgspec.Struct, tag="circle", forbid_unknown_fields=True):
    radius: int


class Square(msgspec.Struct, tag="square", forbid_unknown_fields=True):
    side: int | None = None


class Shapes(msgspec.Struct, forbid_unknown_fields=True):
    shape: Circle | Square
    pair: tuple[int, Inner] = (0, Inner())


def test_a_key_that_no_field_has_is_an_error_also_where_the_struct_would_ignore_it() -> None:
    with pytest.raises(ValidationError, match="unknown key 'wrod'"):
        resolve_config(Lenient, {"wrod": "x"})


@pytest.mark.parametrize(
    ("raw", "path", "key"),
    [
        ({"shape": {"type": "circle", "radius": 1, "side": 2}}, "shape", "side"),
        ({"shape": {"type": "square"}, "pair": [1, {"q": 1}]}, "pair.1", "q"),
    ],
)
def test_unknown_keys_are_found_in_tagged_unions_and_tuples(raw: dict[str, Any], path: str, key: str) -> None:
    with pytest.raises(ValidationError) as caught:
        resolve_config(Shapes, raw)

    assert (caught.value.path, caught.value.unknown) == (path, key)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_are_finite(value: float) -> None:
    with pytest.raises(ValidationError, match="expected a finite number \\(at ratio\\)"):
        resolve_config(Config, {"requiredWord": "w", "ratio": value})


def test_a_config_that_is_no_schema_says_so() -> None:
    class Strange(msgspec.Struct):
        either: list[int] | list[str]

    with pytest.raises(ValidationError, match="the plugin's Config is no schema"):
        resolve_config(Strange, {"either": [1]})


@pytest.mark.parametrize(
    ("raw", "simple"),
    [
        ({"requiredWord": "w"}, {"requiredWord": "w"}),
        ({"requiredWord": "w", "maxCount": 3, "names": [], "maybe": "set"}, {"requiredWord": "w"}),
        ({"requiredWord": "w", "maybe": None}, {"requiredWord": "w", "maybe": None}),
        (
            {"requiredWord": "w", "inner": {"deepValue": 3}, "rows": [{"deepValue": 2}]},
            {"requiredWord": "w", "inner": {"deepValue": 3}, "rows": [{"deepValue": 2}]},
        ),
    ],
)
def test_a_simplified_config_leaves_out_the_defaults_and_means_the_same(
    raw: dict[str, Any], simple: dict[str, Any]
) -> None:
    config = resolve_config(Config, raw)

    assert simplify(config) == simple
    assert resolve_config(Config, simplify(config)) == config


@given(
    st.builds(
        Config,
        required_word=st.text(),
        max_count=st.integers(-5, 5),
        ratio=st.floats(allow_nan=False, allow_infinity=False),
        mode=st.sampled_from(["a", "b"]),
        names=st.lists(st.text(max_size=3), max_size=3),
        inner=st.builds(Inner, deep_value=st.integers(1, 3)),
        maybe=st.none() | st.just("set") | st.text(max_size=3),
        rows=st.lists(st.builds(Inner, deep_value=st.integers(1, 3)), max_size=2),
        by_name=st.dictionaries(st.text(max_size=3), st.builds(Inner), max_size=2),
    )
)
def test_simplifying_and_resolving_gives_the_same_config_back(config: Config) -> None:
    assert resolve_config(Config, simplify(config)) == config


def test_a_row_without_options_says_so() -> None:
    class Nothing(msgspec.Struct, forbid_unknown_fields=True):
        pass

    with pytest.raises(ValidationError) as caught:
        resolve_config(Nothing, {"k": 1})

    assert caught.value.hint == "there are no keys"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_schema_whose_code_ends_the_program_has_only_failed(error: BaseException) -> None:
    class Hostile(msgspec.Struct):
        def __post_init__(self) -> None:
            raise error

    with pytest.raises(KernelError, match=f"the plugin's Config raised {type(error).__name__}"):
        resolve_config(Hostile, {})
