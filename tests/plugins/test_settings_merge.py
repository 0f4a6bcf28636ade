"""Laws of the two ways to lay JSON data over JSON data."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dsh.plugins.settings.merge import layered, patched, same

SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return value


@given(base=OBJECTS, over=OBJECTS)
def test_a_layer_laid_twice_is_a_layer_laid_once(base: Any, over: Any) -> None:
    once = layered(base, over)
    assert same(layered(once, over), once)
    assert same(layered(base, {}), base)
    assert same(layered({}, over), over)


def shaped(depth: int) -> st.SearchStrategy[dict[str, Any]]:
    """Objects in which a key holds a mapping in all of them or in none, as a schema wants it."""
    plain = SCALARS | st.lists(SCALARS, max_size=2)
    inner = {"m": shaped(depth - 1), "n": shaped(depth - 1)} if depth else {}
    return st.fixed_dictionaries({}, optional={"a": plain, "b": plain, **inner})


@given(one=shaped(3), two=shaped(3), three=shaped(3))
def test_layers_of_one_shape_may_be_joined_in_any_grouping(one: Any, two: Any, three: Any) -> None:
    assert same(layered(layered(one, two), three), layered(one, layered(two, three)))


@given(base=OBJECTS, patch=OBJECTS)
def test_a_merge_patch_made_twice_is_made_once_and_leaves_no_null_of_its_own(base: Any, patch: Any) -> None:
    once = patched(base, patch)
    assert same(patched(once, patch), once)
    assert same(patched({}, patch), without_nulls(patch))
    assert same(patched(base, {}), base)
    assert same(patched(base, dict.fromkeys(base)), {})


@given(base=OBJECTS, over=OBJECTS)
def test_what_is_given_is_not_changed(base: Any, over: Any) -> None:
    before = (repr(base), repr(over))
    made = layered(base, over)
    for value in (made, patched(base, over)):
        value["new"] = 1
        for item in value.values():
            if isinstance(item, list):
                item.append(1)
    assert (repr(base), repr(over)) == before


@given(value=VALUES)
def test_true_is_not_one(value: Any) -> None:
    assert same(value, value)
    assert not same([value, True], [value, 1])
    assert same({"a": value, "b": 1.0}, {"b": 1, "a": value})
