"""Profiles, bundles, and the order of layers, through `compose`."""

from pathlib import Path

import pytest

from dsh.composition.compose import compose
from dsh.composition.dump import dump
from dsh.composition.profile import find_profile, known_profiles
from dsh.errors import CompositionError
from tests.composition.layers import write


def row(home: Path, *patches: Path, profile: str = "headless") -> object:
    made = compose(profile, list(patches), home, environ={})
    return next(r for r in made.rows if r.id == "session-title")["config"]


def patch(value: int) -> str:
    return f"- id: session-title\n  config: {{maxTitleBytes: {value}}}\n"


def test_bundles_then_profile_then_home_then_patch_files_in_their_order(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert row(home) == {"fallbackMaxWords": 5, "fallbackMaxBytes": 40, "maxTitleBytes": 80}
    write(home / "profiles/headless/dsh.patch.yml", patch(1))
    assert row(home) == {"maxTitleBytes": 1}
    write(home / "dsh.patch.yml", patch(2))
    assert row(home) == {"maxTitleBytes": 2}
    one, two = write(tmp_path / "one.yml", patch(3)), write(tmp_path / "two.yml", patch(4))
    assert row(home, one, two) == {"maxTitleBytes": 4}
    assert row(home, two, one) == {"maxTitleBytes": 3}


def test_the_dump_names_every_file_that_touched_the_row(tmp_path: Path) -> None:
    home = tmp_path / "home"
    mine = write(home / "dsh.patch.yml", patch(2))
    one = write(tmp_path / "one.yml", patch(3))
    text = dump(compose("headless", [one], home, environ={}))
    assert f"# == base, patched by {mine}, {one}\n" in text
    assert f"# -- session-title: the config of {mine} drops fallbackMaxWords, fallbackMaxBytes\n" in text


def test_only_the_bundles_count_for_the_default_dump_and_user_files_are_not_opened(tmp_path: Path) -> None:
    write(tmp_path / "dsh.patch.yml", "][ broken")
    made = compose("headless", [], tmp_path, default_only=True)
    assert [layer.label for layer in made.layers] == ["base", "headless"]
    with pytest.raises(CompositionError, match=r"dsh\.patch\.yml:1:1: "):
        compose("headless", [], tmp_path)


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "[]\n"])
def test_a_file_that_says_nothing_is_no_layer(tmp_path: Path, text: str) -> None:
    write(tmp_path / "dsh.patch.yml", text)
    assert [layer.label for layer in compose("headless", [], tmp_path).layers] == ["base", "headless"]


def test_an_absent_patch_file_of_the_command_line_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CompositionError, match=r"failed to read .*absent\.yml: No such file") as caught:
        compose("headless", [tmp_path / "absent.yml"], tmp_path)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# notes\n[]\n- id: x\n  disabled: true\n", ":3:1: the file must be one top-level list"),
        ("- id: a\n---\n- id: b\n", ":2:1: a second document"),
        ("id: x\n", ":1:1: the file must be one top-level list"),
        ("- text\n", ":1:3: entry 1 must be a mapping"),
        ("text", ":1:1: the file must be one top-level list"),
    ],
)
def test_a_broken_patch_file_stops_everything_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    path = write(tmp_path / "dsh.patch.yml", text)
    with pytest.raises(CompositionError) as caught:
        compose("headless", [], tmp_path)
    assert str(caught.value).startswith(f"{path}{says}")


def test_an_unknown_profile_is_answered_with_the_known_names(tmp_path: Path) -> None:
    write(tmp_path / "profiles/mine/profile.yml", "bundles: [base]")
    write(tmp_path / "profiles/half/dsh.patch.yml", "[]")
    with pytest.raises(CompositionError) as caught:
        compose("nope", [], tmp_path)
    assert (str(caught.value), caught.value.exit_code) == ("profile 'nope' does not exist", 3)
    assert caught.value.hint == "known profiles: demo, headless, mine"
    assert known_profiles(tmp_path) == ["demo", "headless", "mine"]


@pytest.mark.parametrize("name", ["dmo", "Demo", "demos"])
def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(tmp_path: Path, name: str) -> None:
    with pytest.raises(CompositionError) as caught:
        find_profile(name, tmp_path)
    assert caught.value.hint == "did you mean 'demo'? known profiles: demo, headless"


def test_a_name_that_no_file_can_have_is_unknown_like_any_other(tmp_path: Path) -> None:
    with pytest.raises(CompositionError, match="does not exist"):
        find_profile("x" * 300, tmp_path)
    manifest = write(tmp_path / "profiles/mine/profile.yml", f"bundles: [{'x' * 300}]")
    with pytest.raises(CompositionError, match=f"{manifest}:1:11: bundle 'x+' does not exist"):
        compose("mine", [], tmp_path)


def test_a_home_that_is_a_file_is_refused_but_for_the_default_dump(tmp_path: Path) -> None:
    home = write(tmp_path / "home", "")
    with pytest.raises(CompositionError, match="is not a directory"):
        compose("headless", [], home)
    assert compose("headless", [], home, default_only=True).rows


@pytest.mark.parametrize("name", ["", ".", "..", "node_modules", "a/b", "a\\b", "/etc"])
def test_names_that_are_no_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CompositionError, match="invalid profile name"):
        find_profile(name, tmp_path)


def test_a_profile_of_the_user_names_its_own_bundles(tmp_path: Path) -> None:
    write(tmp_path / "profiles/mine/profile.yml", "bundles: [base]\nrequires: [x==1]\n")
    profile = find_profile("mine", tmp_path)
    assert (profile.bundles, profile.requires) == (["base"], ["x==1"])
    assert compose("mine", [], tmp_path).rows[0].origin == "base"


@pytest.mark.parametrize("text", ["", "bundles:\n", "requires: [x]\n"])
def test_a_manifest_without_bundles_means_the_shipped_list_or_none(tmp_path: Path, text: str) -> None:
    write(tmp_path / "profiles/headless/profile.yml", text)
    write(tmp_path / "profiles/mine/profile.yml", text)
    assert find_profile("headless", tmp_path).bundles == ["base", "headless"]
    assert find_profile("mine", tmp_path).bundles == []
    assert dump(compose("mine", [], tmp_path)) == "[]\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("bundle: [base]", ":1:1: unknown key 'bundle'"),
        ("bundles: base", ":1:10: bundles must be a list of names, found a string"),
        ("bundles: [base, 1]", ":1:17: bundles holds a number"),
        ("bundles: [' ']", ":1:11: bundles holds an empty name"),
        ("requires: [x, '--target=/x']", ":1:15: requires holds the option '--target=/x', not a name"),
        ("bundles: [base, base]", ":1:17: 'base' stands twice in bundles"),
        ("[base]", ":1:1: a profile must be a mapping, found a list"),
        ("bundles: [base, ghost]", ":1:17: bundle 'ghost' does not exist"),
        ("bundles: [../base]", ":1:11: bundle '../base' does not exist"),
    ],
)
def test_a_wrong_manifest_is_refused_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    path = write(tmp_path / "profiles/mine/profile.yml", text)
    with pytest.raises(CompositionError) as caught:
        compose("mine", [], tmp_path)
    assert str(caught.value).startswith(f"{path}{says}")


def test_files_of_the_original_are_not_read_and_said_so(tmp_path: Path) -> None:
    write(tmp_path / "profiles/headless/package.json", "{ broken")
    theirs = write(tmp_path / "profiles/headless/cordis.patch.yml", "][")
    warnings = [str(w) for w in compose("headless", [], tmp_path).warnings]
    assert len(warnings) == 2
    assert f"[{theirs}] is not read by dsh; its counterpart here is dsh.patch.yml" in warnings
    write(tmp_path / "profiles/headless/dsh.patch.yml", "[]")
    assert len(compose("headless", [], tmp_path).warnings) == 1


def test_composing_creates_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    dump(compose("headless", [], home))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_and_cannot_be_read_is_fatal(tmp_path: Path) -> None:
    (tmp_path / "dsh.patch.yml").mkdir()
    with pytest.raises(CompositionError, match=r"failed to read .*: Is a directory"):
        compose("headless", [], tmp_path)


@pytest.mark.parametrize("value", ["1", "true", "YES", " on ", "please do"])
def test_telemetry_is_turned_off_and_the_launcher_s_layer_is_shown(tmp_path: Path, value: str) -> None:
    made = compose("headless", [], tmp_path, environ={"DSH_TELEMETRY_DISABLED": value})
    (row,) = (row for row in made.rows if row.id == "session-telemetry-otel")
    assert row.disabled is True
    assert made.layers[-1].label == "<launcher>"
    assert ", patched by <launcher>\n" in dump(made)


@pytest.mark.parametrize("value", [None, "", " ", "0", "false", "No", "OFF"])
def test_a_variable_that_says_that_telemetry_is_not_disabled_does_nothing(
    tmp_path: Path, value: str | None
) -> None:
    environ = {} if value is None else {"DSH_TELEMETRY_DISABLED": value}
    made = compose("headless", [], tmp_path, environ=environ)
    (row,) = (row for row in made.rows if row.id == "session-telemetry-otel")
    assert row.disabled is None
    assert made.layers[-1].label == "headless"


def test_without_the_row_the_launcher_adds_no_layer(tmp_path: Path) -> None:
    write(tmp_path / "dsh.patch.yml", "- {id: session-telemetry-otel, remove: true}")
    made = compose("headless", [], tmp_path, environ={"DSH_TELEMETRY_DISABLED": "1"})
    assert made.layers[-1].label != "<launcher>"


def test_a_dump_holds_the_expression_and_never_the_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cr3t-value")
    write(tmp_path / "dsh.patch.yml", "- insert: [{id: t, name: x, config: {token: !expr env.TOKEN}}]")
    text = dump(compose("headless", [], tmp_path))
    assert "token: !expr env.TOKEN" in text
    assert "s3cr3t" not in text
