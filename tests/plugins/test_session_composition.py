"""Row session-composition: each log says which composition its turns ran on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dsh.composition.compose import Composition
from dsh.composition.lock.digest import contents_of, digest_of
from dsh.composition.mount.facts import Facts
from dsh.composition.mount.loader import LOADER, Loader
from dsh.kernel import Context
from dsh.plugins import session_composition
from dsh.plugins.session_composition import MOUNTED
from dsh.session.log import Session
from tests.agent.kit import Loop, Reply, calls, loop, text
from tests.aio import aio
from tests.composition.layers import write
from tests.composition.tree import composition

ROW = "- insert: [{id: p, name: ./p.py}]"


def made(folder: Path, *texts: str) -> Composition:
    write(folder / "p.py", "def apply(ctx, config): ...\n")
    return composition(folder, *texts)


def digest(of: Composition) -> str:
    return digest_of(contents_of(of, Path("/nonexistent")))


@asynccontextmanager
async def running(folder: Path, of: Composition, *replies: Reply) -> AsyncIterator[Loop]:
    def first(ctx: Context) -> None:
        Loader(ctx, Facts(folder / "home", "test", "/ws", {}))

    async with loop(*replies, rows=[(session_composition, {})], first=first) as it:
        await it.ctx.use(LOADER).load(of)
        yield it


def recorded(session: Session) -> list[str]:
    return [event.data["digest"] for event in session.select(MOUNTED)]


@aio
async def test_it_is_recorded_once_before_the_first_turn(tmp_path: Path) -> None:
    of = made(tmp_path, ROW)
    async with running(tmp_path, of) as it:
        agent = await it.agent()
        assert list(agent.session.select(MOUNTED)) == []

        await it.prompt(agent, "one")
        await it.prompt(agent, "two")

        (event,) = agent.session.select(MOUNTED)
        assert dict(event.data) == {
            "digest": digest(of),
            "algorithm": "sha256",
            "dsh": "0.1.0",
            "profile": "test",
        }
        assert event.ignorable
        (first, _) = agent.session.select("turn/start")
        assert event.seq == first.seq - 1


@aio
async def test_an_agent_without_a_turn_records_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, made(tmp_path, ROW)) as it:
        agent = await it.agent()
        assert agent.session.length == 0


@aio
async def test_each_session_gets_its_own_record(tmp_path: Path) -> None:
    of = made(tmp_path, ROW)
    async with running(tmp_path, of) as it:
        agents = [await it.agent(), await it.agent()]
        for agent in agents:
            await it.prompt(agent, "hi")
        assert [recorded(agent.session) for agent in agents] == [[digest(of)], [digest(of)]]


@aio
async def test_an_edit_between_turns_is_recorded_before_the_next(tmp_path: Path) -> None:
    of, edited = made(tmp_path, ROW), made(tmp_path, ROW, "- {id: p, optional: true}")
    async with running(tmp_path, of) as it:
        agent = await it.agent()
        await it.prompt(agent, "one")

        await it.ctx.use(LOADER).reload(edited)
        await it.prompt(agent, "two")

        assert recorded(agent.session) == [digest(of), digest(edited)]
        (_, second) = agent.session.select("turn/start")
        (_, event) = agent.session.select(MOUNTED)
        assert event.seq < second.seq


@aio
async def test_an_edit_inside_a_turn_is_recorded_before_the_next_step(tmp_path: Path) -> None:
    of, edited = made(tmp_path, ROW), made(tmp_path, ROW, "- {id: p, optional: true}")
    async with running(tmp_path, of, calls(("c", "edit", "{}")), text("done")) as it:

        async def edit(args: Any, exec: Any) -> str:  # noqa: A002
            await it.ctx.use(LOADER).reload(edited)
            return "edited"

        it.tool("edit", edit)
        agent = await it.agent()
        await it.prompt(agent, "go")

        (_, event) = agent.session.select(MOUNTED)
        (_, step) = agent.session.select("step/start")
        assert event.data["digest"] == digest(edited)
        assert event.seq < step.seq


@aio
async def test_an_edit_that_changes_nothing_is_not_recorded(tmp_path: Path) -> None:
    of = made(tmp_path, ROW)
    async with running(tmp_path, of) as it:
        agent = await it.agent()
        await it.prompt(agent, "one")

        await it.ctx.use(LOADER).reload(made(tmp_path, ROW))
        await it.prompt(agent, "two")

        assert recorded(agent.session) == [digest(of)]


@aio
async def test_a_session_goes_on_under_the_same_composition_without_another_record(tmp_path: Path) -> None:
    of = made(tmp_path, ROW)
    async with running(tmp_path, of) as it:
        agent = await it.agent()
        await it.prompt(agent, "one")
        stored = [event.to_json() for event in agent.session.events()]
    async with running(tmp_path, of) as it:
        session = it.sessions.prepare("again", seed=stored)
        recorder = session_composition.Recorder(it.ctx)
        recorder.record(session)
        assert len(recorded(session)) == 1


@aio
async def test_a_composition_that_cannot_be_told_is_a_warning(tmp_path: Path) -> None:
    async with running(tmp_path, made(tmp_path, ROW)) as it:
        lost = made(tmp_path, "- insert: [{id: i, name: 'cordis:include', config: {path: ./absent.yml}}]")
        it.ctx.use(LOADER).composition = lost
        agent = await it.agent()
        await it.prompt(agent, "one")
        assert recorded(agent.session) == []
        assert agent.session.last("turn/end") is not None
