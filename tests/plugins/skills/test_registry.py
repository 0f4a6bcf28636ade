"""The registry: which skill of a name counts, and what a provider's failure does."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from dsh.capabilities.skills import (
    SKILLS,
    LoadedSkill,
    Skill,
    SkillError,
    SkillList,
    SkillLookup,
    Skills,
)
from dsh.kernel import CancelToken, Context
from dsh.plugins import skill as row
from tests.agent.kit import loop, settled
from tests.aio import aio, aio_in_virtual_time

ANY = SkillLookup(cwd="/")


class Provider:
    """Has what it is given; fails, hangs or changes the registry while it is told to."""

    def __init__(self, name: str, *skills: Skill) -> None:
        self.name = name
        self.skills: Sequence[Skill] = skills
        self.failure: Exception | None = None
        self.is_complete = True
        self.invalidates: Skills | None = None
        self.asked = 0
        self.contents: dict[str, LoadedSkill | SkillError | None] = {}

    async def list(self, lookup: SkillLookup) -> SkillList:
        self.asked += 1
        if self.invalidates is not None:
            self.invalidates.invalidate()
        if self.failure is not None:
            raise self.failure
        return SkillList(self.skills, self.is_complete)

    async def get(self, skill: Skill, lookup: SkillLookup) -> LoadedSkill | None:
        content = self.contents.get(skill.key or skill.name, LoadedSkill(skill, f"of {self.name}"))
        if isinstance(content, SkillError):
            raise content
        return content


def of(name: str, rank: int, description: str = "d", key: str = "") -> Skill:
    return Skill(name=name, description=description, rank=rank, key=key)


@asynccontextmanager
async def registry(**config: int) -> AsyncIterator[Skills]:
    ctx = Context()
    try:
        await settled(ctx.plugin(row, dict(config)))
        found = ctx.get(SKILLS)
        assert found is not None
        yield found
    finally:
        await ctx.dispose()


async def names(skills: Skills, *, is_fresh: bool = True) -> list[tuple[str, str]]:
    found = (await skills.snapshot(ANY, is_fresh=is_fresh)).skills
    return [(skill.name, skill.provider) for skill in found]


@aio
async def test_the_smallest_rank_counts_then_the_first_provider_then_its_own_order() -> None:
    async with registry() as skills:
        skills.add_provider(Provider("one", of("a", 400), of("b", 100, "first"), of("b", 100, "second")))
        skills.add_provider(Provider("two", of("a", 300), of("b", 100)))
        skills.register(of("a", 350), "registered")

        assert await names(skills) == [("b", "one"), ("a", "two")]
        found = (await skills.snapshot(ANY)).find("b")
        assert found is not None
        assert found.description == "first"


@aio
async def test_what_is_registered_can_be_taken_back() -> None:
    async with registry() as skills:
        skills.add_provider(Provider("files", of("a", 300)))
        effect = skills.register(of("a", 250), "registered")
        loaded = await skills.get("a", ANY)
        assert loaded is not None
        assert (loaded.content, loaded.skill.provider) == ("registered", "runtime")

        await effect()

        loaded = await skills.get("a", ANY)
        assert loaded is not None
        assert (loaded.content, loaded.skill.provider) == ("of files", "files")


@aio
async def test_what_cannot_be_registered() -> None:
    async with registry() as skills:
        skills.register(of("a", 1), "x")
        skills.add_provider(Provider("p"))
        with pytest.raises(SkillError, match="registered skill 'a' already"):
            skills.register(of("a", 2), "y")
        with pytest.raises(SkillError, match="provider 'p' of skills already"):
            skills.add_provider(Provider("p"))
        with pytest.raises(SkillError, match="no name of a skill"):
            skills.register(of("A b", 1), "x")
        with pytest.raises(SkillError, match="no description"):
            skills.register(of("b", 1, " "), "x")


@aio
async def test_a_provider_that_fails_is_left_out_and_the_list_is_not_complete() -> None:
    async with registry() as skills:
        good, bad = Provider("good", of("a", 1)), Provider("bad", of("b", 1))
        skills.add_provider(bad)
        skills.add_provider(good)
        bad.failure = RuntimeError("boom")
        found = await skills.snapshot(ANY)
        assert ([skill.name for skill in found.skills], found.is_complete) == (["a"], False)

        bad.failure = None
        found = await skills.snapshot(ANY, is_fresh=True)
        assert ([skill.name for skill in found.skills], found.is_complete) == (["b", "a"], True)

        good.is_complete = False
        assert not (await skills.snapshot(ANY, is_fresh=True)).is_complete


@aio_in_virtual_time
async def test_a_provider_that_does_not_answer_is_left_out() -> None:
    class Hanging(Provider):
        async def list(self, lookup: SkillLookup) -> SkillList:
            await asyncio.Event().wait()
            return SkillList(())

    async with registry() as skills:
        skills.add_provider(Hanging("hanging"))
        skills.add_provider(Provider("good", of("a", 1)))

        found = await skills.snapshot(ANY)

        assert ([skill.name for skill in found.skills], found.is_complete) == (["a"], False)


@aio
async def test_lists_are_kept_by_directory_until_something_changes() -> None:
    async with registry(collectCacheMaxEntries=2) as skills:
        provider = Provider("p", of("a", 1))
        skills.add_provider(provider)
        for cwd in ("/a", "/b", "/a", "/c", "/a"):
            await skills.snapshot(SkillLookup(cwd=cwd))
        assert provider.asked == 3
        await skills.snapshot(SkillLookup(cwd="/b"))
        assert provider.asked == 4
        skills.invalidate()
        await skills.snapshot(SkillLookup(cwd="/b"))
        assert provider.asked == 5


@aio
async def test_a_list_that_changes_while_it_is_made_is_made_once_more_and_not_kept() -> None:
    async with registry() as skills:
        provider = Provider("p", of("a", 1))
        skills.add_provider(provider)
        provider.invalidates = skills
        found = await skills.snapshot(ANY)
        assert (provider.asked, found.is_complete, len(found.skills)) == (2, False, 1)

        provider.invalidates = None
        assert (await skills.snapshot(ANY)).is_complete
        assert provider.asked == 3


@aio
async def test_a_skill_whose_file_has_another_name_now_is_looked_for_anew() -> None:
    async with registry() as skills:
        provider = Provider("p", of("a", 1))
        skills.add_provider(provider)
        await skills.snapshot(ANY)
        provider.contents["a"] = LoadedSkill(of("b", 1), "renamed")
        provider.skills = [of("b", 1)]

        assert await skills.get("a", ANY) is None
        loaded = await skills.get("b", ANY)

        assert loaded is not None
        assert loaded.skill.name == "b"
        assert await skills.get("nothing", ANY) is None


@aio
async def test_a_skill_that_cannot_be_used_any_more_gives_way_to_the_one_behind_it() -> None:
    async with registry() as skills:
        provider = Provider("p", of("a", 1, key="near"), of("a", 2, key="far"))
        skills.add_provider(provider)
        await skills.snapshot(ANY)
        provider.contents["near"] = SkillError("it is broken")
        with pytest.raises(SkillError, match="it is broken"):
            await skills.get("a", ANY)

        provider.skills = provider.skills[1:]
        loaded = await skills.get("a", ANY)

        assert loaded is not None
        assert loaded.skill.key == "far"


@aio
async def test_a_nearer_layer_shadows_whatever_its_ranks_and_counts_for_its_agent_alone() -> None:
    async with loop(rows=[(row, {})]) as running:
        agent = await running.agent()
        skills, near = running.ctx.get(SKILLS), agent.ctx.get(SKILLS)
        assert skills is not None
        assert near is not None
        skills.add_provider(Provider("p", of("a", 1), of("b", 500)))
        near.add_provider(Provider("p", of("a", 600)))
        near.register(of("c", 250), "of a row")

        mine, others = SkillLookup(cwd="/", agent=agent), ANY
        listed = (await skills.snapshot(mine)).skills
        assert [(skill.name, skill.rank) for skill in listed] == [("c", 250), ("b", 500), ("a", 600)]
        assert [skill.rank for skill in (await skills.snapshot(others)).skills] == [1, 500]
        loaded, far = await skills.get("a", mine), await skills.get("a", others)
        assert loaded is not None
        assert far is not None
        assert (loaded.skill.rank, far.skill.rank) == (600, 1)


@aio
async def test_the_text_is_that_of_whoever_won_and_says_who_it_is() -> None:
    async with registry() as skills:
        skills.register(of("a", 250), "of a row")
        skills.register(of("b", 250), "of a row")
        skills.add_provider(Provider("p", of("a", 1)))
        loaded = [await skills.get(name, ANY) for name in ("a", "b")]
        assert [(one.content, one.skill.provider) for one in loaded if one is not None] == [
            ("of p", "p"),
            ("of a row", "runtime"),
        ]


@aio
async def test_a_failure_is_told_once_and_that_of_a_cancelled_call_not_at_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with registry() as skills:
        provider, token = Provider("p"), CancelToken()
        provider.failure = OSError("gone")
        skills.add_provider(provider)
        token.cancel("enough")
        assert not (await skills.snapshot(SkillLookup(cwd="/", signal=token))).is_complete
        assert caplog.records == []
        for _ in range(2):
            await skills.snapshot(ANY, is_fresh=True)
        assert [record.getMessage() for record in caplog.records] == [
            "skills of p cannot be listed: OSError: gone"
        ]
