"""Reported problems with YAML compositions, each through the program itself: a run, a dump, or both."""

import json
from pathlib import Path

import pytest

from dsh.composition.text.yaml import parse_yaml
from dsh.testing.workspace import Finished, Workspace

SHOW = """
import json
def apply(ctx, config):
    print("CONFIG", ctx.fiber.entry.id, json.dumps(config))
"""
"""A plugin that says what it was given."""


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path)
    made.write("show.py", SHOW)
    return made


def shown(done: Finished) -> dict[str, object]:
    """What each row of `show.py` was given."""
    lines = [line.split(" ", 2) for line in done.errors if line.startswith("CONFIG ")]
    return {entry_id: json.loads(config) for _, entry_id, config in lines}


def run(space: Workspace, *patches: str, env: dict[str, str | None] | None = None) -> Finished:
    words: list[str] = []
    for n, patch in enumerate(patches):
        space.write(f"p{n}.yml", patch)
        words += ["--patch", f"p{n}.yml"]
    done = space.run("--profile", "demo", *words, "hello", env=env)
    assert "Traceback" not in done.stderr
    return done


def refused(space: Workspace, *patches: str, env: dict[str, str | None] | None = None) -> Finished:
    done = run(space, *patches, env=env)
    assert (done.code, done.stdout, space.logs(), shown(done)) == (3, "", [], {}), done
    return done


def mounted(space: Workspace, *patches: str, env: dict[str, str | None] | None = None) -> dict[str, object]:
    done = run(space, *patches, env=env)
    assert (done.code, done.stdout) == (0, "offline demo model: hello\n"), done
    return shown(done)


def dumped(space: Workspace, *patches: str, env: dict[str, str | None] | None = None) -> Finished:
    words = [word for n in range(len(patches)) for word in ("--patch", f"p{n}.yml")]
    return space.run("--profile", "demo", "--dump-config", *words, env=env)


def row(config: str, entry_id: str = "r") -> str:
    return f"- insert:\n    - id: {entry_id}\n      name: ./show.py\n      config: {config}\n"


def test_yc_01_words_that_yaml_1_1_turns_into_booleans(space: Workspace) -> None:
    words = row("{country: no, debug: off, ok: yes, flag: on, y: y, N: N, t: tRue, b: TRUE}")
    keys = row("{on: 1, off: 2, true: 3, null: 4, 12: x}", "k")
    assert mounted(space, words, keys) == {
        "r": {
            "country": "no", "debug": "off", "ok": "yes", "flag": "on", "y": "y", "N": "N", "t": "tRue",
            "b": True,
        },
        "k": {"on": 1, "off": 2, "true": 3, "null": 4, "12": "x"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("config", "value"),
    [
        ("2024-01-01", "2024-01-01"), ("1_000", "1_000"), ("014", 14), ("0o14", 12), ("1e3", 1000),
        ("190:20:30", "190:20:30"), ("=", "="), ("{<<: &x {a: 1}, b: *x}", {"<<": {"a": 1}, "b": {"a": 1}}),
        ("~", None), ("'no'", "no"),
    ],
)  # fmt: skip
def test_the_same_kind_of_values_reach_a_plugin_as_they_are_written(
    space: Workspace, config: str, value: object
) -> None:
    assert mounted(space, row(f"{{v: {config}}}")) == {"r": {"v": value}}


@pytest.mark.parametrize(
    ("patch", "place"),
    [
        (row("{a: 1, a: 2}"), "p0.yml:4:22"),
        (row("{a: 1}") + "      config: {a: 2}\n", "p0.yml:5:7"),
        (row("{1: a, '1': b}"), "p0.yml:4:22"),
        (row("1") + "    - {id: r, name: ./show.py}\n", "p0.yml:5:12"),
        (row("1") + row("2"), "p0.yml:6:11"),
    ],
)
def test_yc_03_duplicate_keys_and_ids(space: Workspace, patch: str, place: str) -> None:
    done = refused(space, patch)
    assert f"{place}: " in done.errors[0]
    assert dumped(space, patch).errors == done.errors


def test_yc_03_a_key_twice_in_a_manifest(space: Workspace) -> None:
    folder = space.home / "profiles/mine"
    folder.mkdir(parents=True)
    (folder / "profile.yml").write_text("bundles: [base]\nbundles: [base, headless]\n")
    done = space.run("--profile", "mine", "x")
    assert done.code == 3
    assert done.errors == [f"dsh: {folder}/profile.yml:2:1: the key 'bundles' stands twice; first in line 1"]


@pytest.mark.parametrize(
    ("patch", "line", "hint"),
    [
        ("# notes\n[]\n- id: llm\n  disabled: true\n", 3, "hint: delete the line `[]`"),
        ("- id: llm\n---\n- id: llm\n  disabled: true\n", 2, "hint: delete the line `---`"),
        ("id: llm\ndisabled: true\n", 1, None),
        ("- id: llm\n- llm\n", 2, None),
    ],
)
def test_yc_05_a_broken_patch_file_is_refused_as_a_whole(
    space: Workspace, patch: str, line: int, hint: str | None
) -> None:
    done = refused(space, patch)
    assert f"p0.yml:{line}:" in done.errors[0]
    assert done.errors[1:] == ([hint] if hint else [])
    if "entry" not in done.errors[0]:
        assert "one top-level list" in done.errors[0]


@pytest.mark.parametrize("patch", ["", "# only\n\n# comments\n", "\ufeff", "[]", "- insert: []"])
def test_yc_05_a_file_of_nothing_is_no_layer(space: Workspace, patch: str) -> None:
    assert mounted(space, patch) == {}


def layered(space: Workspace) -> tuple[str, ...]:
    """The layers of YC-06: a bundle's row stands in the first `--patch` here."""
    folder = space.home / "profiles/demo"
    folder.mkdir(parents=True, exist_ok=True)
    site = folder / "site"
    package = site / "mine"
    info = site / "mine-1.dist-info"
    for made in (package, info):
        made.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[dsh.bundles]\nmine = mine\n")
    (package / "dsh.patch.yml").write_text(
        f"- insert: [{{id: m, name: {space.work}/show.py, config: {{cmd: a, env: {{K: 1}}, t: 5}}}}]"
    )
    (folder / "profile.yml").write_text("bundles: [base, headless, demo, mine]")
    (folder / "dsh.patch.yml").write_text("- {id: m, config: {cmd: a, env: {K: 2}}}")
    (space.home / "dsh.patch.yml").write_text("- {id: m, config: {cmd: b}}")
    return "- {id: m, disabled: true}", "- {id: m, disabled: false}"


def test_yc_06_which_layer_wins_and_what_survives(space: Workspace) -> None:
    patches = layered(space)
    assert mounted(space, *patches) == {"m": {"cmd": "b"}}
    text = dumped(space, *patches).stdout
    layers = [
        space.home / "profiles/demo/dsh.patch.yml", space.home / "dsh.patch.yml", space.work / "p0.yml",
        space.work / "p1.yml",
    ]  # fmt: skip
    assert f"# == mine, patched by {', '.join(map(str, layers))}\n" in text
    assert f"# -- m: the config of {layers[0]} drops t\n" in text
    assert f"# -- m: the config of {layers[1]} drops env\n" in text
    found = [row for row in parse_yaml(text.encode(), "dump") if row["id"] == "m"]
    assert found == [{"id": "m", "name": f"{space.work}/show.py", "disabled": False, "config": {"cmd": "b"}}]


@pytest.mark.parametrize(("taken", "left"), [(0, {"K": 1}), (1, {"K": 2})])
def test_yc_06_without_an_override_the_layer_below_counts_again(
    space: Workspace, taken: int, left: dict[str, int]
) -> None:
    layered(space)
    (space.home / "dsh.patch.yml").unlink()
    if taken == 0:
        (space.home / "profiles/demo/dsh.patch.yml").unlink()
    given = mounted(space)["m"]
    assert isinstance(given, dict)
    assert given["env"] == left


def test_yc_07_a_row_added_in_the_same_list_and_misses(space: Workspace) -> None:
    patch = row("1", "added") + (
        "- {id: added, disabled: true}\n- {id: ghost, disabled: true}\n"
        "- {id: added, name: wrong-name, config: {z: 1}}\n- {insert: [{id: k, name: p}], id: added}\n"
        "- {config: {q: 1}}\n"
    )
    done = run(space, patch)
    assert (done.code, shown(done)) == (0, {})
    told = dumped(space, patch)
    expected = [
        '"ghost" not found',
        'name mismatch for entry "added"',
        '"added" is not a group',
        "id is required",
    ]
    for line, words in zip(told.errors, expected, strict=True):
        assert line.startswith(f"dsh: [{space.work}/p0.yml] patch")
        assert words in line
    assert done.errors[: len(expected)] == told.errors
    assert "- id: added\n  name: ./show.py\n  disabled: true\n  config: 1\n" in told.stdout


@pytest.mark.parametrize(
    ("config", "token", "given"),
    [
        ("{t: !expr \"get(env, 'TOKEN')\", u: 1}", None, {"u": 1}),
        ("{t: !expr \"get(env, 'TOKEN')\", u: 1}", "", {"t": "", "u": 1}),
        ("{t: !expr \"get(env, 'TOKEN')\", u: 1}", "x: y # z\n- k", {"t": "x: y # z\n- k", "u": 1}),
        ("{t: !expr env.TOKEN}", "- insert: [{id: e}]", {"t": "- insert: [{id: e}]"}),
    ],
)
def test_yc_09_environment_values_arrive_as_they_are(
    space: Workspace, config: str, token: str | None, given: object
) -> None:
    assert mounted(space, row(config), env={"TOKEN": token}) == {"r": given}


def test_yc_09_an_unset_variable_is_named_with_its_row(space: Workspace) -> None:
    done = refused(space, row("{t: !expr env.TOKEN}"), env={"TOKEN": None})
    assert done.errors == [
        "dsh: 1 entry did not activate:",
        f"r (./show.py): {space.work}/p0.yml:4:19: !expr env.TOKEN: t: "
        "the environment variable TOKEN is not set",
    ]


def test_yc_09_a_dump_shows_the_expression_and_never_the_value(space: Workspace) -> None:
    space.write("p0.yml", row("{t: !expr env.TOKEN}"))
    done = dumped(space, "", env={"TOKEN": "s3cr3t-value"})
    assert "t: !expr env.TOKEN\n" in done.stdout
    assert "s3cr3t-value" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "text",
    ["env.TOKEN", "{'k': env.TOKEN}[env.TOKEN]", "int(env.TOKEN)", "json(env.TOKEN)", "[1][env.TOKEN]"],
)
@pytest.mark.parametrize("place", ["disabled", "config"])
def test_no_error_shows_a_value_of_the_environment(space: Workspace, text: str, place: str) -> None:
    config = f'{{v: !expr "{text}"}}' if place == "config" else f'1\n      disabled: !expr "{text}"'
    done = run(space, row(config), env={"TOKEN": "hush-hush"})
    if place == "disabled" or text != "env.TOKEN":
        assert done.code == 3
        assert "hush" not in done.stderr
