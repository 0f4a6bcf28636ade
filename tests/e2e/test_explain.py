"""`dsh explain` as a program: text, JSON, one row, and that a start agrees with it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dsh.composition.compose import compose
from dsh.testing.workspace import Workspace

ROWS = sorted(str(row.id) for row in compose("demo", [], Path("/nonexistent"), environ={}).rows)

PRICE_OF_A_ROW = "- {id: model-catalogue, config: {models: {lab/m: {price: {input: 1, output: 2}}}}}"
SECTIONS = {
    "agent-default-model": "{model: m}",
    "agent-loop": "{maxStepsPerTurn: 9}",
    "llm-anthropic": "{providers: {lab2: {baseURL: http://h, apiKeyEnv: K}}}",
    "llm-deepseek": "{maxTokens: 9000}",
    "llm-openai": "{providers: {lab: {baseURL: http://h, keyless: true}}}",
    "models": "{lab/m: {price: {input: 3}}}",
    "permission": "{defaultPreset: read-only}",
    "shell": "{timeoutMs: 9}",
    "web-search-deepseek": "{maxUses: 3}",
}


def explained(space: Workspace, *words: str) -> dict[str, Any]:
    done = space.run("explain", *words, "--json")
    assert (done.code, done.stderr) == (0, ""), done
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in found["rows"]}


@pytest.mark.parametrize("profile", ["headless", "demo"])
def test_a_shipped_profile_is_explained_in_80_columns_and_lacks_nothing(
    space: Workspace, profile: str
) -> None:
    done = space.run("explain", "--profile", profile)

    assert (done.code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"profile {profile}, dsh ")
    assert lines[-1].endswith("nothing is missing")
    long = [line for line in lines if len(line) > 80 and not line.startswith("    /")]  # a path stays whole
    assert long == []
    assert space.logs() == []
    assert list(space.home.iterdir()) == []


def test_without_a_profile_it_is_headless(space: Workspace) -> None:
    assert explained(space)["profile"] == "headless"


def test_the_text_says_where_a_value_comes_from_and_who_provides(space: Workspace) -> None:
    space.write("p.yml", "\n\n- id: tool-bash\n  merge: {enableRunInBackground: false}\n")

    done = space.run("explain", "--patch", "p.yml", "tool-bash")

    lines = [re.sub(" {2,}", " | ", line.strip()) for line in done.stdout.splitlines()]
    assert "enableRunInBackground: false | patch:4" in lines
    assert "patched | merge | patch:3" in lines
    assert "injects | shell from bash-sandbox" in lines
    assert "profile headless, dsh 0.1.0" in lines
    assert str(space.work / "p.yml") in lines
    assert "services" not in lines


def test_a_row_that_would_wait_is_told_last_with_cause_and_next_step(space: Workspace) -> None:
    (space.home / "dsh.patch.yml").write_text("- {id: subprocess, disabled: true}\n")

    done = space.run("explain")

    assert done.code == 0
    end = re.sub(r"\s+", " ", done.stdout[done.stdout.index("a start would stop at") :])
    assert (
        "row bash-sandbox waits for subprocess: row subprocess provides it and is disabled at home:1" in end
    )
    why = "row bash-sandbox waits for subprocess, row subprocess provides it and is disabled at home:1"
    assert f"row tool-bash waits for shell: {why}" in end
    assert "next: enable it with a patch: {id: subprocess, disabled: false}" in end


def test_the_json_of_one_row(space: Workspace) -> None:
    found = explained(space, "session-title")

    (row,) = found["rows"]
    assert found["version"] == 1
    assert row["injects"] == [
        {"service": "sessions", "askedBy": "plugin", "realm": "default", "providers": ["session"]}
    ]
    place = row["config"][0].pop("place")
    assert row["config"][0] == {
        "path": ["fallbackMaxWords"],
        "value": 5,
        "expression": None,
        "source": "written",
        "unknown": False,
    }
    assert place["layer"] == "base"
    assert Path(place["file"]).name == "base.yml"
    assert Path(place["file"]).read_text().splitlines()[place["line"] - 1].strip() == "fallbackMaxWords: 5"
    assert [service["service"] for service in found["services"]] == ["sessionTitle", "sessions"]


def test_every_place_in_the_json_is_where_the_value_stands(space: Workspace) -> None:
    checked = 0
    for row in explained(space)["rows"]:
        for value in row["config"]:
            if value["place"] is not None and value["path"]:
                line = Path(value["place"]["file"]).read_text().splitlines()[value["place"]["line"] - 1]
                assert f"{value['path'][-1]}:" in line
                checked += 1
    assert checked > 20


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["tool-bsh"],
            [
                "error: no row 'tool-bsh' in profile 'headless'",
                "hint: closest: tool-bash, tool-jobs, tool-fs",
            ],
        ),
        (["zzz"], ["error: no row 'zzz' in profile 'headless'", "hint: dsh explain lists all rows"]),
        (["--nope"], None),
        (["one", "two"], None),
        (["-C", "absent"], None),
        (["--patch", ""], ["error: --patch FILE needs a value that is not empty"]),
    ],
)
def test_a_wrong_line_is_exit_2(space: Workspace, words: list[str], told: list[str] | None) -> None:
    done = space.run("explain", *words)

    assert (done.code, done.stdout) == (2, "")
    assert done.errors[0].startswith("error: ")
    assert told is None or done.errors[: len(told)] == told
    assert "Traceback" not in done.stderr


def test_a_removed_row_is_named_with_the_patch_that_removed_it(space: Workspace) -> None:
    patch = space.write("p.yml", "# no titles\n- {id: session-title, remove: true}\n")

    done = space.run("explain", "--patch", "p.yml", "session-title")

    assert (done.code, done.errors[0]) == (2, f"error: row 'session-title' is removed at {patch}:2")


@pytest.mark.parametrize(
    "patch",
    [
        "- {",
        "- {id: tools, disabled: maybe}",
        "- {id: ghost, require: true, disabled: true}",
        "- insert: [{id: x, name: ./absent.py}]",
        "- insert: [{id: x, name: no-such-plugin}]",
        "- insert: [{id: x, name: ./raises.py}]",
        "- insert: [{id: tools, name: tools}]",
        "- {id: tools, disabled: !expr env.NOPE}",
        "- {id: tool-fs, config: {a: !expr svc.headlessStartup.task}}",
        "- insert: [{id: x, name: 'cordis:include', config: {path: ./absent.yml}}]",
    ],
)
def test_a_broken_composition_is_told_in_the_words_of_a_start(space: Workspace, patch: str) -> None:
    space.write("raises.py", "raise SystemExit(5)\n")
    space.write("p.yml", patch)

    done = space.run("explain", "--profile", "demo", "--patch", "p.yml")
    started = space.run("--profile", "demo", "--patch", "p.yml", "hi")

    assert (done.code, done.stdout) == (3, "")
    assert done.stderr == started.stderr
    assert "Traceback" not in done.stderr


def test_a_broken_env_file_and_a_missing_profile_are_exit_3(space: Workspace) -> None:
    assert space.run("explain", "--profile", "nope").code == 3
    space.write(".env", "PATH=/x\n")
    assert space.run("explain").code == 3


def test_what_a_plugin_prints_on_import_does_not_reach_the_answer(space: Workspace) -> None:
    space.write("noisy.py", "print('noise')\nprovide = ()\ndef apply(ctx): print('mounted')\n")
    space.write("p.yml", "- insert: [{id: noisy, name: ./noisy.py}]")

    done = space.run("explain", "--patch", "p.yml", "noisy", "--json")

    assert json.loads(done.stdout)["rows"][0]["state"] == "ready"
    assert done.stderr == "noise\n"


def test_c_enters_the_folder_and_patches_are_meant_from_outside(space: Workspace) -> None:
    (space.work / "inner").mkdir()
    space.write("inner/.env", "CHOICE=yes\n")
    space.write("p.yml", "- {id: tools, disabled: !expr env.CHOICE == 'yes'}")

    found = explained(space, "--patch", "p.yml", "-C", "inner", "tools")

    assert found["rows"][0]["state"] == "disabled"


def test_values_of_the_environment_are_not_shown(space: Workspace) -> None:
    space.env["TOKEN"] = "s3cr3t-value"
    space.write("p.yml", "- {id: system-prompt, merge: {persona: !expr env.TOKEN, toolOrder: null}}")

    for words in (["--json"], []):
        assert "s3cr3t" not in space.run("explain", "--patch", "p.yml", *words).stdout


@pytest.mark.parametrize("row", ROWS)
def test_a_start_without_one_row_waits_for_what_the_explanation_says(space: Workspace, row: str) -> None:
    """The boot's audit and the explanation are made in different ways; they agree on every row."""
    space.write("p.yml", f"- {{id: {row}, remove: true}}")
    stuck = {r["id"] for r in explained(space, "--profile", "demo", "--patch", "p.yml")["rows"] if r["waits"]}

    done = space.run("--profile", "demo", "--patch", "p.yml", "hello")

    audited = {
        match[1]
        for line in done.errors
        if (match := re.match(r"(\S+) \(\S+\): pending \(waiting for service", line))
    }
    assert audited == stuck
    assert bool(stuck) <= (done.code == 3)


def test_the_settings_over_a_row_are_told_with_their_lines(space: Workspace) -> None:
    document = space.home / "settings.yaml"
    document.write_text("# mine\nshell:\n  timeoutMs: 9000\n  cwd: https://me:pw@host/x\nllm-deepseek: {}\n")

    found = rows(explained(space))
    (section,) = found["bash-sandbox"]["settings"]
    assert (section["section"], section["file"]) == ("shell", str(document))
    assert [(v["path"], v["value"], v["place"]["short"]) for v in section["values"]] == [
        (["timeoutMs"], 9000, "settings.yaml:3"),
        (["cwd"], "https://***@host/x", "settings.yaml:4"),
    ]
    assert {v["path"][0]: v["value"] for v in found["bash-sandbox"]["config"]}["timeoutMs"] == 60000
    assert found["llm-deepseek"]["settings"][0]["values"] == []
    assert found["tools"]["settings"] == []
    sections = {row["settings"][0]["section"] for row in found.values() if row["settings"]}
    assert sections == {
        "agent-default-model", "agent-loop", "llm-anthropic", "llm-deepseek", "llm-openai", "models",
        "permission", "shell", "web-search-deepseek",
    }  # fmt: skip

    told = space.run("explain", "bash-sandbox").stdout.splitlines()
    start = told.index("  settings   section shell counts over this")
    assert told[start + 1].split() == ["timeoutMs:", "9000", "settings.yaml:3"]
    assert "  settings   section permission has nothing set" in space.run("explain", "permission").stdout


def test_a_section_of_every_row_that_has_one_can_be_explained_over_what_the_row_says(
    space: Workspace,
) -> None:
    space.write("p.yml", PRICE_OF_A_ROW)
    (space.home / "settings.yaml").write_text("".join(f"{name}: {said}\n" for name, said in SECTIONS.items()))

    told = rows(explained(space, "--patch", "p.yml")).values()
    with_settings = {row["settings"][0]["section"]: row for row in told if row["settings"]}

    assert set(with_settings) == set(SECTIONS)
    assert all(row["settings"][0]["values"] for row in with_settings.values())
    assert [row["problem"] for row in with_settings.values()] == [None] * len(SECTIONS)


def test_settings_of_another_file_and_no_settings_at_all(space: Workspace) -> None:
    (space.home / "settings.yaml").write_text("shell: {timeoutMs: 1}\n")
    (space.home / "mine.json").write_text('{"shell": {"timeoutMs": 7000}}')
    space.write("p.yml", "- {id: settings, config: {path: mine.json}}")
    (section,) = explained(space, "--patch", "p.yml", "bash-sandbox")["rows"][0]["settings"]
    assert [(v["value"], v["place"]["short"]) for v in section["values"]] == [(7000, "mine.json:1")]

    space.write("p.yml", "- {id: settings, disabled: true}")
    assert explained(space, "--patch", "p.yml", "bash-sandbox")["rows"][0]["settings"] == []


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("shell: {timeoutMs: soon}", "bash-sandbox"),
        ("shell: 7", "bash-sandbox"),
        ("shell: {cwd: !expr env.X}", "bash-sandbox"),
        ("agent-loop: {maxParallelToolCals: 2}", "agent-loop"),
        ("agent-default-model: {model: 7}", "agent-default-model"),
        ("models: {lab/m: {price: {input: cheap, output: 1}}}", "model-catalogue"),
        ("models: 7", "model-catalogue"),
        ("llm-openai: {providers: {lab: {baseURL: 3}}}", "llm-openai"),
        (
            "llm-anthropic: {providers: {lab: {baseURL: http://h, apiKeyEnv: K, keyHeader: x}}}",
            "llm-anthropic",
        ),
        ("a: [", "settings"),
        ("- x", "settings"),
    ],
)
def test_settings_that_a_start_refuses_are_a_problem_in_its_words(
    space: Workspace, text: str, row: str
) -> None:
    (space.home / "settings.yaml").write_text(text + "\n")

    problem = rows(explained(space, "--profile", "demo"))[row]["problem"]
    started = space.run("--profile", "demo", "hi")

    assert started.code == 3
    assert problem.startswith(str(space.home / "settings.yaml"))
    assert f"{row} ({row}): {problem}" in started.stderr
