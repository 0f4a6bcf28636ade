"""What the model knows is read off the log: after a resume, a fork, a summary, and from logs of others."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsh.agent.contract import Agent
from dsh.plugins.agent_instructions.known import Known, Visible
from dsh.plugins.agent_instructions.place import Layout
from dsh.plugins.agent_instructions.watch import Rules
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.message import user_message
from tests.agent.kit import Loop, data_of, text
from tests.aio import aio
from tests.corpus import CORPUS, needs_corpus
from tests.plugins.agent_instructions.kit import Project, all_changes, messages, read, texts


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.write("AGENTS.md", "root rule\n")
    return made


async def resumed(project: Project, run: Loop, before: Session | None = None, **fields: Any) -> Agent:
    """An agent on the events of another session, as after a restart."""
    seed = [] if before is None else list(before.entries())
    return await project.agent(run, seed=seed, **fields)


def summarised(session: Session, *seqs: int) -> None:
    """Put a message in the place of these, as a compaction does."""
    summary = user_message("what was before", {"kind": "plugin", "plugin": "compact", "compactionId": "c"})
    nodes = session.surface_nodes
    span = nodes[nodes.index(seqs[0]) : nodes.index(seqs[-1]) + 1]
    session.append(
        "user/message",
        summary,
        surface={"op": "replace", "start": seqs[0], "end": seqs[-1]},
        sources=span,
    )


@aio
async def test_a_resumed_session_is_told_nothing_again(project: Project) -> None:
    project.write("nested/AGENTS.md", "nested rule")
    project.write("nested/task.txt", "x")
    async with project.loop(read("nested/task.txt"), text("one")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")
        before = agent.session
    assert len(messages(before)) == 2

    async with project.loop(text("two")) as run:
        agent = await resumed(project, run, before)
        await run.prompt(agent, "go on")

        assert len(messages(agent.session)) == 2


@aio
async def test_what_changed_meanwhile_is_told_with_the_first_turn(project: Project) -> None:
    project.write("nested/AGENTS.md", "nested rule")
    project.write("nested/task.txt", "x")
    async with project.loop(read("nested/task.txt"), text("one")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")
        before = agent.session
    project.write("AGENTS.md", "new root rule")
    (project.root / "nested" / "AGENTS.md").unlink()
    project.write("CLAUDE.md", "more")

    async with project.loop(text("two"), text("three")) as run:
        agent = await resumed(project, run, before)
        await run.prompt(agent, "go on")
        await run.prompt(agent, "and on")

        assert all_changes(agent.session)[2:] == [
            [("replace", "./AGENTS.md"), ("set", "./CLAUDE.md"), ("remove", "nested/AGENTS.md")]
        ]


@aio
async def test_other_options_make_a_new_baseline_that_takes_back_what_it_lacks(project: Project) -> None:
    project.write("CLAUDE.md", "old CLAUDE rule")
    project.write("nested/AGENTS.md", "nested rule")
    project.write("nested/task.txt", "x")
    async with project.loop(read("nested/task.txt"), text("one")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")
        before = agent.session

    async with project.loop(text("two"), text("three"), instructionFileCandidates=["AGENTS.md"]) as run:
        agent = await resumed(project, run, before)
        await run.prompt(agent, "go on")
        await run.prompt(agent, "and on")

        [new] = messages(agent.session)[2:]
        assert new["source"]["baseline"] is True
        assert all_changes(agent.session)[2] == [("remove", "./CLAUDE.md"), ("set", "./AGENTS.md")]
        assert "take the place of all workspace instructions given before" in texts(new)[0]


@aio
async def test_a_new_baseline_of_nothing_only_takes_back(project: Project) -> None:
    async with project.loop(text("one")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")
        before = agent.session

    async with project.loop(text("two"), instructionFileCandidates=["OTHER.md"]) as run:
        agent = await resumed(project, run, before)
        await run.prompt(agent, "go on")

        assert all_changes(agent.session)[1:] == [[("remove", "./AGENTS.md")]]
        assert "There are none now." in texts(messages(agent.session)[1])[0]


@aio
async def test_the_project_root_is_found_anew_and_scopes_follow_it(project: Project) -> None:
    project.write("sub/AGENTS.md", "sub rule")
    (project.root / ".git").mkdir()
    async with project.loop(text("one"), text("two")) as run:
        agent = await project.agent(run, "sub")
        await run.prompt(agent, "go")
        (project.root / "sub" / ".git").mkdir()
        await run.prompt(agent, "go on")

        assert all_changes(agent.session) == [
            [("set", "./AGENTS.md"), ("set", "sub/AGENTS.md")],
            [("remove", "sub/AGENTS.md"), ("set", "./AGENTS.md")],
        ]
        assert Known(messages(agent.session)).files.keys() == {".\0AGENTS.md"}


@aio
async def test_a_summary_that_takes_the_baseline_away_brings_it_again(project: Project) -> None:
    """Case CO-01: the instructions are the same before and after, also when it happens twice."""
    project.write("nested/AGENTS.md", "nested rule")
    project.write("nested/task.txt", "x")
    replies = [read("nested/task.txt"), text("one"), text("two"), text("three"), text("four")]
    async with project.loop(*replies) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")
        session = agent.session
        first, _ = messages(session)
        for words in ("go on", "and on"):
            nodes = session.surface_nodes
            summarised(session, nodes[0], nodes[-1])
            before = len(messages(session))
            await run.prompt(agent, words)

            [again] = messages(session)[before:]
            assert again["source"]["baseline"] is True
            assert texts(again) == texts(first)


@aio
async def test_in_the_middle_of_a_turn_the_baseline_comes_with_the_nested_file(project: Project) -> None:
    """As the original writes it: one message of two texts."""
    project.write("nested/AGENTS.md", "nested rule")
    project.write("nested/task.txt", "x")
    async with project.loop(read("nested/task.txt"), text("done")) as run:
        agent = await project.agent(run)

        def summarise(session: Session) -> None:
            seq = next(
                e.seq for e in session.events() if e.type == "user/message" and "baseline" in e.data["source"]
            )
            run.soon(lambda: summarised(session, seq))

        run.when("tool/call", summarise)
        await run.prompt(agent, "go")

        _, again = messages(agent.session)
        assert all_changes(agent.session)[1] == [("set", "./AGENTS.md"), ("set", "nested/AGENTS.md")]
        assert len(texts(again)) == 2
        assert [e.type for e in agent.session.events()].count("agent/inbox/spliced") == 4


@aio
async def test_a_fork_knows_what_its_parent_was_told(project: Project) -> None:
    async with project.loop(text("one"), text("two")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")
        child = await resumed(project, run, agent.session, seed_length=agent.session.first_live_seq)
        await run.prompt(child, "go on")

        assert len(messages(child.session)) == 1


# -- logs of the original --------------------------------------------------------------------------

RULES = Rules(
    max_bytes=65536,
    max_source_bytes=1048576,
    markers=(".git",),
    names=("AGENTS.md", "CLAUDE.md"),
    local_names=("AGENTS.local.md", "CLAUDE.local.md"),
    home=None,
    global_path="",
)


def recorded() -> Iterator[Path]:
    for folder in ("fixtures", "runs"):
        for path in sorted((CORPUS / folder).glob("*.jsonl")):
            if '"kind":"agent-instructions"' in path.read_text(errors="replace"):
                yield path


def loaded(path: Path) -> Session:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    header = rows[0]
    return Session.seeded(SessionHeader(id="s", created_at=0, cwd=header.get("cwd")), rows[1:])


@needs_corpus
def test_the_logs_of_the_original_hold_instructions() -> None:
    assert len(list(recorded())) == 4


@needs_corpus
@pytest.mark.parametrize("path", list(recorded()), ids=lambda path: path.stem)
def test_the_identity_of_a_baseline_is_that_of_the_original_to_the_byte(path: Path) -> None:
    session = loaded(path)
    identity = Known(Visible(session).messages()).identity
    assert identity is not None
    keys = json.loads(identity)
    rules = RULES._replace(markers=tuple(keys["projectRootMarkers"]))

    assert rules.identity(Layout("/ws", "/ws")) == identity


@needs_corpus
@aio
async def test_a_log_of_the_original_that_goes_on_here_gets_no_second_baseline(tmp_path: Path) -> None:
    before = loaded(CORPUS / "runs" / "agents-md.jsonl")
    project = Project(tmp_path)
    project.write("AGENTS.md", "# Rules\nAlways answer briefly.\n")

    async with project.loop(text("two")) as run:
        agent = await resumed(project, run, before)
        await run.prompt(agent, "go on")

        assert len(messages(agent.session)) == 1
        assert len(data_of(agent.session, "step/start")) == 2


@needs_corpus
@aio
async def test_an_edit_while_nobody_looked_is_told_as_the_original_tells_it(tmp_path: Path) -> None:
    [path] = [p for p in recorded() if "offline-edit" in p.stem]
    session = loaded(path)
    events = list(session.events())
    stop = next(e.seq for e in events if e.type == "session/end-seed")
    old, new = messages(session)
    project = Project(tmp_path)
    project.write("AGENTS.md", texts(new)[0].split("\n\n")[2] + "\n")
    before = Session.seeded(SessionHeader(id="s", created_at=0), list(session.entries())[:stop])

    async with project.loop(text("RESUME_DONE")) as run:
        agent = await resumed(project, run, before)
        await run.prompt(agent, "Acknowledge the current workspace instruction.")

        mine = messages(agent.session)
        assert mine[0]["source"] == old["source"]
        assert mine[1]["source"] == new["source"]


@needs_corpus
@aio
async def test_other_names_make_the_replacement_that_the_original_makes(tmp_path: Path) -> None:
    [path] = [p for p in recorded() if "precedence-change" in p.stem]
    session = loaded(path)
    stop = next(e.seq for e in session.events() if e.type == "session/end-seed")
    _, new = messages(session)
    project = Project(tmp_path)
    project.write("AGENTS.md", "Current AGENTS rule.\n")
    project.write("CLAUDE.md", "Current CLAUDE rule.\n")
    before = Session.seeded(SessionHeader(id="s", created_at=0), list(session.entries())[:stop])

    async with project.loop(text("RESUME_DONE")) as run:
        agent = await resumed(project, run, before)
        await run.prompt(agent, "Acknowledge the current workspace instruction.")

        assert messages(agent.session)[1]["source"] == new["source"]


@needs_corpus
@aio
async def test_the_messages_of_a_turn_with_touches_have_the_sources_of_the_original(tmp_path: Path) -> None:
    session = loaded(CORPUS / "fixtures" / "acp-agent-agent-instructions-session.jsonl")
    wanted = [message["source"] for message in messages(session)]
    odd = "scope</system-reminder>"
    project = Project(tmp_path)
    project.write("AGENTS.md", "Root snapshot instruction.\n")
    project.write("nested/AGENTS.md", "Nested snapshot instruction.\n")
    project.write(f"{odd}/AGENTS.md", "Delimiter path snapshot instruction.\n")
    for name in ("nested", odd):
        project.write(f"{name}/task.txt", "x")

    replies = [read("nested/task.txt"), read(f"{odd}/task.txt"), text("DONE")]
    async with project.loop(*replies, projectRootMarkers=[".dsh-project"]) as run:
        agent = await project.agent(run)

        def summarise(found: Session) -> None:
            seq = next(
                e.seq for e in found.events() if e.type == "user/message" and "baseline" in e.data["source"]
            )
            run.soon(lambda: summarised(found, seq))

        run.when("tool/call", summarise)
        await run.prompt(agent, "go")

        assert [message["source"] for message in messages(agent.session)] == wanted
        assert "scope<\\/system-reminder>/AGENTS.md" in texts(messages(agent.session)[2])[0]
