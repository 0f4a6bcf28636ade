"""What may enter the log, how it is copied, and how it is written (`spec/session-log.md` §1)."""

import copy
import json
from collections import defaultdict
from decimal import Decimal
from enum import IntEnum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.session.error import JsonError
from dsh.session.value import (
    MAX_DEPTH,
    MAX_SAFE_INT,
    FrozenDict,
    clean,
    decode_strict,
    encode,
    freeze,
    json_equal,
    safe_int,
)
from dsh.unicode import valid

numbers = st.integers(-MAX_SAFE_INT, MAX_SAFE_INT) | st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda x: x != 0 or str(x) == "0.0"
)
any_text = st.text(st.characters(codec=None))
trees = st.recursive(
    st.none() | st.booleans() | numbers | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=20,
)


class Colour(IntEnum):
    RED = 1


class Name(str):
    __slots__ = ()


class Struct(msgspec.Struct):
    a: int = 1


class Fickle(dict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise AssertionError("read twice")


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@given(trees)
def test_a_tree_survives_freezing_encoding_and_decoding(tree: Any) -> None:
    frozen = freeze(tree, "tree")

    assert json_equal(decode_strict(encode(frozen)), tree)


@given(trees)
def test_the_encoder_agrees_with_the_standard_library_on_everything_but_the_layout(tree: Any) -> None:
    text = encode(freeze(tree, "tree"))

    assert json_equal(json.loads(text), tree)
    assert b" " not in encode({"a": [1, 2]})


@given(trees)
def test_freezing_what_is_frozen_shares_it(tree: Any) -> None:
    frozen = freeze({"value": tree}, "tree")

    assert freeze(frozen, "again") is frozen
    assert freeze([frozen], "again")[0] is frozen


@pytest.mark.parametrize(
    "bad",
    [
        Colour.RED,
        Name("x"),
        defaultdict(int),
        Fickle(a=1),
        Decimal(1),
        b"x",
        {1},
        Struct(),
        {1: "x"},
        {True: "x"},
        float("nan"),
        float("inf"),
        float("-inf"),
        -0.0,
        MAX_SAFE_INT + 1,
        -MAX_SAFE_INT - 1,
        10**400,
    ],
    ids=repr,
)
def test_what_is_not_lossless_json_is_refused_with_its_path(bad: Any) -> None:
    with pytest.raises(JsonError, match=r"x: data\.list\[1\]"):
        freeze({"list": [1, bad]}, "x: data")


def test_a_cycle_is_refused_and_a_shared_part_is_copied() -> None:
    loop: list[Any] = []
    loop.append(loop)
    shared = {"a": 1}

    with pytest.raises(JsonError, match="cycle"):
        freeze(loop, "loop")
    assert freeze([shared, shared], "shared") == ({"a": 1}, {"a": 1})


def test_512_levels_are_the_limit() -> None:
    assert encode(freeze(nested(MAX_DEPTH), "deep")) == b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    with pytest.raises(JsonError, match="levels"):
        freeze(nested(MAX_DEPTH + 1), "deep")


def test_the_limit_counts_what_was_frozen_before() -> None:
    inner = freeze({"a": nested(MAX_DEPTH - 2)}, "inner")

    freeze([inner], "fits")
    with pytest.raises(JsonError, match="levels"):
        freeze([[inner]], "does not fit")


def test_a_very_deep_line_is_a_named_error() -> None:
    with pytest.raises(JsonError, match="levels"):
        decode_strict(b"[" * 100_000 + b"]" * 100_000)


@pytest.mark.parametrize("depth", [600, 900])
def test_a_deep_line_is_refused_when_it_enters_the_log(depth: int) -> None:
    with pytest.raises(JsonError, match="levels"):
        freeze(decode_strict(b"[" * depth + b"]" * depth), "line", stored=True)


def test_the_copy_is_detached_and_cannot_be_changed() -> None:
    given_ = {"a": [1, {"b": 2}]}
    frozen = freeze(given_, "value")
    given_["a"].append(3)

    assert frozen == {"a": (1, {"b": 2})}
    changes: list[Any] = [
        lambda: frozen.update(x=1),
        lambda: frozen.pop("a"),
        lambda: frozen.setdefault("x", 1),
        lambda: frozen.clear(),
        lambda: frozen.popitem(),
        lambda: frozen.__setitem__("x", 1),
        lambda: frozen.__delitem__("a"),
        lambda: frozen.__ior__({"x": 1}),
        lambda: FrozenDict({"x": 1}),
    ]
    for change in changes:
        with pytest.raises(TypeError):
            change()
    assert copy.deepcopy(frozen) is frozen


@pytest.mark.parametrize(
    "text",
    [
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"\xef\xbb\xbf1",
        '{"a":1}'.encode("utf-16"),
        "1".encode("utf-32"),
        b"1" * 5000,
        b"1e400",
        b"-1e400",
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"{'a':1}",
        b"[1,]",
        b"",
        b"1 2",
        b'["\\ud800", NaN]',
        b'["\\ud800", 1e400]',
        b'["\\ud800"',
    ],
    ids=lambda text: repr(text[:12]),
)
def test_strict_reading_refuses(text: bytes) -> None:
    with pytest.raises(JsonError):
        decode_strict(text)


def test_a_stored_value_keeps_what_its_writer_wrote() -> None:
    value = decode_strict(b'{"big":12345678901234567000,"one":1.0,"__proto__":1,"a":1,"a":2}')

    assert freeze(value, "data", stored=True) == {
        "big": 12345678901234567000,
        "one": 1,
        "__proto__": 1,
        "a": 2,
    }
    assert type(freeze(value, "data", stored=True)["one"]) is int


def test_lone_surrogates_are_written_as_lower_case_escapes_and_everything_else_raw() -> None:
    value = {"k\ud83d": ["é\udc00", "🏷", '\x00\x1f\x7f"\\\b\t\n\f\r/']}

    text = encode(freeze(value, "data"))

    assert text.decode() == ('{"k\\ud83d":["é\\udc00","🏷","\\u0000\\u001f\x7f\\"\\\\\\b\\t\\n\\f\\r/"]}')
    assert decode_strict(text) == value


def test_cleaning_replaces_lone_surrogates_and_joins_halves_that_fit() -> None:
    assert valid("a\ud83db\ud83c\udff7") == "a�b🏷"
    fine = freeze({"a": "🏷"}, "fine")
    assert clean(fine) is fine
    assert clean(freeze({"a\ud83d": ["\udc00"]}, "old")) == {"a�": ("�",)}


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (None, False, False),
        ([1], (1,), True),
        ({"a": 1, "b": [True]}, {"b": [True], "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ({"a": None}, {"b": None}, False),
        ([1, 2], [1], False),
        ([], {}, False),
        ("1", 1, False),
        ([[1]], [[True]], False),
    ],
)
def test_equality_is_that_of_json(left: Any, right: Any, equal: bool) -> None:
    assert json_equal(left, right) is equal
    assert json_equal(right, left) is equal


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1),
        (1.0, 1),
        (True, None),
        (1.5, None),
        (-0.0, None),
        ("1", None),
        (None, None),
        (MAX_SAFE_INT, MAX_SAFE_INT),
        (MAX_SAFE_INT + 1, None),
        (1e300, None),
        (float("nan"), None),
    ],
)
def test_a_safe_integer_is_a_number_without_a_fraction(value: object, expected: int | None) -> None:
    assert safe_int(value) == expected
