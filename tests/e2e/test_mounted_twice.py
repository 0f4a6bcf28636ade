"""Rows that act on the whole composition: a second one of a kind is refused, with both rows named."""

import pytest

from dsh.testing.workspace import Workspace

TITLE = "{fallbackMaxWords: 1, fallbackMaxBytes: 9, maxTitleBytes: 9}"
ONCE = [
    ("llm-retry", "llmRetry", "{}"),
    ("permission", "permission", "{}"),
    ("headless-runner", "headlessRunner", "{task: another}"),
    ("fs-observation-policy", "fsObservations", "{}"),
    ("session-title", "sessionTitle", TITLE),
    ("session-composition", "sessionComposition", "{}"),
]


def second(space: Workspace, name: str, config: str, more: str = "") -> None:
    space.write("p.yml", f"- insert: [{{id: second, name: {name}, config: {config}{more}}}]\n")


@pytest.mark.parametrize(("name", "service", "config"), ONCE)
def test_a_second_one_is_refused(space: Workspace, name: str, service: str, config: str) -> None:
    second(space, name, config)

    done = space.run("--profile", "demo", "--patch", "p.yml", "hello")

    assert (done.code, done.stdout) == (3, "")
    assert f'service "{service}" has been registered at {name}' in done.stderr
    assert f"rows {name} (" in done.stderr
    assert f"second ({space.work}/p.yml:1:12) provide the same: disable one" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("name", "service", "config"), ONCE)
def test_one_in_place_of_the_other_runs(space: Workspace, name: str, service: str, config: str) -> None:
    second(space, name, config)
    with (space.work / "p.yml").open("a") as file:
        file.write(f"- {{id: {name}, disabled: true}}\n")

    done = space.run("--profile", "demo", "--patch", "p.yml", "hello")

    assert done.code == 0, done.stderr


def test_a_realm_of_its_own_is_a_word_for_it(space: Workspace) -> None:
    second(space, "llm-retry", "{}", ", isolate: {llmRetry: true}")

    done = space.run("--profile", "demo", "--patch", "p.yml", "hello")

    assert done.code == 0, done.stderr


def test_the_explanation_says_it_before_a_start(space: Workspace) -> None:
    second(space, "llm-retry", "{}")

    done = space.run("explain", "--patch", "p.yml")

    assert "service llmRetry: more than one provides it: llm-retry, second" in done.stdout


LAB = "{providers: {lab: {baseURL: http://h, apiKeyEnv: K}}}"
TAKEN = [
    ("llm-openai", LAB, "model route 'lab' is served by llm-openai (llm-openai) already"),
    ("llm-anthropic", LAB, "model route 'lab' is served by llm-openai (llm-openai) already"),
    (
        "llm-openai",
        LAB.replace("lab", "lab2"),
        "another row serves the routes of section 'llm-openai' already",
    ),
    (
        "llm-deepseek",
        "{}",
        "model route 'deepseek-official' is served by llm-deepseek (llm-deepseek) already",
    ),
    (
        "llm-scripted",
        "{replies: [{text: hi}], provider: anthropic}",
        "model route 'anthropic' is served by llm-anthropic (llm-anthropic) already",
    ),
]


@pytest.mark.parametrize(("name", "config", "reason"), TAKEN)
def test_a_second_row_for_a_route_is_refused_and_told_who_has_it(
    space: Workspace, name: str, config: str, reason: str
) -> None:
    first = f"- {{id: llm-openai, merge: {LAB}}}"
    space.write("p.yml", f"{first}\n- insert: [{{id: second, name: {name}, config: {config}}}]\n")

    done = space.run("run", "--patch", "p.yml", "hello")

    assert (done.code, done.stdout) == (3, "")
    assert done.errors == ["dsh: 1 entry did not activate:", f"second ({name}): {reason}"]
