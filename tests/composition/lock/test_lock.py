"""The lock of a composition: what it holds, when it is refused, and how the difference is told."""

import copy
import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh import __version__
from dsh.composition.compose import Composition, compose
from dsh.composition.lock.digest import Contents, contents_of, digest_of
from dsh.composition.lock.document import MAX_LINES, LockMismatch, lock_text, require_locked
from dsh.composition.text.yaml import parse_yaml
from dsh.composition.value import Expr, Mark
from dsh.errors import CompositionError
from tests.composition.layers import composed, write
from tests.composition.tree import composition as composition_in

HOME = Path("/nonexistent")
TWO = """
- insert:
    - {id: a, name: tool-bash, config: {one: 1, two: [x, y]}}
    - {id: b, name: tool-fs, disabled: true}
"""


def locked(tmp_path: Path, *texts: str) -> Path:
    return write(tmp_path / "dsh.lock.yml", lock_text(composed(*texts), HOME))


def differences(lock: Path, *texts: str, profile: str = "test") -> list[str]:
    with pytest.raises(LockMismatch) as caught:
        require_locked(composed(*texts, profile=profile), HOME, lock)
    assert caught.value.exit_code == 3
    assert str(lock) in caught.value.message
    assert "--dump-config --lock" in caught.value.hint
    return caught.value.differences


def digest(composition: Composition) -> str:
    return digest_of(contents_of(composition, HOME))


# -- what it holds ---------------------------------------------------------------------------------


def test_a_lock_holds_version_digest_dsh_profile_plugins_and_rows() -> None:
    document = parse_yaml(lock_text(composed(TWO), HOME).encode(), "lock")

    assert list(document) == ["version", "digest", "dsh", "profile", "plugins", "rows"]
    assert document["version"] == 1
    assert re.fullmatch("sha256:[0-9a-f]{64}", document["digest"])
    assert (document["dsh"], document["profile"]) == (__version__, "test")
    assert document["plugins"] == {"tool-bash": f"dsh {__version__}"}
    assert document["rows"] == [
        {"id": "a", "name": "tool-bash", "config": {"one": 1, "two": ["x", "y"]}},
        {"id": "b", "name": "tool-fs", "disabled": True},
    ]


def test_the_plugin_of_a_row_that_is_always_off_is_not_looked_for() -> None:
    made = composed(
        "- insert: [{id: g, name: cordis:group, group: true, disabled: true, config: [{name: no}]}]"
    )

    assert contents_of(made, HOME).plugins == {}


def test_an_expression_is_locked_as_its_text() -> None:
    text = "- insert: [{id: a, name: tools, config: {k: !expr \"get(env, 'K')\"}}]"

    document = parse_yaml(lock_text(composed(text), HOME).encode(), "lock")

    assert document["rows"][0]["config"]["k"] == Expr("get(env, 'K')", Mark("", 1, 1))


def test_secrets_are_masked_in_the_lock_and_counted_by_the_digest(tmp_path: Path) -> None:
    config = "{k: sk-SECRETSECRET1, token: SECRET2, e: !expr \"env.K or 'sk-SECRET22222'\"}"
    text = f"- insert: [{{id: a, name: tools, config: {config}}}]"
    lock = locked(tmp_path, text)

    assert "SECRET" not in lock.read_text()
    require_locked(composed(text), HOME, lock)
    for secret in ("SECRET1,", "SECRET2,"):
        assert differences(lock, text.replace(secret, "SECRET9,")) == [
            "a value that the lock does not show, or the digest in the lock, has changed"
        ]


def test_rows_of_an_include_are_part_of_the_lock_with_its_patches(tmp_path: Path) -> None:
    write(tmp_path / "more.yml", "- {id: x, name: tools, config: {n: 1}}")
    include = (
        "- insert: [{id: inc, name: 'cordis:include', config: "
        "{path: ./more.yml, patches: [{id: x, config: {n: 2}}]}}]"
    )
    made = composition_in(tmp_path, include)
    document = parse_yaml(lock_text(made, HOME).encode(), "lock")

    assert document["rows"][0]["included"] == [{"id": "x", "name": "tools", "config": {"n": 2}}]
    before = digest(made)
    write(tmp_path / "more.yml", "- {id: x, name: tools, config: {n: 1}, optional: true}")
    assert digest(composition_in(tmp_path, include)) != before


def test_an_include_that_is_off_is_not_read(tmp_path: Path) -> None:
    text = "- insert: [{id: i, name: 'cordis:include', disabled: true, config: {path: ./absent.yml}}]"

    assert "included" not in contents_of(composition_in(tmp_path, text), HOME).rows[0]


def test_an_include_that_may_be_off_and_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    text = (
        "- insert: [{id: i, name: 'cordis:include', disabled: !expr platform == 'linux', "
        "config: {path: ./absent.yml}}]"
    )

    assert "included" not in contents_of(composition_in(tmp_path, text), HOME).rows[0]


def test_an_include_that_cannot_be_read_has_no_lock(tmp_path: Path) -> None:
    text = "- insert: [{id: i, name: 'cordis:include', config: {path: ./absent.yml}}]"

    with pytest.raises(CompositionError, match=r"not found: .*absent\.yml"):
        lock_text(composition_in(tmp_path, text), HOME)


# -- the digest ------------------------------------------------------------------------------------


def test_the_digest_does_not_depend_on_where_the_files_lie(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    made = [composition_in(folder, TWO, "- {id: a, config: {one: 2}}") for folder in (here, there)]

    assert digest(made[0]) == digest(made[1])


def test_the_digest_does_not_depend_on_which_layer_says_what() -> None:
    said_twice = composed(TWO, "- {id: a, config: {one: 2, two: [x, y]}}")

    assert digest(said_twice) == digest(composed(TWO.replace("one: 1", "one: 2")))


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    turned = TWO.replace("{one: 1, two: [x, y]}", "{two: [x, y], one: 1}")

    assert digest(composed(turned)) == digest(composed(TWO))


@pytest.mark.parametrize(
    "patch",
    [
        "- {id: a, config: {one: 2, two: [x, y]}}",
        "- {id: a, config: {one: '1', two: [x, y]}}",
        "- {id: a, config: {one: true, two: [x, y]}}",
        "- {id: a, config: {one: 1, two: [y, x]}}",
        "- {id: a, merge: {three: null, two: []}}",
        "- {id: a, disabled: true}",
        "- {id: b, disabled: null}",
        "- {id: a, inject: [fs]}",
        "- {id: a, isolate: {fs: true}}",
        "- {id: a, optional: true}",
        "- {id: b, remove: true}",
        "- insert: [{id: c, name: tools}]",
    ],
)
def test_every_change_of_what_is_mounted_changes_the_digest(patch: str) -> None:
    assert digest(composed(TWO, patch)) != digest(composed(TWO))


def test_an_expression_and_a_mapping_that_looks_like_one_differ() -> None:
    texts = ["!expr env.K", "{'!expr': env.K}", "{'!!expr': env.K}", "'!expr env.K'"]
    made = {digest(composed(f"- insert: [{{id: a, name: tools, config: {{k: {t}}}}}]")) for t in texts}

    assert len(made) == len(texts)


def test_versions_of_dsh_and_plugins_count_and_the_profile_does_not() -> None:
    contents = contents_of(composed(TWO), HOME)

    assert digest_of(contents._replace(dsh="9")) != digest_of(contents)
    assert digest_of(contents._replace(plugins={"tool-bash": "dsh 9"})) != digest_of(contents)
    assert digest_of(contents._replace(profile="other")) == digest_of(contents)


def test_the_digest_is_the_same_in_every_version_of_this_program() -> None:
    """Its form is a promise: compact JSON, sorted keys, ASCII, an expression as `{"!expr": text}`."""
    row = {"id": "ä", "config": {"z": Expr(" cwd ", Mark("", 1, 1)), "a": [1, None, "x"]}}
    contents = Contents("1", "p", {"n": "dsh 1"}, [row])
    text = (
        '{"dsh":"1","plugins":{"n":"dsh 1"},'
        '"rows":[{"config":{"a":[1,null,"x"],"z":{"!expr":"cwd"}},"id":"\\u00e4"}]}'
    )
    assert digest_of(contents) == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


# -- the comparison --------------------------------------------------------------------------------


def test_what_was_locked_is_accepted(tmp_path: Path) -> None:
    require_locked(composed(TWO), HOME, locked(tmp_path, TWO))


def test_names_that_look_like_secrets_do_not_make_a_difference(tmp_path: Path) -> None:
    write(tmp_path / "api_key", "")
    text = "- insert: [{id: a, name: api_key, config: {token: abc}}, {id: b, name: './api_key'}]"
    made = composition_in(tmp_path, text)

    require_locked(made, HOME, write(tmp_path / "lock.yml", lock_text(made, HOME)))


def test_every_shipped_profile_keeps_to_its_own_lock(tmp_path: Path) -> None:
    for profile in ("headless", "demo"):
        made = compose(profile, [], tmp_path, environ={})
        lock = write(tmp_path / f"{profile}.yml", lock_text(made, tmp_path))
        require_locked(made, tmp_path, lock)


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        ("- {id: a, merge: {one: 2}}", ["row a: config.one: locked 1, here 2"]),
        ("- {id: a, merge: {one: '1'}}", ['row a: config.one: locked 1, here "1"']),
        ("- {id: a, merge: {one: true}}", ["row a: config.one: locked 1, here true"]),
        ("- {id: a, merge: {one: null}}", ["row a: config.one: locked 1, here nothing"]),
        ("- {id: a, merge: {three: {x: 1}}}", ["row a: config.three: locked nothing, here {x: 1}"]),
        ("- {id: a, merge: {two: [x, z]}}", ['row a: config.two.1: locked "y", here "z"']),
        ("- {id: a, merge: {two: [x]}}", ['row a: config.two: locked ["x", "y"], here ["x"]']),
        ("- {id: a, merge: {one: !expr cwd}}", ["row a: config.one: locked 1, here !expr cwd"]),
        ("- {id: a, inject: [fs]}", ['row a: inject: locked nothing, here ["fs"]']),
        ("- {id: b, disabled: null}", ["row b: disabled: locked true, here null"]),
        ("- {id: b, remove: true}", ["row b: locked, and not here"]),
        ("- insert: [{id: c, name: tools, disabled: true}]", ["row c: not in the lock"]),
    ],
)
def test_a_difference_names_row_and_key_with_both_values(tmp_path: Path, patch: str, told: list[str]) -> None:
    found = differences(locked(tmp_path, TWO), TWO, patch)

    assert [line for line in found if not line.startswith("plugin ")] == told


def test_a_plugin_that_comes_goes_or_changes_is_named(tmp_path: Path) -> None:
    lock = locked(tmp_path, TWO)
    lock.write_text(lock.read_text().replace(f"tool-bash: dsh {__version__}", "tool-bash: dsh 0.0.1"))
    lock.write_text(re.sub("digest: .*", f"digest: sha256:{0:064}", lock.read_text()))

    assert differences(lock, TWO, "- {id: b, disabled: false}") == [
        f'plugin tool-bash: locked "dsh 0.0.1", here "dsh {__version__}"',
        f'plugin tool-fs: locked nothing, here "dsh {__version__}"',
        "row b: disabled: locked true, here false",
    ]


def test_another_profile_is_a_difference_also_with_the_same_rows(tmp_path: Path) -> None:
    assert differences(locked(tmp_path, TWO), TWO, profile="other") == [
        'profile: locked "test", here "other"'
    ]


def test_rows_inside_groups_are_told_with_their_group(tmp_path: Path) -> None:
    text = "- insert: [{id: g, name: cordis:group, group: true, config: [{id: x, name: tools}]}]"

    assert differences(locked(tmp_path, text), text, "- {id: x, disabled: true}")[-1] == (
        "row g/x: disabled: locked nothing, here true"
    )


def test_the_order_of_rows_means_nothing(tmp_path: Path) -> None:
    rows = [
        "{id: a, name: tools, config: {k: !expr ' cwd '}}",
        "{name: tools, config: {n: 1}}",
        "{name: tools, config: {n: 2}}",
        "{id: g, name: cordis:group, group: true, config: [{id: x, name: tools}, {id: y, name: tool-fs}]}",
    ]
    lock = locked(tmp_path, f"- insert: [{', '.join(rows)}]")
    turned = f"- insert: [{', '.join(reversed(rows))}]".replace(
        "[{id: x, name: tools}, {id: y, name: tool-fs}]", "[{id: y, name: tool-fs}, {id: x, name: tools}]"
    )

    require_locked(composed(turned), HOME, lock)
    told = differences(lock, turned.replace("n: 2", "n: 3"))
    assert told == ["row tools number 2, without id: config.n: locked 2, here 3"]


def test_files_of_one_name_in_two_folders_are_told_apart_in_any_order(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write(tmp_path / folder / "plugin.py", f"# {folder}\n")
    include = "{{id: {0}, name: 'cordis:include', config: {{path: ./{0}/rows.yml}}}}"
    for folder in ("one", "two"):
        write(tmp_path / folder / "rows.yml", "- {id: mine, name: ./plugin.py}")
    texts = [
        f"- insert: [{include.format(one)}, {include.format(other)}]"
        for one, other in (("one", "two"), ("two", "one"))
    ]
    lock = write(tmp_path / "dsh.lock.yml", lock_text(composition_in(tmp_path, texts[0]), HOME))

    assert list(parse_yaml(lock.read_bytes(), "lock")["plugins"]) == [
        "./plugin.py (one:mine)",
        "./plugin.py (two:mine)",
    ]
    require_locked(composition_in(tmp_path, texts[1]), HOME, lock)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("one: 1", "one: 2", "row a: config.one: locked 2, here 1"),
        ("id: a", "id: c", "row c: locked, and not here"),
        (f"tool-bash: dsh {__version__}", "tool-bash: dsh 9", "plugin tool-bash: locked "),
        ("  - id: b\n    name: tool-fs\n    disabled: true\n", "", "row b: not in the lock"),
        (f"dsh: {__version__}", "dsh: '9'", "dsh: locked "),
    ],
)
def test_a_lock_that_was_edited_or_cut_below_its_digest_is_refused(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    lock = locked(tmp_path, TWO)
    text = lock.read_text()
    assert old in text
    lock.write_text(text.replace(old, new))

    found = differences(lock, TWO)

    assert found[0] == "its digest is that of this composition, so the rest of it has been edited or cut:"
    assert any(line.startswith(told) for line in found)


def test_the_way_to_a_new_lock_names_the_patches_of_the_command_line(tmp_path: Path) -> None:
    lock = locked(tmp_path, TWO)
    patch = write(tmp_path / "my patch.yml", "- {id: tools, merge: {maxParallelSubCalls: 3}}")

    with pytest.raises(LockMismatch) as caught:
        require_locked(compose("demo", [patch], tmp_path, environ={}), tmp_path, lock)

    command = f"dsh --profile demo --patch '{patch}' --dump-config --lock > {lock}"
    assert caught.value.hint == f"if the change is meant, write a new lock: {command}"


def test_many_differences_are_counted_beyond_a_bound(tmp_path: Path) -> None:
    rows = ", ".join(f"{{id: r{n}, name: tools, disabled: true}}" for n in range(MAX_LINES + 5))

    with pytest.raises(LockMismatch) as caught:
        require_locked(composed(TWO, f"- insert: [{rows}]"), HOME, locked(tmp_path, TWO))

    assert len(caught.value.differences) == MAX_LINES + 5
    assert caught.value.message.splitlines()[-1] == "and 5 more"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", r":1:1: a lock must be a mapping, found null"),
        ("- a", r":1:1: a lock must be a mapping, found a list"),
        ("version: 2", r":1:10: version of the lock must be 1, found 2"),
        ("version: true", r"version of the lock must be 1, found true"),
        ("digest: x", r"version of the lock must be 1, found null"),
        ("version: 1", r"digest of the lock must be a string, which is missing"),
        ("version: 1\ndigest: 1", r":2:9: digest of the lock must be a string, found a number"),
        ("version: 1\ndigest: a\ndsh: '1'\nprofile: p\nplugins: []", "plugins of the lock must be a mapping"),
        (
            "version: 1\ndigest: sha256:0\ndsh: '1'\nprofile: p\nplugins: {}\nrows: []",
            r":2:9: digest of the lock must be sha256: and 64 hex digits",
        ),
        (
            f"version: 1\ndigest: sha256:{0:064}\ndsh: '1'\nprofile: p\nplugins: {{}}\nrows: [x]",
            r":6:8: rows of a lock holds a string",
        ),
        (
            "version: 1\ndigest: a\ndsh: '1'\nprofile: p\nplugins: {}\nrows: []\nmore: 1",
            r':7:1: unknown key "more" in a lock',
        ),
        ("version: 1\nversion: 1", r":2:1"),
        ("{", r":1:"),
    ],
)
def test_what_is_no_lock_is_refused_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    lock = write(tmp_path / "lock.yml", text)

    with pytest.raises(CompositionError, match=problem):
        require_locked(composed(TWO), HOME, lock)


def test_a_lock_of_a_newer_dsh_says_so(tmp_path: Path) -> None:
    with pytest.raises(CompositionError) as caught:
        require_locked(composed(TWO), HOME, write(tmp_path / "lock.yml", "version: 2"))

    assert caught.value.hint.startswith("a newer dsh wrote it: use that one")


def test_a_lock_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompositionError, match=r"absent\.yml"):
        require_locked(composed(TWO), HOME, tmp_path / "absent.yml")


@given(st.binary(max_size=200))
def test_reading_a_lock_is_total(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    lock = tmp_path_factory.mktemp("lock") / "lock.yml"
    lock.write_bytes(data)

    with pytest.raises(CompositionError):
        require_locked(composed(TWO), HOME, lock)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(config=JSON, other=JSON)
def test_a_lock_accepts_the_same_config_and_names_any_other(
    tmp_path_factory: pytest.TempPathFactory, config: Any, other: Any
) -> None:
    lock = tmp_path_factory.mktemp("lock") / "lock.yml"
    made, changed = composed(TWO), composed(TWO)
    made.rows[0]["config"], changed.rows[0]["config"] = config, copy.deepcopy(other)
    lock.write_text(lock_text(made, HOME), encoding="utf-8")

    require_locked(made, HOME, lock)
    if digest(made) != digest(changed):
        with pytest.raises(LockMismatch) as caught:
            require_locked(changed, HOME, lock)
        assert all(line.startswith("row a: config") for line in caught.value.differences)
