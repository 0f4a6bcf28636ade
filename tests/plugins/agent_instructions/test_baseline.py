"""What the model is given at the first step: which files, in which order and place, and what is logged."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from dsh.agent.contract import Agent
from dsh.capabilities.recorded import RECORDED
from dsh.capabilities.replay import GivenSources
from dsh.kernel import Context
from dsh.plugins import agent_instructions
from dsh.plugins.agent_instructions import Config, rules_of
from tests.agent.kit import Loop, calls, loop, text
from tests.aio import aio
from tests.plugins.agent_instructions.kit import Project, all_changes, changes, messages, texts


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


async def prompted(project: Project, run: Loop, directory: str = ".") -> Agent:
    agent = await project.agent(run, directory)
    await run.prompt(agent, "go")
    return agent


@aio
async def test_the_file_of_the_project_comes_right_after_the_task(project: Project) -> None:
    content = "# Rules\nAlways answer briefly.\n"
    project.write("AGENTS.md", content)

    async with project.loop() as run:
        agent = await prompted(project, run)

        [message] = messages(agent.session)
        assert message["source"] == {
            "kind": "agent-instructions",
            "form": "instructions",
            "baseline": True,
            "baselineIdentity": json.dumps(
                {
                    "projectRoot": "",
                    "projectRootMarkers": [".git"],
                    "maxBytes": 65536,
                    "maxSourceBytes": 1048576,
                    "instructionFileCandidates": ["AGENTS.md", "CLAUDE.md"],
                    "localInstructionFileCandidates": ["AGENTS.local.md", "CLAUDE.local.md"],
                },
                separators=(",", ":"),
            ),
            "changes": (
                {
                    "action": "set",
                    "scope": ".\0AGENTS.md",
                    "path": "AGENTS.md",
                    "digest": "2e38730c67e446c94d964426dfcf5e7bac663be9",
                },
            ),
        }
        assert list(message["source"]) == ["kind", "form", "baseline", "baselineIdentity", "changes"]
        assert content in texts(message)[0]
        task, rules = [e.data for e in agent.session.events() if e.type == "user/message"][:2]
        assert (task["source"]["kind"], rules["source"]["kind"]) == ("user", "agent-instructions")


@aio
async def test_files_come_from_broad_to_specific_all_names_and_local_ones_behind(project: Project) -> None:
    project.write_global("of the home")
    (project.root / ".git").mkdir()
    for name in ("CLAUDE.local.md", "AGENTS.local.md", "CLAUDE.md", "AGENTS.md"):
        project.write(name, f"root {name}")
    project.write("a/CLAUDE.md", "a")
    project.write("a/b/AGENTS.md", "b")
    project.write("a/b/c/AGENTS.md", "not on the way")

    async with project.loop() as run:
        agent = await prompted(project, run, "a/b")

        [message] = messages(agent.session)
        assert changes(message) == [
            ("set", "user-global"),
            ("set", "./AGENTS.md"),
            ("set", "./CLAUDE.md"),
            ("set", "./AGENTS.local.md"),
            ("set", "./CLAUDE.local.md"),
            ("set", "a/CLAUDE.md"),
            ("set", "a/b/AGENTS.md"),
        ]
        assert json.loads(message["source"]["baselineIdentity"])["projectRoot"] == "../.."
        assert [one["path"] for one in message["source"]["changes"]][:2] == [
            "$DSH_HOME/AGENTS.md",
            "AGENTS.md",
        ]
        [shown] = texts(message)
        assert shown.index("of the home") < shown.index("root AGENTS.md") < shown.index("a/b/AGENTS.md")
        assert "not on the way" not in shown


@aio
async def test_without_a_marker_the_working_directory_is_the_project(project: Project) -> None:
    project.write("AGENTS.md", "above")
    project.write("sub/AGENTS.md", "here")

    async with project.loop(projectRootMarkers=[".no-such-marker"]) as run:
        agent = await prompted(project, run, "sub")

        assert all_changes(agent.session) == [[("set", "./AGENTS.md")]]


@aio
async def test_a_file_may_be_the_marker(project: Project) -> None:
    """The `.git` of a worktree is a file."""
    project.write(".git", "gitdir: elsewhere")
    project.write("AGENTS.md", "above")
    project.write("sub/x", "")

    async with project.loop() as run:
        agent = await prompted(project, run, "sub")

        assert all_changes(agent.session) == [[("set", "./AGENTS.md")]]


@aio
async def test_files_of_one_directory_that_say_the_same_are_told_once(project: Project) -> None:
    project.write("AGENTS.md", "same\n")
    project.write("CLAUDE.md", "\n same \n")
    project.write("CLAUDE.local.md", "same")
    project.write("AGENTS.local.md", "other")

    async with project.loop() as run:
        agent = await prompted(project, run)

        assert all_changes(agent.session) == [[("set", "./AGENTS.md"), ("set", "./AGENTS.local.md")]]
        assert texts(messages(agent.session)[0])[0].count("same") == 1


@aio
async def test_a_link_beside_its_target_is_told_once_and_one_out_of_the_project_not_at_all(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    secret = project.root.parent / "secret"
    secret.write_text("secret")
    project.write("CLAUDE.md", "rules")
    (project.root / "AGENTS.md").symlink_to("CLAUDE.md")
    (project.root / "AGENTS.local.md").symlink_to(secret)

    async with project.loop() as run:
        agent = await prompted(project, run)

        assert all_changes(agent.session) == [[("set", "./AGENTS.md")]]
        assert "secret" not in texts(messages(agent.session)[0])[0].replace("AGENTS.local.md", "")
        assert "AGENTS.local.md are not loaded: a link that leads out of the project" in caplog.text


@aio
async def test_the_working_directory_and_the_home_may_be_links(project: Project) -> None:
    real = project.root.parent / "real"
    real.mkdir()
    (real / "AGENTS.md").write_text("here")
    (project.root / "link").symlink_to(real)
    (project.root / ".git").mkdir()
    (project.root.parent / "dotfiles").write_text("of the home")
    project.home.mkdir()
    (project.home / "AGENTS.md").symlink_to("../dotfiles")

    async with project.loop() as run:
        agent = await run.agent(cwd=str(project.root / "link"))
        await run.prompt(agent, "go")

        assert all_changes(agent.session) == [[("set", "user-global"), ("set", "link/AGENTS.md")]]


@pytest.mark.parametrize("limit", [0, -1])
@aio
async def test_a_budget_of_nothing_turns_the_row_off(project: Project, limit: int) -> None:
    project.write("AGENTS.md", "rules")

    async with project.loop(maxBytes=limit) as run:
        agent = await prompted(project, run)

        assert messages(agent.session) == []


@pytest.mark.parametrize("limit", [200, 130, 20, 1])
@aio
async def test_the_message_never_exceeds_the_budget(project: Project, limit: int) -> None:
    project.write("AGENTS.md", "规则" * 1000)

    async with project.loop(text("one"), text("two"), maxBytes=limit) as run:
        agent = await prompted(project, run)
        await run.prompt(agent, "go on")

        [message] = messages(agent.session)
        assert len(texts(message)[0].encode()) <= limit
        assert len(message["source"]["changes"]) == (1 if limit == 200 else 0)


@aio
async def test_the_nearest_rule_survives_a_small_budget_and_what_is_left_out_is_not_told_later(
    project: Project,
) -> None:
    """Case AG-01; files that found no room do not come in by the next turn's batch either."""
    project.write_global("g" * 2000)
    (project.root / ".git").mkdir()
    project.write("AGENTS.md", "规" * 1166)
    project.write("pkg/AGENTS.md", "n" * 1490 + "RULE-42")

    async with project.loop(text("one"), text("two"), maxBytes=4096) as run:
        agent = await prompted(project, run, "pkg")
        await run.prompt(agent, "go on")

        [message] = messages(agent.session)
        [shown] = texts(message)
        assert "RULE-42" in shown
        assert "~/.dsh/AGENTS.md, AGENTS.md" in shown or "$DSH_HOME/AGENTS.md, AGENTS.md" in shown
        assert changes(message) == [("set", "pkg/AGENTS.md")]


@aio
async def test_a_budget_of_its_own_size_leaves_a_small_file_whole(project: Project) -> None:
    project.write("AGENTS.md", "x" * 10)

    async with project.loop(maxBytes=1000) as run:
        agent = await prompted(project, run)

        assert "x" * 10 in texts(messages(agent.session)[0])[0]


@aio
async def test_a_project_without_files_costs_no_message(project: Project) -> None:
    async with project.loop() as run:
        agent = await prompted(project, run)

        assert messages(agent.session) == []


@aio
async def test_without_the_fs_service_or_a_directory_nothing_is_told(project: Project) -> None:
    project.write("AGENTS.md", "rules")
    row: Any = (agent_instructions, {"maxBytes": 1000})
    async with loop(rows=[row]) as run:
        agent = await run.agent(cwd=str(project.root))
        await run.prompt(agent, "go")
        assert messages(agent.session) == []
    async with project.loop() as run:
        agent = await run.agent(cwd=None)
        await run.prompt(agent, "go")
        assert messages(agent.session) == []


@aio
async def test_names_that_cannot_be_files_of_a_directory_are_dropped(project: Project) -> None:
    project.write("AGENTS.md", "rules")
    project.write("sub/OTHER.md", "other")
    names = ["", ".", "..", "sub/OTHER.md", "AGENTS.md", "AGENTS.md"]

    async with project.loop(instructionFileCandidates=names) as run:
        agent = await prompted(project, run)

        assert all_changes(agent.session) == [[("set", "./AGENTS.md")]]


@aio
async def test_a_mark_at_the_beginning_is_no_part_of_the_text(project: Project) -> None:
    project.write("AGENTS.md", b"\xef\xbb\xbfrules\r\nmore\r\n")

    async with project.loop() as run:
        agent = await prompted(project, run)

        [message] = messages(agent.session)
        assert "\ufeff" not in texts(message)[0]
        assert "rules\r\nmore\r\n" in texts(message)[0]
        digest = message["source"]["changes"][0]["digest"]
        assert digest == hashlib.sha1(b"rules\r\nmore\r\n", usedforsecurity=False).hexdigest()


@aio
async def test_later_steps_and_turns_say_nothing_twice(project: Project) -> None:
    project.write("AGENTS.md", "rules")
    replies = [calls(("c1", "read", '{"file_path": "x"}')), text("one"), text("two")]
    project.write("x", "x")

    async with project.loop(*replies) as run:
        agent = await prompted(project, run)
        await run.prompt(agent, "go on")

        assert len(messages(agent.session)) == 1


@aio
async def test_the_row_registers_nothing_where_a_record_gives_its_messages(project: Project) -> None:
    given = GivenSources()
    project.write("AGENTS.md", "rules")
    row: Any = (agent_instructions, {"maxBytes": 1000})

    def replay(ctx: Context) -> None:
        ctx.provide(RECORDED, given)

    async with loop(rows=[row], first=replay) as run:
        agent = await run.agent(cwd=str(project.root))
        await run.prompt(agent, "go")

        assert messages(agent.session) == []
        assert given.covers({"source": {"kind": "agent-instructions"}})  # type: ignore[typeddict-item]
        assert not given.covers({"source": {"kind": "plugin"}})  # type: ignore[typeddict-item]


def test_the_default_home_is_shown_by_its_short_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for configured, shown in (("~/.dsh", "~/.dsh/AGENTS.md"), ("/elsewhere", "$DSH_HOME/AGENTS.md")):
        rules = rules_of(Context(), Config(max_bytes=1, dsh_home=configured))
        assert rules.global_path == shown
    assert rules_of(Context(), Config(max_bytes=1)).home is None
