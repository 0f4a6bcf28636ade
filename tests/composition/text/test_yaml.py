"""The YAML dialect of composition files: what each spelling reads as, and what is refused where."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.composition.text.source import MAX_SLOW_CHARACTERS
from dsh.composition.text.yaml import MAX_TAG, YamlError, parse_yaml, read_yaml
from dsh.composition.value import Expr
from dsh.errors import CompositionError
from tests.composition.layers import write


def parsed(text: str | bytes) -> object:
    return parse_yaml(text.encode() if isinstance(text, str) else text, "f.yml")


def refused(text: str | bytes) -> YamlError:
    with pytest.raises(YamlError) as caught:
        parsed(text)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *((word, True) for word in ("true", "True", "TRUE")),
        *((word, False) for word in ("false", "False", "FALSE")),
        *((word, word) for word in ("yes", "no", "on", "off", "y", "n", "N", "tRue", "No", "nULL")),
        *((word, None) for word in ("", "~", "null", "Null", "NULL")),
        ("12", 12), ("+1", 1), ("-0", 0), ("014", 14), ("0o14", 12), ("0x1F", 31), ("0b11", 3),
        ("-0x1f", -31),
        ("1e3", 1000), ("1.", 1), (".5", 0.5), ("12e03", 12000), ("-2E+05", -200000), ("1.25", 1.25),
        *((word, word) for word in ("1_000", "1,000", "0o8", "1e", "0x", "1:30", "190:20:30",
        "2024-01-01", "=")),
        *((word, word) for word in ("-1_0", "+", "-", ".", "1.2.3", "0b2", "2024-01-01T00:00:00Z", "<<")),
        ("'12'", "12"), ('"true"', "true"), ("!!str 12", "12"), ("!!int 12", 12), ("!!float 1.5", 1.5),
        ("! '12'", "12"), ("|\n    12", "12"),
        *((f"{mark} {word}", word) for mark in ("!", "&a !", "! &a") for word in ("12", "true", "null", "~")),
        ("!\n  12", "12"), ("!", ""),
    ],
)  # fmt: skip
def test_plain_scalars_read_as_the_table_says(written: str, value: object) -> None:
    document = parsed(f"k: {written}" if written not in ("-",) else "k: '-'")
    assert isinstance(document, dict)
    assert document["k"] == value
    assert type(document["k"]) is type(value)


@pytest.mark.parametrize("written", [".inf", "-.INF", "+.Inf", ".nan", ".NaN", "1e999", "!!float .inf"])
def test_numbers_that_are_not_finite_are_refused(written: str) -> None:
    assert "not a finite number" in str(refused(f"a: {written}"))


def test_a_lone_exclamation_mark_makes_text_wherever_it_stands() -> None:
    written = '\ufeffa: "😀é"\r\nb: [! 1,! 2, 3]\r\n! 4: {c: ! 5, d: x:y, e: ! , f: ! [6]}'
    assert parsed(written) == {"a": "😀é", "b": ["1", "2", 3], "4": {"c": "5", "d": "x:y", "e": "", "f": [6]}}


def test_keys_are_strings_of_what_they_read_as() -> None:
    assert parsed("{on: 1, off: 2, true: 3, null: 4, 12: x, 0x1F: h}") == {
        "on": 1, "off": 2, "true": 3, "null": 4, "12": "x", "31": "h",
    }  # fmt: skip
    assert list(parsed("1: a\nnull: b\nTRUE: c\n")) == ["1", "null", "true"]  # type: ignore[call-overload]


def test_a_pair_of_escapes_is_one_character_as_in_json() -> None:
    assert parsed('{"a\\ud83d\\ude00": "\\ud83d\\ude00\\u00e9"}') == {"a😀": "😀é"}


def test_a_json_file_reads_as_what_it_is() -> None:
    text = '[\n\t{"id": "a",\t"name": "cordis:group",\n\t "config": ["\\/", 1e3, -0.5, null, true]}\n]'
    assert parsed(text) == [{"id": "a", "name": "cordis:group", "config": ["/", 1000, -0.5, None, True]}]


def test_a_value_that_does_not_fit_its_tag_is_not_shown() -> None:
    assert "hush" not in str(refused("KEY: !!int sk-hush"))


def test_merge_keys_are_ordinary_keys() -> None:
    assert parsed("- &x {a: 1}\n- <<: *x\n  b: 2\n") == [{"a": 1}, {"<<": {"a": 1}, "b": 2}]


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("- config: {a: 1, a: 2}", "1:18", "stands twice"),
        ("- id: x\n  config: 1\n  config: 2", "3:3", "'config' stands twice; first in line 2"),
        ("1: a\n'1': b", "2:1", "stands twice"),
        ("a: 1\n---\nb: 2\n", "2:1", "second document"),
        ("a:\n\t- b", "2:1", "tab"),
        ("a: !foo 1", "1:4", "unknown tag !foo"),
        ("a: !!binary x", "1:4", "unknown tag !!binary"),
        ("a: !!set {a}", "1:4", "unknown tag !!set"),
        ("a: !!timestamp 2020-01-01", "1:4", "unknown tag !!timestamp"),
        ("a: !!int x", "1:4", "does not fit"),
        ("[a]: 1", "1:1", "key must be a scalar"),
        ("&a [*a]", "1:1", "inside its own anchor"),
        ("a: *x", "1:4", "an alias of nothing"),
        ("b: 1\na: 'x\nc: 2", "2:4", "a quoted text starts here and never ends"),
        ("x: \x01", "1:4", "the character U+0001 is not allowed"),
        (b"a: 1\nb: \xff", "2:4", "not UTF-8"),
        ("- a\n-b", "3:1", "neither a key nor an entry"),
        ('a: "\\ud83d"', "1:4", "half of a surrogate pair"),
        ('a: 1\nb: "\\U00110000"', "2:5", "an escape beyond Unicode"),
        ('{a: b:c, d: "\\UFFFFFFFF"}', "1:14", "an escape beyond Unicode"),
        ("%YAML 1.21\n---\n{a: b:c}", "1:1", "another version of YAML"),
        ("a: " + "9" * 5000, "1:4", "digits"),
    ],
)
def test_errors_name_file_line_and_column(text: str | bytes, place: str, says: str) -> None:
    error = refused(text)
    assert str(error).startswith(f"f.yml:{place}: ")
    assert says in str(error)


@pytest.mark.parametrize(
    ("text", "place", "says", "hint"),
    [
        (
            "- id: x\n config: 1",
            "2:2",
            "neither to the entry above nor to a new one",
            "check the indentation",
        ),
        ("- id: x\n   disabled: true", "2:12", "a colon where no key can stand", "check the indentation"),
        ("a: b: c", "1:5", "a colon where no key can stand", "quote a text that holds `: `"),
        ("a:\n  b: 1\n c: 2", "3:2", "does not belong to the mapping above", "check the indentation"),
        ("a: @x", "1:4", "a text cannot start with '@'", "quote it"),
        ("a: `x", "1:4", "a text cannot start with '`'", "quote it"),
        ("a: [1,\nb\n", "3:1", "the list that starts in line 1 needs `,` or `]` here", ""),
        ("a:\n  {x: 1\nb: 2", "3:2", "the mapping that starts in line 2 needs `,` or `}` here", ""),
        ('a: "\\q"', "1:5", "an unknown escape", "single quotes"),
        ("a: - b", "1:4", "a list cannot start here", "line of its own"),
        ("%YAML 3.0\n---\n[]", "1:1", "another version of YAML than 1.2", "delete the line"),
        ("{a: 1} b", "1:8", "does not belong to what stands before", ""),
    ],
)
def test_common_mistakes_are_named_in_words_of_ours_with_the_repair(
    text: str, place: str, says: str, hint: str
) -> None:
    error = refused(text)
    assert str(error).startswith(f"f.yml:{place}: ")
    assert says in str(error)
    assert hint in error.hint


def test_rows_after_an_empty_list_get_the_hint_to_delete_it() -> None:
    error = refused("# notes\n[]\n- id: x\n  disabled: true\n")
    assert str(error).startswith("f.yml:3:1: ")
    assert "one top-level list" in str(error)
    assert error.hint == "delete the line `[]`"


@pytest.mark.parametrize("text", ["", "# only\n# comments\n", "\ufeff", "---\n", "null"])
def test_a_file_of_nothing_reads_as_null(text: str) -> None:
    assert parsed(text) is None


def test_byte_order_mark_directive_anchors_and_flow_are_accepted() -> None:
    assert parsed("\ufeffa: 1") == {"a": 1}
    assert parsed("%YAML 1.1\n---\na: no") == {"a": "no"}
    assert parsed("a: &x [1]\nb: *x") == {"a": [1], "b": [1]}


def test_an_alias_is_a_copy_of_its_own() -> None:
    document = parsed("a: &x {k: [1]}\nb: *x")
    assert isinstance(document, dict)
    document["a"]["k"].append(2)
    assert document["b"] == {"k": [1]}


def test_alias_expansion_is_capped() -> None:
    levels = "".join(
        f"{c}: &{c} [{', '.join([f'*{p}'] * 10)}]\n" for p, c in zip("abcdefg", "bcdefgh", strict=True)
    )
    assert "once aliases are written out" in str(refused("a: &a [1]\n" + levels))


@pytest.mark.parametrize("text", ["[" * 200_000, "- " * 200_000, "[" * 200 + "]" * 200])
def test_deep_nesting_is_an_error_and_no_crash(text: str) -> None:
    assert "levels deep" in str(refused(text))


@pytest.mark.parametrize("tag", ["!", "a: !", "- [1,!", "{!", "!<", "- a\n- !%41"])
def test_a_tag_has_a_greatest_length(tag: str) -> None:
    error = refused(tag + "x" * MAX_TAG)
    assert str(error).startswith(
        f"f.yml:{2 if chr(10) in tag else 1}:{tag.rpartition(chr(10))[2].index('!') + 1}: "
    )
    assert "a tag of 65536 characters or more" in str(error)


@pytest.mark.parametrize(
    ("before", "after"), [("a: x!", ""), ("a: '!", "'"), ("a: |\n !", ""), ("a: ! ", "")]
)
def test_long_words_that_are_no_tags_are_read(before: str, after: str) -> None:
    document = parsed(before + "x" * (MAX_TAG - 2) + after)
    assert isinstance(document, dict)
    assert len(document["a"]) >= MAX_TAG - 2


def test_what_only_the_slow_parser_reads_is_refused_in_a_long_file_with_the_way_out() -> None:
    row, filler = "- {name: cordis:group}\n", "# comment\n" * (MAX_SLOW_CHARACTERS // 10)
    assert parsed(row) == [{"name": "cordis:group"}]
    error = refused(row + filler)
    assert str(error) == "f.yml:1:16: a file of more than 131072 characters cannot have this"
    assert "quote each text that holds a colon" in error.hint
    assert parsed("- {name: 'cordis:group'}\n" + filler) == [{"name": "cordis:group"}]


def test_values_know_their_place() -> None:
    document = parsed("- id: a\n  config:\n    k: v\n")
    config = document[0]["config"]  # type: ignore[index]
    assert str(config.key_at("k")) == "f.yml:3:5"
    assert str(config.value_at("k")) == "f.yml:3:8"


def test_expressions_keep_text_and_place() -> None:
    found = parsed("- a: !expr get(env, 'X') # why")[0]["a"]  # type: ignore[index]
    assert isinstance(found, Expr)
    assert (found.text, str(found.mark)) == ("get(env, 'X')", "f.yml:1:6")


@pytest.mark.parametrize(
    "text", ["- !expr [a]", "- !expr {a: 1}", "- !expr env.A: b", "- !expr 'x' if y else z"]
)
def test_an_expression_that_needs_quotes_says_so(text: str) -> None:
    assert 'put the whole expression in double quotes: !expr "…"' in refused(text).hint


@pytest.mark.parametrize("text", ["- !expr", "- !expr ''", "- !expr '  '"])
def test_an_empty_expression_is_refused(text: str) -> None:
    assert "without an expression" in str(refused(text))


def test_unknown_js_still_points_to_expr() -> None:
    assert "!expr" in refused("- !!js require('x')").hint


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CompositionError, match=r"failed to read .*absent\.yml: No such file"):
        read_yaml(tmp_path / "absent.yml")
    with pytest.raises(CompositionError, match="Is a directory"):
        read_yaml(tmp_path)
    with pytest.raises(CompositionError, match="Not a directory"):
        read_yaml(write(tmp_path / "file", "[]") / "f.yml", missing_ok=True)
    with pytest.raises(CompositionError, match="null byte"):
        read_yaml(tmp_path / "a\0b")
    with pytest.raises(CompositionError, match="/dev/zero:1:1: the file is larger than 1048576 bytes"):
        read_yaml(Path("/dev/zero"))
    assert read_yaml(tmp_path / "absent.yml", missing_ok=True) is None


@given(
    st.one_of(
        st.binary(max_size=200), st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass"))
    )
)
def test_any_bytes_give_a_value_or_a_named_error(data: bytes) -> None:
    try:
        parse_yaml(data, "f.yml")
    except YamlError as error:
        assert str(error).startswith("f.yml:")


@given(st.text(alphabet="[]{}-:#&*!|>'\"%@`,? \nab01.", max_size=60))
def test_any_text_of_indicators_gives_a_value_or_a_named_error(text: str) -> None:
    try:
        parse_yaml(text.encode(), "f.yml")
    except YamlError as error:
        assert "\n" not in str(error)
