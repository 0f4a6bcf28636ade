"""Editing a YAML text in place: what is asked for changes, every other byte stays."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.composition.text.edit import Edit, EditError, edited
from dsh.composition.text.source import MAX_SLOW_CHARACTERS
from dsh.composition.text.yaml import YamlError, parse_yaml
from dsh.composition.value import Expr, Mark

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.sampled_from(
        ["no", "1e3", "0x1F", "- a", "a: b", "a #b", "<<", "~", "2024-01-01", "1_000", "#", "é"]
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab1.-:# ", max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


def change(text: str, op: Any, *path: str | int, value: Any = None) -> str:
    return edited(text, "f.yml", [Edit(op, path, value)])


def plain(value: Any) -> Any:
    """As our reader gives it: an integral float is an integer."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@pytest.mark.parametrize(
    ("text", "path", "value", "made"),
    [
        ("a: 1 # one\nb: 2\n", ("a",), 5, "a: 5 # one\nb: 2\n"),
        ("a: 'x' # q\n", ("a",), "it's", "a: 'it''s' # q\n"),
        ('a: "x"\n', ("a",), "y", 'a: "y"\n'),
        ("a:\nb: 2\n", ("a",), "x", "a: x\nb: 2\n"),
        ("a: # note\nb: 2\n", ("a",), "x", "a: x # note\nb: 2\n"),
        ("a: {b: 1, c: 2} # n\n", ("a", "b"), [1, "x"], "a: {b: [1, x], c: 2} # n\n"),
        ("a: {b: 1}\n", ("a", "c"), "x, y", 'a: {b: 1, c: "x, y"}\n'),
        ("a: [x]\n", ("a", 1), "y", "a: [x, y]\n"),
        ("a: []\n", ("a",), ["x"], "a:\n  - x\n"),
        ("a: {} # n\n", ("a", "b"), 1, "a: # n\n  b: 1\n"),
        ("a:\n  # lead\n  b: 1\n# tail\n", ("a", "c"), 2, "a:\n  # lead\n  b: 1\n  c: 2\n# tail\n"),
        ("a:\n    b: 1\n", ("c", "d"), 2, "a:\n    b: 1\nc:\n    d: 2\n"),
        ("a:\n- x # n\n", ("a", 1), "y", "a:\n- x # n\n- y\n"),
        ("a:\n   - x\n", ("b",), ["y"], "a:\n   - x\nb:\n   - y\n"),
        ("a: 1", ("b",), 2, "a: 1\nb: 2"),
        ("a: 1\r\n# c\r\nb: 2\r\n", ("b",), [3], "a: 1\r\n# c\r\nb:\r\n  - 3\r\n"),
        ("\ufeffa: 1\n", ("a",), 2, "\ufeffa: 2\n"),
        ("# nothing yet\n", ("a", "b"), 1, "# nothing yet\na:\n  b: 1\n"),
        ("", ("a",), None, "a: null\n"),
        ("a: |\n  x\n  y\nb: 1\n", ("a",), "z", "a: z\nb: 1\n"),
        ("a: |\n  x\n\n\n# c\n", ("b",), 1, "a: |\n  x\nb: 1\n\n\n# c\n"),
        ("a:\n  b: 1 # gone\n  c: 2\n# stays\n", ("a",), "x", "a: x\n# stays\n"),
        ("- id: a\n- id: b\n", (0, "config"), {"k": 1}, "- id: a\n  config:\n    k: 1\n- id: b\n"),
        ("- a\n- c\n", (1,), "b", "- a\n- b\n"),
        ("- - a\n  - b\n", (0, 1), {"x": 1}, "- - a\n  - x: 1\n"),
        ("%YAML 1.2\n---\na: 1\n...\n", ("b",), 2, "%YAML 1.2\n---\na: 1\nb: 2\n...\n"),
    ],
)
def test_set_changes_the_value_and_nothing_else(
    text: str, path: tuple[str | int, ...], value: Any, made: str
) -> None:
    assert change(text, "set", *path, value=value) == made
    assert change(made, "set", *path, value=value) == made


@pytest.mark.parametrize(
    ("text", "path", "made"),
    [
        ("a: 1 # one\n# two\nb: 2\n", ("a",), "# two\nb: 2\n"),
        ("a: 1\nb:\n  - x\n  - y\n# end\n", ("b",), "a: 1\n# end\n"),
        ("a: {b: 1, c: 2}\n", ("a", "b"), "a: {c: 2}\n"),
        ("a: {b: 1, c: 2}\n", ("a", "c"), "a: {b: 1}\n"),
        ("a: [x, y, z]\n", ("a", 1), "a: [x, z]\n"),
        ("a:\n  b: 1 # n\nc: 2\n", ("a", "b"), "a: {}\nc: 2\n"),
        ("a:\n- x\n", ("a", 0), "a: []\n"),
        ("- id: a\n  b: 1\n", (0, "id"), "- b: 1\n"),
        ("- a # n\n# c\n- b\n", (0,), "# c\n- b\n"),
        ("# c\na: 1\n", ("a",), "# c\n{}\n"),
        ("a: 1\n", ("b", "c"), "a: 1\n"),
        ("a:\n", ("a", "c"), "a:\n"),
        ("# c\n", ("a",), "# c\n"),
        ("- a\n", (1,), "- a\n"),
    ],
)
def test_unset_takes_the_value_out_and_nothing_else(
    text: str, path: tuple[str | int, ...], made: str
) -> None:
    assert change(text, "unset", *path) == made


def test_a_collection_set_over_another_keeps_the_comments_of_what_is_in_both() -> None:
    text = "m:\n  # first\n  a: 1 # one\n  b: {x: 1} # two\nl:\n  # hm\n  - p # p\n  - q # q\n  - r # r\n"
    new = {"a": 1, "b": {"x": 2}, "c": 3}
    made = edited(text, "f", [Edit("set", ("m",), new), Edit("set", ("l",), ["p", "r", "s"])])
    assert made == (
        "m:\n  # first\n  a: 1 # one\n  b: {x: 2} # two\n  c: 3\nl:\n  # hm\n  - p # p\n  - r # r\n  - s\n"
    )


def test_expressions_are_written_with_their_tag() -> None:
    made = change("a: 1\n", "set", "a", value=Expr("get(env, 'X') or 'a: b'", Mark("f", 1, 1)))
    assert made == "a: !expr \"get(env, 'X') or 'a: b'\"\n"


def test_a_value_shared_by_an_alias_is_left_to_its_author() -> None:
    for path in [("a", "x"), ("b", "x")]:
        with pytest.raises(EditError, match=r"f\.yml:\d:\d: \w\.x cannot be changed in place") as caught:
            change("a: &m {x: 1}\nb: *m\n", "set", *path, value=2)
        assert "by hand" in caught.value.hint
    assert change("a: &m {x: 1}\nb: *m # n\n", "set", "b", value=2) == "a: &m {x: 1}\nb: 2 # n\n"


@pytest.mark.parametrize(
    ("path", "found"), [(("a", "b"), "a is a number"), (("l", "b"), "l is a list"), (("l", 3), "l is a list")]
)
def test_a_path_through_what_holds_nothing_is_an_error(path: tuple[str | int, ...], found: str) -> None:
    with pytest.raises(EditError, match=found):
        change("a: 1\nl: [x]\n", "set", *path, value=1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: 2}, b"x", [object()], {"k": {1}}])
def test_only_json_data_is_written(value: Any) -> None:
    with pytest.raises(EditError, match="is not JSON data"):
        change("a: 1\n", "set", "a", value=value)


def test_a_broken_text_is_refused_with_its_place() -> None:
    with pytest.raises(YamlError, match=r"f\.yml:2:1: .*stands twice"):
        change("a: 1\na: 2\n", "set", "b", value=1)


def test_a_text_too_long_for_the_parser_that_keeps_places_is_left_to_its_author() -> None:
    text = "a: 1\n" + "# comment\n" * (MAX_SLOW_CHARACTERS // 10)
    with pytest.raises(EditError, match="a cannot be changed in place: it holds more than 131072 characters"):
        change(text, "set", "a", value=2)
    assert change(text, "set", "a", value=1) == text


@given(VALUES, VALUES)
def test_any_value_over_any_other_reads_back(old: Any, new: Any) -> None:
    text = change("", "set", value={"k": old, "l": [old]})
    made = edited(text, "f", [Edit("set", ("k",), new), Edit("set", ("l", 0), new), Edit("set", ("m",), new)])
    assert parse_yaml(made.encode(), "f") == plain({"k": new, "l": [new], "m": new})
    assert edited(made, "f", [Edit("set", ("m",), new)]) == made


@given(st.dictionaries(st.sampled_from("abcde"), VALUES, min_size=1), st.sampled_from("abcde"))
def test_comments_on_other_keys_survive_any_edit(document: dict[str, Any], key: str) -> None:
    text = "# head\n" + "".join(f"# about {k}\n" + change("", "set", k, value=v) for k, v in document.items())
    for made in (change(text, "set", key, value={"new": 1}), change(text, "unset", key)):
        for other in document:
            assert other == key or f"# about {other}\n" in made
        assert made.startswith("# head\n")
