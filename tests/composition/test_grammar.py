"""Rows and patches: what is refused, with its place, and what is only warned about."""

import pytest

from dsh.errors import CompositionError
from tests.composition.layers import composed


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("a: 1", "1:1", "one top-level list of patches, found a mapping"),
        ("just text", "1:1", "one top-level list of patches, found a string"),
        ("- id: a\n- text", "2:3", "entry 2 must be a mapping (a loader patch entry), found a string"),
        ("- insert: abc", "1:11", "insert must be a list of rows, found a string"),
        ("- insert: {id: a}", "1:11", "insert must be a list of rows, found a mapping"),
        ("- insert: false", "1:11", "insert must be a list of rows, found a boolean"),
        ("- insert: [x]", "1:12", "a row must be a mapping, found a string"),
        ("- insert: [{id: a}]", "1:12", "row a needs a name"),
        ("- insert: [{id: a, name: ''}]", "1:20", "row a needs a name"),
        ("- insert: [{id: a, name: 7}]", "1:20", "found a number"),
        ("- insert: [{id: 7, name: x}]", "1:17", "id must be a non-empty string, found a number"),
        ("- insert: [{id: '', name: x}]", "1:17", "id must be a non-empty string"),
        ("- insert: [{id: null, name: x}]", "1:17", "id must be a non-empty string, found null"),
        ("- insert: [{id: 'a:b', name: x}]", "1:17", 'id "a:b" must not hold a colon'),
        ("- id: 7\n  config: 1", "1:7", "id must be a non-empty string, found a number"),
        ("- id: a\n  name: [x]", "2:9", "name must be a non-empty string, found a list"),
        *(
            (
                f"- insert: [{{id: a, name: x, disabled: {word}}}]",
                "1:39",
                "disabled must be true, false, null",
            )
            for word in ("no", "'false'", "0", "[]", "1")
        ),
        ("- insert: [{id: a, name: x, group: yes}]", "1:36", "group must be true, false or null"),
        (
            "- insert: [{id: a, name: cordis:group, group: true, config: {}}]",
            "1:61",
            "must be a list of rows",
        ),
        ("- insert: [{id: a, name: cordis:group, config: 3}]", "1:48", "must be a list of rows"),
        ("- insert: [{id: a, name: x, inject: 5}]", "1:37", "inject must be a service's name, or a list"),
        ("- insert: [{id: a, name: x, inject: ''}]", "1:37", "inject holds an empty text"),
        ("- insert: [{id: a, name: x, inject: [1]}]", "1:37", "inject holds a number"),
        (
            "- insert: [{id: a, name: x, isolate: {fs: false}}]",
            "1:38",
            "isolate of fs must be true or a label",
        ),
        ("- insert: [{id: a, name: x, intercept: [fs]}]", "1:40", "intercept must be a mapping"),
        ("- {id: a, intercept: {loader: 5}}", "1:22", "intercept of loader must be a mapping"),
        ("- {id: a, intercept: {'': {}}}", "1:22", "intercept holds an empty text"),
        ("- {id: a, isolate: {'': true}}", "1:20", "isolate holds an empty text"),
        ("- {id: a, isolate: [fs]}", "1:20", "isolate must be a mapping of service names, found a list"),
        ("- {id: a, inject: {'': 1}}", "1:19", "inject holds an empty text"),
        ("- {id: a, inject: ['']}", "1:19", "inject holds an empty text"),
        ("- id: a\n  inject: [!expr cwd]", "2:12", "an expression has no place in inject"),
        ("- id: a\n  foo: !expr cwd", "2:8", "an expression has no place in foo"),
        ("- id: a\n  config: {k: !expr nope}", "2:15", "unknown name 'nope'"),
        ("- id: a\n  disabled: !expr svc.x.y", "2:13", "nothing is mounted yet"),
        ("- id: a\n  merge: {a: 1}\n  config: 1", "2:3", "merge and config exclude each other"),
        ("- id: a\n  merge: 3", "2:10", "merge must be a mapping"),
        ("- id: a\n  remove: true\n  config: 1", "3:3", "remove: true stands alone"),
        ("- id: a\n  remove: yes", "2:11", "remove must be true or false"),
        ("- id: a\n  require: 1", "2:12", "require must be true or false"),
        ("- insert: []\n  before: a\n  after: b", "3:3", "before and after exclude each other"),
        ("- id: a\n  before: b", "2:3", "before belongs to an insert"),
        ("- insert: []\n  before: 3", "2:11", "before must be the id of a row"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(text: str, place: str, says: str) -> None:
    with pytest.raises(CompositionError) as caught:
        composed(text)
    assert str(caught.value).startswith(f"layer0:{place}: ")
    assert says in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("text", ["- id:llm", "- insert: [id:llm]"])
def test_a_forgotten_blank_is_pointed_out(text: str) -> None:
    with pytest.raises(CompositionError) as caught:
        composed(text)
    assert caught.value.hint == "a blank follows the colon: id: llm"


def test_a_duplicate_id_in_one_list_is_refused() -> None:
    with pytest.raises(
        CompositionError, match=r"layer0:3:9: duplicate loader entry id: a \(first at layer0:2:5"
    ):
        composed("- insert:\n  - {id: a, name: x}\n  - id: a\n    name: y")


def test_a_duplicate_id_in_two_groups_is_refused() -> None:
    group = "{id: %s, name: cordis:group, group: true, config: [{id: x, name: p}]}"
    with pytest.raises(CompositionError, match="duplicate loader entry id: x"):
        composed(f"- insert: [{group % 'a'}, {group % 'b'}]")


def test_a_duplicate_id_inside_an_unpatchable_group_is_refused() -> None:
    with pytest.raises(CompositionError, match="duplicate loader entry id: x"):
        composed("- insert: [{id: x, name: p}, {id: g, name: cordis:group, config: [{id: x, name: p}]}]")


def test_an_include_s_config_cannot_be_an_expression_as_a_whole() -> None:
    with pytest.raises(CompositionError, match="cannot be an expression as a whole"):
        composed("- insert: [{id: i, name: cordis:include, config: !expr cwd}]")


def test_a_patch_cannot_give_a_group_anything_but_rows() -> None:
    base = "- insert: [{id: g, name: cordis:group, group: true, config: []}]"
    with pytest.raises(CompositionError, match=r"layer1:2:11: config of group g .* must be a list of rows"):
        composed(base, "- id: g\n  config: {a: 1}")


def test_unknown_fields_are_kept_and_warned_about_with_the_closest() -> None:
    made = composed("- insert:\n    - id: a\n      name: x\n      confg: {b: 1}")
    assert made.rows[0]["confg"] == {"b": 1}
    assert [str(w) for w in made.warnings] == [
        '[layer0] unknown field "confg" (layer0:4:7); did you mean "config"?'
    ]


def test_keys_beside_insert_are_ignored_with_a_warning() -> None:
    made = composed("- insert: [{id: a, name: x}]\n  disabled: true")
    assert "disabled" not in made.rows[0]
    assert "disabled beside insert has no effect" in str(made.warnings[0])


@pytest.mark.parametrize("text", ["", "# nothing\n", "[]", "- insert: []"])
def test_files_without_patches_are_fine(text: str) -> None:
    assert composed(text).rows == []
