"""Skills in whole runs: what the model is told of them, loads, and is given by a person."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from dsh.testing.workspace import Workspace, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import Reply, bash, text
from tests.e2e.test_compaction import FULL, Runs, work

Answering = Callable[..., Model]
PROJECT = ".dsh/skills"


def skill(name: str, description: str, body: str = "Do it.", more: str = "") -> str:
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n{body}\n"


def load(name: str) -> Reply:
    return {"tools": [{"id": "call_s", "name": "skill", "args": [json.dumps({"name": name})]}]}


def sources(space: Workspace) -> list[dict[str, Any]]:
    """Where each message of the user's side comes from, in order."""
    [log] = space.logs()
    return [row["data"]["source"] for row in log_rows(log) if row["type"] == "user/message"]


def kinds(space: Workspace) -> list[str]:
    return [source["kind"] for source in sources(space)]


def catalogues(space: Workspace) -> list[dict[str, str]]:
    """Name to description of each list that was sent."""
    return [
        {entry["name"]: entry["description"] for entry in source["entries"]}
        for source in sources(space)
        if source["kind"] == "skill-catalog"
    ]


def results(model: Model) -> list[str]:
    return [message["content"] for message in model.bodies()[-1]["messages"] if message["role"] == "tool"]


def test_the_list_comes_once_after_the_snapshot_and_the_called_skill_last(
    space: Workspace, answering: Answering
) -> None:
    space.write(f"{PROJECT}/fix/SKILL.md", skill("fix", "How we  fix\n  things."))
    answering(bash("true"), text("ok"))

    done = space.run("run", "please /fix it, not /tmp and not /nope")

    assert (done.code, done.stderr) == (0, "")
    assert kinds(space) == ["user", "plugin", "skill-catalog", "skill-invocation"]
    assert catalogues(space) == [{"fix": "How we fix things."}]
    assert sources(space)[-1] == {"kind": "skill-invocation", "name": "fix", "form": "instructions"}


def test_a_loaded_skill_has_its_tags_each_on_a_line_of_its_own(
    space: Workspace, answering: Answering
) -> None:
    space.write(f"{PROJECT}/fix/SKILL.md", skill("fix", "d", "Use <b> & `x`.\n\n  Indented."))
    model = answering(load("fix"), text("ok"))

    assert space.run("run", "go").code == 0

    [result] = results(model)
    lines = result.split("\n")
    assert lines[:2] == ['<skill_content name="fix">', "<skill_resources>"]
    assert str(space.work / PROJECT / "fix") in lines[2]
    assert lines[4:] == [
        "</skill_resources>", "", "<skill_instructions>", "Use <b> & `x`.", "", "  Indented.",
        "</skill_instructions>", "</skill_content>",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "lists"),
    [("s/what/why/", [{"fix": "what"}, {"fix": "why"}]), ("s/Do it/Do not/", [{"fix": "what"}])],
    ids=["description", "body"],
)
def test_a_changed_description_is_told_and_a_changed_body_is_not(
    space: Workspace, answering: Answering, change: str, lists: list[dict[str, str]]
) -> None:
    file = space.write("skills/fix/SKILL.md", skill("fix", "what"))
    space.write("p.yml", f"- {{id: skill-filesystem, config: {{customSkillDirs: [{file.parent.parent}]}}}}\n")
    answering(bash(f"sed -i '{change}' skills/fix/SKILL.md"), text("ok"))

    assert space.run("run", "--patch", "p.yml", "go").code == 0

    assert catalogues(space) == lists
    updates = [source.get("update") for source in sources(space) if source["kind"] == "skill-catalog"]
    assert updates == [None, True][: len(lists)]


def test_the_project_s_skill_shadows_that_of_the_home(space: Workspace, answering: Answering) -> None:
    space.write(f"{PROJECT}/fix.md", skill("fix", "of the project"))
    folder = space.home / "skills"
    folder.mkdir()
    (folder / "a.md").write_text(skill("fix", "of the home"))
    (folder / "b.md").write_text(skill("other", "of the home too"))
    answering(text("ok"))

    assert space.run("run", "go").code == 0

    assert catalogues(space) == [{"fix": "of the project", "other": "of the home too"}]


def test_who_may_use_a_skill_is_kept(space: Workspace, answering: Answering) -> None:
    space.write(f"{PROJECT}/a.md", skill("mine", "d", more="disable-model-invocation: true\n"))
    space.write(f"{PROJECT}/b.md", skill("yours", "d", more="user-invocable: no\n"))
    model = answering(load("mine"), text("ok"))

    assert space.run("run", "/mine and /yours").code == 0

    assert catalogues(space) == [{"yours": "d"}]
    assert [s["name"] for s in sources(space) if s["kind"] == "skill-invocation"] == ["mine"]
    [refused] = results(model)
    assert refused.startswith("Error: ") and "/mine" in refused


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("no front matter", "its first line is not ---"),
        ("---\nname: x\n", "no second line --- ends its front matter"),
        ("---\nname: X Y\ndescription: d\n---\n", "its name is 'X Y'"),
        (
            "---\nname: x\ndescription: d\nuserInvocable: true\n---\n",
            "userInvocable is written user-invocable",
        ),
        ("---\n[\n---\n", "its front matter is no YAML"),
        ("x" * 200_000, "it is larger than 102400 bytes"),
    ],
    ids=["bare", "open", "name", "spelling", "yaml", "huge"],
)
def test_a_file_that_is_no_skill_is_told_and_the_others_count(
    space: Workspace, answering: Answering, content: str, why: str
) -> None:
    space.write(f"{PROJECT}/bad.md", content)
    space.write(f"{PROJECT}/good.md", skill("good", "d"))
    answering(bash("true"), text("ok"))

    done = space.run("run", "go")

    assert done.code == 0
    [line] = done.errors
    assert "bad.md" in line and why in line
    assert catalogues(space) == [{"good": "d"}]


def test_a_run_with_skills_verifies_and_replays(space: Workspace, answering: Answering) -> None:
    file = space.write(f"{PROJECT}/fix.md", skill("fix", "d"))
    answering(load("fix"), text("ok"))
    assert space.run("run", "/fix it").code == 0
    file.unlink()

    assert space.run("sessions", "verify", "last").code == 0
    replayed = space.run("replay", "last")
    assert (replayed.code, "replays as recorded" in replayed.stdout) == (0, True), replayed


def test_a_list_that_went_into_a_summary_is_sent_again(space: Workspace, answering: Answering) -> None:
    space.write(f"{PROJECT}/fix.md", skill("fix", "d"))
    runs = Runs(space, answering)
    gist = text("## Goal: the gist")
    done = runs.run(*(work(n) for n in range(12)), work(12, tokens=FULL), gist, text("ok"))

    assert (done.code, done.stdout) == (0, "ok\n"), done.stderr
    assert len(runs.asked()) == 1
    assert catalogues(space) == [{"fix": "d"}] * 2
    assert [source.get("update") for source in sources(space) if source["kind"] == "skill-catalog"] == [
        None
    ] * 2
    for turn in (runs.turns()[0], runs.turns()[-1]):
        assert str(turn["messages"]).count("- `fix`: d") == 1


def test_the_environment_says_where_more_skills_lie(space: Workspace, answering: Answering) -> None:
    agents, bundled = space.work.parent / "agents", space.work.parent / "bundled"
    for folder, name in (
        (agents / "skills", "of-agents"),
        (bundled, "bundled"),
        (space.home / "skills" / ".system", "system"),
    ):
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(skill(name, "d"))
    answering(text("ok"))

    env = {"DSH_AGENTS_HOME": f" {agents} ", "DSH_BUNDLED_SKILL_DIR": str(bundled)}
    assert space.run("run", "go", env=env).code == 0
    assert catalogues(space) == [{"of-agents": "d", "bundled": "d"}]


def test_without_looking_again_what_was_seen_first_stays(space: Workspace, answering: Answering) -> None:
    space.write(f"{PROJECT}/fix.md", skill("fix", "d"))
    space.write("still.yml", "- {id: skill-filesystem, config: {watch: false}}\n")
    answering(bash(f"sed -i s/d$/new/ {PROJECT}/fix.md; cp {PROJECT}/fix.md {PROJECT}/b.md"), text("ok"))
    full = {"DSH_PERMISSION_MODE": "danger-full-access"}

    assert space.run("run", "--patch", "still.yml", "go", env=full).code == 0
    assert catalogues(space) == [{"fix": "d"}]
