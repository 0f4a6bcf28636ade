"""Row `skill`: the registry of skills. It asks the providers, and decides which skill of a name counts.

In a layer of registrations the smallest rank wins, then the provider that came first, then its own order; a
nearer layer shadows the names of those further out (`spec/capabilities-more.md` §3).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from dsh.capabilities.bounds import Amount
from dsh.capabilities.skills import (
    SKILL_NAME,
    SKILLS,
    LoadedSkill,
    Skill,
    SkillError,
    SkillList,
    SkillLookup,
    SkillProvider,
    SkillSnapshot,
)
from dsh.kernel import Context, Effect, Service
from dsh.kernel.foreign import awaited, told
from dsh.kernel.layer import Layers, Undo, outward

provide = [SKILLS]

PROVIDER_S = 10.0
"""How long a provider may take to list what it has; then it counts as one that failed."""
RUNTIME = "runtime"
"""The provider of skills that rows register."""

_Place = tuple[str | None, int]
"""Working directory and identity of the scope."""


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    collect_cache_max_entries: Amount = 128
    """For how many working directories and agents the last list is kept; the oldest go first."""


class _Kept(NamedTuple):
    """A snapshot of now: whatever changes the registry forgets all of them."""

    snapshot: SkillSnapshot
    scope: object | None
    """Kept alive, so that its identity is nobody else's."""


class _State:
    """What all views of the service share."""

    def __init__(self) -> None:
        self.revision = 0
        self.kept: OrderedDict[_Place, _Kept] = OrderedDict()
        self.unwell: set[tuple[str, str]] = set()
        """Failures that were told, by provider."""


class SkillRegistry(Service):
    """Implements `dsh.capabilities.skills.Skills`. State: providers and skills by layer; the last lists."""

    provide = SKILLS

    def __init__(self, ctx: Context, config: Config) -> None:
        self._config = config
        self._providers: Layers[SkillProvider] = Layers(
            lambda name: SkillError(f"there is a provider {name!r} of skills already")
        )
        self._registered: Layers[LoadedSkill] = Layers(
            lambda name: SkillError(f"there is a registered skill {name!r} already")
        )
        self._state = _State()
        super().__init__(ctx)

    # -- registration ----------------------------------------------------------------------------

    def add_provider(self, provider: SkillProvider) -> Effect:
        scope = self.ctx.scope
        return self._change(
            lambda: self._providers.insert(scope, provider.name, provider), f"skills of {provider.name}"
        )

    def register(self, skill: Skill, content: str) -> Effect:
        if not SKILL_NAME.fullmatch(skill.name):
            raise SkillError(f"{skill.name!r:.80} is no name of a skill: it takes a-z, 0-9 and single dashes")
        if not skill.description.strip():
            raise SkillError(f"skill {skill.name} has no description")
        scope, loaded = self.ctx.scope, LoadedSkill(msgspec.structs.replace(skill, provider=RUNTIME), content)
        return self._change(lambda: self._registered.insert(scope, skill.name, loaded), f"skill {skill.name}")

    def invalidate(self) -> None:
        self._state.revision += 1
        self._state.kept.clear()

    def _change(self, insert: Callable[[], Undo], label: str) -> Effect:
        def setup() -> Callable[[], None]:
            undo = insert()
            self.invalidate()

            def take_back() -> None:
                undo()
                self.invalidate()

            return take_back

        return self.ctx.effect(setup, label)

    # -- looking up ------------------------------------------------------------------------------

    async def snapshot(self, lookup: SkillLookup, *, is_fresh: bool = False) -> SkillSnapshot:
        state, place = self._state, (lookup.cwd, id(lookup.agent))
        kept = state.kept.get(place)
        if kept is not None and not is_fresh:
            state.kept.move_to_end(place)
            return kept.snapshot
        for _ in range(2):
            revision = state.revision
            snapshot = await self._collected(lookup)
            if state.revision == revision:
                state.kept[place] = _Kept(snapshot, lookup.agent)
                state.kept.move_to_end(place)
                while len(state.kept) > self._config.collect_cache_max_entries:
                    state.kept.popitem(last=False)
                return snapshot
        return SkillSnapshot(snapshot.skills, is_complete=False)

    async def get(self, name: str, lookup: SkillLookup) -> LoadedSkill | None:
        for is_fresh in (False, True):
            found = (await self.snapshot(lookup, is_fresh=is_fresh)).find(name)
            try:
                loaded = None if found is None else await self._load(found, lookup)
            except SkillError:
                if is_fresh:
                    raise
                continue
            if loaded is not None and loaded.skill.name == name:
                return loaded
        return None

    async def _load(self, skill: Skill, lookup: SkillLookup) -> LoadedSkill | None:
        for scope in outward(lookup.agent):
            registered = self._registered.own(scope).get(skill.name)
            if registered is not None and registered.skill == skill:
                return registered
            provider = self._providers.own(scope).get(skill.provider)
            if provider is not None:
                loaded = await awaited(provider.get(skill, lookup), f"skills of {provider.name}")
                if loaded is None:
                    return None
                named = msgspec.structs.replace(loaded.skill, provider=provider.name)
                return LoadedSkill(named, loaded.content)
        return None

    async def _collected(self, lookup: SkillLookup) -> SkillSnapshot:
        layers = list(outward(lookup.agent))
        asked = [(layer, one) for layer in layers for one in self._providers.own(layer).values()]
        answers = await asyncio.gather(*(self._asked(provider, lookup) for _, provider in asked))
        chosen: dict[str, Skill] = {}
        for layer in layers:
            runtime = [loaded.skill for loaded in self._registered.own(layer).values()]
            lists = [
                answer.skills for (where, _), answer in zip(asked, answers, strict=True) if where is layer
            ]
            for name, skill in _winners([*lists, runtime]).items():
                chosen.setdefault(name, skill)
        skills = sorted(chosen.values(), key=lambda skill: skill.rank)
        return SkillSnapshot(tuple(skills), all(answer.is_complete for answer in answers))

    async def _asked(self, provider: SkillProvider, lookup: SkillLookup) -> SkillList:
        """What it has; nothing, and not all, where it fails."""
        name = provider.name
        try:
            async with asyncio.timeout(PROVIDER_S):
                found = await awaited(provider.list(lookup), f"skills of {name}")
        except TimeoutError:
            problem = f"it did not answer within {PROVIDER_S:g} s"
        except Exception as error:
            problem = told(error)
        else:
            named = tuple(msgspec.structs.replace(skill, provider=name) for skill in found.skills)
            return SkillList(named, found.is_complete)
        is_aborted = lookup.signal is not None and lookup.signal.cancelled
        if not is_aborted and (name, problem) not in self._state.unwell:
            self._state.unwell.add((name, problem))
            self.owner_ctx.logger.warning("skills of %s cannot be listed: %s", name, problem)
        return SkillList((), is_complete=False)


def _winners(lists: Sequence[Iterable[Skill]]) -> dict[str, Skill]:
    """The skill that counts of each name in one layer."""
    chosen: dict[str, Skill] = {}
    for skill in sorted((skill for one in lists for skill in one), key=lambda skill: skill.rank):
        chosen.setdefault(skill.name, skill)
    return chosen


def apply(ctx: Context, config: Config) -> None:
    SkillRegistry(ctx, config)
