"""The tool `skill` and what enters a step: who may load which skill, and when the list comes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dsh.agent.contract import Agent
from dsh.capabilities.skills import SKILLS, LoadedSkill, Skill, SkillError, SkillLookup, Skills
from dsh.kernel import CancelToken
from dsh.plugins import skill, tool_skill
from dsh.tools.execution import ToolCall, ToolFailure, ToolResult
from dsh.tools.registry import TOOLS
from tests.agent.kit import Loop, data_of, loop
from tests.aio import aio
from tests.plugins.skills.test_registry import Provider, of
from tests.tools.kit import text


class Broken(Provider):
    async def get(self, skill: Skill, lookup: SkillLookup) -> LoadedSkill | None:
        raise SkillError(f"{skill.name} is broken")


@asynccontextmanager
async def with_skills() -> AsyncIterator[tuple[Loop, Skills]]:
    async with loop(rows=[(skill, {}), (tool_skill, {})]) as running:
        skills = running.ctx.get(SKILLS)
        assert skills is not None
        yield running, skills


async def load(running: Loop, agent: Agent | None, name: str) -> ToolResult:
    call = ToolCall(call_id="c", name="skill", arguments={"name": name}, agent=agent, signal=CancelToken())
    return await running.tools.run(call)


def sources(agent: Agent) -> list[dict[str, Any]]:
    found = (message["source"] for message in data_of(agent.session, "user/message"))
    return [source for source in found if source["kind"].startswith("skill-")]


def lists(agent: Agent) -> list[tuple[bool, list[str]]]:
    """Of each list that was sent whether it replaces one, and its names."""
    return [
        (source.get("update", False), [entry["name"] for entry in source["entries"]])
        for source in sources(agent)
        if source["kind"] == "skill-catalog"
    ]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("../a", "'../a' is no name of a skill"),
        ("", "'' is no name of a skill"),
        ("b", 'there is no skill "b"; there are a, broken'),
        ("hidden", 'skill "hidden" is not for you to load; a person can call it up by /hidden'),
        ("broken", "broken is broken"),
    ],
)
@aio
async def test_what_cannot_be_loaded_is_an_error_without_a_code(name: str, problem: str) -> None:
    async with with_skills() as (running, skills):
        skills.register(of("a", 250), "text of a")
        skills.register(Skill(name="hidden", description="d", for_model=False), "secret")
        skills.add_provider(Broken("p", of("broken", 300)))
        result = await load(running, await running.agent(), name)
        assert isinstance(result, ToolFailure)
        assert result.code is None
        assert problem in text(result)
        assert "secret" not in text(result)


@aio
async def test_without_skills_the_error_says_so() -> None:
    async with with_skills() as (running, _):
        assert text(await load(running, None, "a")).endswith('there is no skill "a"; there are no skills')


@aio
async def test_of_many_skills_the_error_names_some() -> None:
    async with with_skills() as (running, skills):
        skills.add_provider(Provider("p", *(of(f"a{n}", n) for n in range(25))))
        assert text(await load(running, None, "b")).endswith("a18, a19 and 5 more")


@aio
async def test_the_list_comes_when_it_changes_and_not_while_it_is_incomplete() -> None:
    async with with_skills() as (running, skills):
        provider = Provider("p", of("a", 1))
        skills.add_provider(provider)
        agent = await running.agent()
        await running.prompt(agent, "go")
        await running.prompt(agent, "on")
        assert lists(agent) == [(False, ["a"])]

        provider.skills, provider.is_complete = [of("b", 1)], False
        await running.prompt(agent, "on")
        provider.failure = OSError("gone")
        await running.prompt(agent, "on")
        assert len(lists(agent)) == 1

        provider.failure, provider.is_complete = None, True
        await running.prompt(agent, "on")
        provider.skills = []
        await running.prompt(agent, "on")
        assert lists(agent)[1:] == [(True, ["b"]), (True, [])]


@aio
async def test_who_does_not_see_the_tool_gets_no_list_and_may_still_call_up_a_skill() -> None:
    async with with_skills() as (running, skills):
        skills.register(of("a", 250), "text of a")
        agent = await running.agent()
        tools = agent.ctx.get(TOOLS)
        assert tools is not None
        tools.restrict(deny=["skill"])
        await running.prompt(agent, "go")
        assert sources(agent) == []
        await running.prompt(agent, "/a please")
        assert sources(agent) == [{"kind": "skill-invocation", "name": "a", "form": "instructions"}]


@aio
async def test_a_called_skill_that_cannot_be_used_is_left_out_and_the_turn_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with with_skills() as (running, skills):
        skills.register(Skill(name="quiet", description="d", for_user=False), "text")
        skills.register(of("a", 250), "text of a")
        skills.add_provider(Broken("p", of("broken", 300)))
        agent = await running.agent()
        await running.prompt(agent, "/broken then /quiet then /a and /a")
        called = [source["name"] for source in sources(agent) if source["kind"] == "skill-invocation"]
        assert called == ["a"]
        assert "/broken: broken is broken" in caplog.text
        assert len(running.model.requests) == 1
