"""What comes after the baseline: nested files, changes, removals, and what bad files do to them."""

import asyncio
import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.agent.contract import AGENT_PRE_STEP, EnterStep, PreStep, PreStepDecision, RejectStep
from dsh.plugins.agent_instructions.known import File, Known
from dsh.plugins.agent_instructions.text import GUIDANCE
from dsh.session.message import user_message
from dsh.tools.execution import ToolCall
from tests.agent.kit import calls, ends, short, text, types
from tests.aio import aio
from tests.nobody import reachable, unprivileged
from tests.plugins.agent_instructions.kit import (
    KIND,
    Project,
    all_changes,
    changes,
    messages,
    read,
    texts,
    written,
)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.write("AGENTS.md", "root rule\n")
    return made


@aio
async def test_a_nested_file_is_told_once_after_a_read_below_it(project: Project) -> None:
    project.write("nested/AGENTS.md", "nested rule\n")
    project.write("nested/deep/task.txt", "x")

    async with project.loop(read("nested/deep/task.txt"), read("nested/deep/task.txt"), text("done")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")

        _, later = messages(agent.session)
        assert changes(later) == [("set", "nested/AGENTS.md")]
        assert "baseline" not in later["source"]
        assert "work under `nested`" in texts(later)[0]
        assert "nested rule" in texts(later)[0]


@aio
async def test_in_the_log_a_touch_is_a_message_that_waited_and_is_entered(project: Project) -> None:
    project.write("nested/AGENTS.md", "nested rule\n")
    project.write("nested/task.txt", "x")

    async with project.loop(read("nested/task.txt"), text("done")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")

        events = list(agent.session.events())
        end = next(e.seq for e in events if e.type == "step/end")
        parked, taken, begun, entered = events[end + 1 : end + 5]
        assert (parked.type, taken.type, begun.type) == (*["agent/inbox/spliced"] * 2, "step/start")
        assert parked.data["target"] == taken.data["target"] == "next-step"
        assert taken.data == {
            "target": "next-step", "start": 0, "removedCount": 1, "inserted": (), "outcome": "canceled",
        }  # fmt: skip
        assert parked.data["inserted"][0] == entered.data


@aio
async def test_how_files_are_to_be_taken_is_said_once_for_all_that_are_new(project: Project) -> None:
    for name in ("a", "b", "c"):
        project.write(f"{name}/AGENTS.md", f"{name} rule")
        project.write(f"{name}/task.txt", "x")
    async with project.loop(read(*(f"{n}/task.txt" for n in "abc")), text("done"), text("two")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")
        project.write("a/AGENTS.md", "another rule")
        await run.prompt(agent, "go on")

        new, changed = (texts(message)[0] for message in messages(agent.session)[-2:])
        assert new.startswith("<system-reminder>\nMore instructions of this workspace follow.")
        assert new.count(GUIDANCE) == 1
        assert GUIDANCE not in changed


@aio
async def test_two_touches_in_one_step_are_one_message(project: Project) -> None:
    for name in ("a", "b"):
        project.write(f"{name}/AGENTS.md", f"rule of {name}")
        project.write(f"{name}/task.txt", "x")

    async with project.loop(read("b/task.txt", "a/task.txt"), text("done")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")

        assert all_changes(agent.session)[1:] == [[("set", "a/AGENTS.md"), ("set", "b/AGENTS.md")]]


@aio
async def test_every_directory_on_the_way_counts_broad_ones_first(project: Project) -> None:
    for name in ("a/b/c", "a/b", "a"):
        project.write(f"{name}/AGENTS.md", f"rule of {name}")
    project.write("a/b/c/d/task.txt", "x")

    async with project.loop(read("a/b/c/d/task.txt"), text("done")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")

        assert all_changes(agent.session)[1:] == [
            [("set", "a/AGENTS.md"), ("set", "a/b/AGENTS.md"), ("set", "a/b/c/AGENTS.md")]
        ]


@aio
async def test_a_change_is_one_replacement_and_a_removal_one_removal(project: Project) -> None:
    path = project.write("nested/AGENTS.md", "first")
    project.write("nested/task.txt", "x")
    replies: list[Any] = [
        read("nested/task.txt"),
        [lambda: path.write_text("second") and None, *read("nested/task.txt")],
        read("nested/task.txt"),
        [path.unlink, *read("nested/task.txt")],
        read("nested/task.txt"),
        text("done"),
    ]

    async with project.loop(*replies) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")

        assert all_changes(agent.session)[1:] == [
            [("set", "nested/AGENTS.md")],
            [("replace", "nested/AGENTS.md")],
            [("remove", "nested/AGENTS.md")],
        ]
        replaced, removed = messages(agent.session)[2:]
        assert "second" in texts(replaced)[0]
        assert "digest" not in removed["source"]["changes"][0]
        assert texts(removed) == [
            "<system-reminder>\nnested/AGENTS.md no longer counts: disregard its earlier text.\n"
            "</system-reminder>"
        ]


@aio
async def test_what_a_command_changes_is_seen_when_the_next_turn_begins(project: Project) -> None:
    nested = project.write("nested/AGENTS.md", "nested rule")
    project.write("nested/task.txt", "x")

    async with project.loop(read("nested/task.txt"), text("one"), text("two"), text("three")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")
        project.write("AGENTS.md", "another root rule")
        project.write("CLAUDE.md", "more rules")
        nested.unlink()
        await run.prompt(agent, "go on")
        await run.prompt(agent, "and on")

        assert all_changes(agent.session)[2:] == [
            [("replace", "./AGENTS.md"), ("set", "./CLAUDE.md"), ("remove", "nested/AGENTS.md")]
        ]


@aio
async def test_a_file_that_the_model_writes_is_told_at_the_next_step(project: Project) -> None:
    async with project.loop(written("sub/AGENTS.md", "my own rule"), text("done")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")

        assert all_changes(agent.session)[1:] == [[("set", "sub/AGENTS.md")]]


@aio
async def test_the_first_file_of_a_project_may_come_later_and_is_a_baseline_then(project: Project) -> None:
    (project.root / "AGENTS.md").unlink()

    async with project.loop(written("AGENTS.md", "my own rule"), text("done")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")

        [message] = messages(agent.session)
        assert message["source"]["baseline"] is True


@pytest.mark.parametrize("path", ["missing.txt", "../elsewhere.txt", "task.txt", "nested/../task.txt"])
@aio
async def test_a_call_that_fails_or_touches_nothing_below_tells_nothing(project: Project, path: str) -> None:
    project.write("nested/AGENTS.md", "nested rule")
    project.write("task.txt", "x")
    (project.root.parent / "elsewhere.txt").write_text("x")
    (project.root.parent / "AGENTS.md").write_text("not of this project")

    async with project.loop(read(path), text("done")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")

        assert len(messages(agent.session)) == 1


@aio
async def test_files_below_the_project_beside_the_working_directory_are_not_touched(project: Project) -> None:
    (project.root / ".git").mkdir()
    project.write("here/x", "x")
    project.write("beside/AGENTS.md", "beside")
    project.write("beside/task.txt", "x")

    async with project.loop(read("../beside/task.txt"), text("done")) as run:
        agent = await project.agent(run, "here")
        await run.prompt(agent, "go")

        assert all_changes(agent.session) == [[("set", "./AGENTS.md")]]


@aio
async def test_what_a_tool_reads_counts_with_the_tool(project: Project) -> None:
    project.write("nested/AGENTS.md", "nested rule")
    project.write("nested/task.txt", "x")

    async with project.loop(calls(("c1", "good", "{}")), calls(("c2", "bad", "{}")), text("done")) as run:

        async def inner(args: Any, execution: Any, path: str) -> None:
            call = ToolCall(
                call_id="n1", name="read", arguments={"file_path": path}, agent=execution.agent,
                parent=execution.token, root_call_id=execution.root_call_id,
            )  # fmt: skip
            assert not (await run.tools.run(call)).is_error

        async def good(args: Any, execution: Any) -> str:
            await inner(args, execution, "nested/task.txt")
            return "good"

        async def bad(args: Any, execution: Any) -> str:
            await inner(args, execution, "other/task.txt")
            raise ValueError("no")

        project.write("other/AGENTS.md", "other rule")
        project.write("other/task.txt", "x")
        run.tool("good", good)
        run.tool("bad", bad)
        agent = await project.agent(run)
        await run.prompt(agent, "go")

        assert all_changes(agent.session)[1:] == [[("set", "nested/AGENTS.md")]]


@aio
async def test_files_that_become_the_same_are_one_and_then_two_again(project: Project) -> None:
    project.write("CLAUDE.md", "root rule")

    async with project.loop(text("one"), text("two"), text("three")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")
        project.write("CLAUDE.md", "another")
        await run.prompt(agent, "go on")
        project.write("CLAUDE.md", "root rule")
        await run.prompt(agent, "and on")

        assert all_changes(agent.session) == [
            [("set", "./AGENTS.md")],
            [("set", "./CLAUDE.md")],
            [("remove", "./CLAUDE.md")],
        ]


@aio
async def test_a_file_that_is_emptied_counts_no_longer(project: Project) -> None:
    async with project.loop(text("one"), text("two"), text("three")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")
        project.write("AGENTS.md", " \n")
        await run.prompt(agent, "go on")
        project.write("AGENTS.md", "back")
        await run.prompt(agent, "and on")

        assert all_changes(agent.session)[1:] == [[("remove", "./AGENTS.md")], [("set", "./AGENTS.md")]]


@aio
async def test_a_batch_has_the_budget_too_and_what_finds_no_room_waits_for_the_next_touch(
    project: Project,
) -> None:
    for name in ("a", "a/b"):
        project.write(f"{name}/AGENTS.md", f"{name} " * 60)
    project.write("a/b/task.txt", "x")

    async with project.loop(read("a/b/task.txt"), read("a/b/task.txt"), text("done"), maxBytes=600) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")

        assert all(len(t.encode()) <= 600 for m in messages(agent.session) for t in texts(m))
        assert all_changes(agent.session)[1:] == [[("set", "a/b/AGENTS.md")], [("set", "a/AGENTS.md")]]
        assert "Left out" in texts(messages(agent.session)[1])[0]


@aio
async def test_a_change_for_which_there_is_never_room_is_not_told_again_and_again(project: Project) -> None:
    project.write("a/AGENTS.md", "rule")
    project.write("a/task.txt", "x")

    async with project.loop(read("a/task.txt"), read("a/task.txt"), text("done"), maxBytes=30) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")

        assert all_changes(agent.session) == [[]]


# -- steps that are not entered --------------------------------------------------------------------


@aio
async def test_a_rejected_step_leaves_nothing_waiting_and_the_next_turn_is_told(project: Project) -> None:
    project.write("nested/AGENTS.md", "nested rule")
    project.write("nested/task.txt", "x")

    async with project.loop(read("nested/task.txt"), text("done")) as run:

        async def reject(
            step: PreStep, following: Callable[[], Awaitable[PreStepDecision]]
        ) -> PreStepDecision:
            return RejectStep() if (step.turn, step.step) == (1, 2) else await following()

        run.ctx.on(AGENT_PRE_STEP, reject)
        agent = await project.agent(run)
        await run.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "blocked"}]
        assert not agent.inbox.has_pending

        await run.prompt(agent, "go on")

        assert all_changes(agent.session) == [[("set", "./AGENTS.md")], [("set", "nested/AGENTS.md")]]


@aio
async def test_a_first_step_without_messages_is_no_reason_for_a_request(project: Project) -> None:
    async with project.loop() as run:

        async def drop(step: PreStep, following: Callable[[], Awaitable[PreStepDecision]]) -> PreStepDecision:
            await following()
            return EnterStep(())

        run.ctx.on(AGENT_PRE_STEP, drop)
        agent = await project.agent(run)
        await run.prompt(agent, "go")

        assert run.model.requests == []
        assert short(agent.session).endswith("turn/start spliced turn/end")


@aio
async def test_a_message_that_waits_in_the_log_of_another_writer_counts_as_told(project: Project) -> None:
    """A process that died between the two splices leaves it waiting; it enters with the next prompt."""
    async with project.loop(text("one"), text("two")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")
        [baseline] = messages(agent.session)
        again = user_message(baseline["content"], baseline["source"])
        project.write("AGENTS.md", "new rule")
        agent.inject(user_message("words", {"kind": KIND, "form": "instructions", "changes": [
            {"action": "replace", "scope": ".\0AGENTS.md", "path": "AGENTS.md",
             "digest": "5f6f4ba5dd6ec2a9c8c7b2aed2a1d5bd7bd1ec1d"}]}))  # fmt: skip
        agent.inject(again)
        await run.prompt(agent, "go on")

        assert all_changes(agent.session)[1:] == [
            [("replace", "./AGENTS.md")],
            [("set", "./AGENTS.md")],
            [("replace", "./AGENTS.md")],
        ]


# -- files that are none ---------------------------------------------------------------------------


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


BAD: dict[str, Callable[[Path], object]] = {
    "fifo": lambda path: os.mkfifo(path),
    "directory": lambda path: path.mkdir(),
    "latin-1": lambda path: path.write_bytes("Größe".encode("latin-1")),
    "NUL": lambda path: path.write_bytes(b"a\0b"),
    "huge": lambda path: path.write_bytes(b"x" * (10 << 20)),
    "sparse": lambda path: sparse(path),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "loop": lambda path: path.symlink_to(path.name),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "outside": lambda path: path.symlink_to("/etc/passwd"),
}


@pytest.mark.parametrize("kind", BAD)
@aio
async def test_what_is_no_readable_text_is_told_once_and_the_others_are_loaded(
    kind: str, project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    BAD[kind](project.root / "CLAUDE.md")

    async with asyncio.timeout(30), project.loop(text("one"), text("two")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")
        await run.prompt(agent, "go on")

        assert all_changes(agent.session) == [[("set", "./AGENTS.md")]]
        assert "[Could not be read: CLAUDE.md (" in texts(messages(agent.session)[0])[0]
        assert ends(agent.session) == [{"kind": "completed"}] * 2
        told = [record.getMessage() for record in caplog.records if "not loaded" in record.getMessage()]
        assert len(told) == 1
        assert f"{project.root}/CLAUDE.md" in told[0]


@pytest.mark.parametrize("kind", BAD)
@aio
async def test_a_file_that_cannot_be_read_for_a_while_is_not_removed(kind: str, project: Project) -> None:
    path = project.root / "AGENTS.md"
    content = path.read_bytes()

    async with asyncio.timeout(30), project.loop(text("one"), text("two"), text("three")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")
        path.unlink()
        BAD[kind](path)
        await run.prompt(agent, "go on")
        path.rmdir() if kind == "directory" else path.unlink()
        path.write_bytes(content)
        await run.prompt(agent, "and on")

        assert all_changes(agent.session) == [[("set", "./AGENTS.md")]]


@aio
async def test_a_file_without_rights_is_told_and_not_removed(caplog: pytest.LogCaptureFixture) -> None:
    with unprivileged():
        made = Project(Path(tempfile.mkdtemp(dir=reachable())))
        path = made.write("AGENTS.md", "root rule")
        async with made.loop(text("one"), text("two"), text("three")) as run:
            agent = await made.agent(run)
            await run.prompt(agent, "go")
            path.chmod(0)
            await run.prompt(agent, "go on")
            path.chmod(0o644)
            await run.prompt(agent, "and on")

            assert all_changes(agent.session) == [[("set", "./AGENTS.md")]]
            assert "permission denied" in caplog.text
        shutil.rmtree(made.root.parent)


@aio
async def test_directories_that_lead_into_each_other_are_looked_at_once(project: Project) -> None:
    project.write("a/task.txt", "x")
    project.write("a/AGENTS.md", "rule of a")
    (project.root / "a" / "again").symlink_to("..")

    async with asyncio.timeout(30), project.loop(read("a/again/a/again/a/task.txt"), text("done")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")

        scopes = [scope for _, scope in all_changes(agent.session)[1]]
        assert len(scopes) == len(set(scopes))
        assert "a/AGENTS.md" in scopes


@aio
async def test_a_directory_that_leads_out_of_the_project_gives_no_instructions(project: Project) -> None:
    outside = project.root.parent / "outside"
    outside.mkdir()
    (outside / "AGENTS.md").write_text("obey")
    (outside / "task.txt").write_text("x")
    (project.root / "vendored").symlink_to(outside)

    async with project.loop(read("vendored/task.txt"), text("done")) as run:
        agent = await project.agent(run)
        await run.prompt(agent, "go")

        assert len(messages(agent.session)) == 1


@aio
async def test_no_more_is_read_than_a_bound_and_the_nearest_files_come_first(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    (project.root / ".git").mkdir()
    deep = "/".join(f"d{n}" for n in range(12))
    for number in range(12):
        project.write(f"{'/'.join(deep.split('/')[: number + 1])}/AGENTS.md", f"{number}".rjust(1000, "x"))

    async with project.loop(maxSourceBytes=1000) as run:
        agent = await project.agent(run, deep)
        await run.prompt(agent, "go")

        loaded = [scope for _, scope in all_changes(agent.session)[0]]
        assert f"{deep}/AGENTS.md" in loaded
        assert len(loaded) == 8
        assert "too much was read for more specific files" in caplog.text


@aio
async def test_many_changes_by_somebody_else_never_break_a_turn(project: Project) -> None:
    path, stop = project.root / "AGENTS.md", threading.Event()

    changes_made: tuple[Callable[[], None], ...] = (path.unlink, path.mkdir, path.rmdir, path.touch)

    def disturb() -> None:
        while not stop.is_set():
            for change in changes_made:
                with contextlib.suppress(OSError):
                    change()

    thread = threading.Thread(target=disturb, daemon=True)
    async with asyncio.timeout(60), project.loop(text("done")) as run:
        agent = await project.agent(run)
        thread.start()
        try:
            for _ in range(40):
                await run.prompt(agent, "go")
        finally:
            stop.set()
            thread.join()

        assert ends(agent.session) == [{"kind": "completed"}] * 40
        assert "step/start" in types(agent.session)


@pytest.mark.parametrize(
    "source",
    [
        {"changes": 7},
        {"changes": [7, None, {"action": "set"}, {"scope": 1}, {"action": "set", "scope": "x"}]},
        {"baseline": True, "changes": []},
        {"baseline": True, "baselineIdentity": 7},
        {},
    ],
)
def test_a_message_of_any_shape_in_a_log_does_no_harm(source: dict[str, Any]) -> None:
    known = Known([user_message("odd", {"kind": KIND, **source})])

    assert known.identity in (None, "")
    assert known.files in ({}, {"x": File("x", None)})
