"""Skills as a service: instructions for kinds of tasks, which rows provide and the model loads by name.

Providers list what they have and give the text of one when it is asked for; the registry decides which of
several of one name counts (`spec/capabilities-more.md` §3).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from dsh.capabilities.agent import AgentRef
from dsh.capabilities.sandbox import SandboxPolicy
from dsh.errors import DshError
from dsh.kernel import CancelToken, Effect, ServiceKey

SKILL_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
"""What a whole name looks like."""
RUNTIME_RANK = 250
"""Of skills that a row registers: behind those of the project, before all others."""


class SkillError(DshError):
    """A skill that is not there, cannot be loaded or cannot be registered. Has no code."""


class ResourceBase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the files lie that a skill speaks of."""

    kind: Literal["directory", "url", "opaque"]
    path: str | None = None
    """Of a directory: absolute."""
    url: str | None = None
    description: str | None = None
    """Of something else: how to get at it."""


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a skill without its text."""

    name: str
    description: str
    when_to_use: str | None = None
    metadata: Mapping[str, Any] = msgspec.field(default_factory=dict)
    for_model: bool = True
    """The model is told of it and may load it."""
    for_user: bool = True
    """A person may call it up by `/name`."""
    rank: int = RUNTIME_RANK
    """Of several with one name in one layer the smallest counts."""
    resource_base: ResourceBase | None = None
    key: str = ""
    """What its provider finds it by, such as a path."""
    provider: str = ""
    """Filled in by the registry."""


class LoadedSkill(msgspec.Struct, frozen=True):
    """A skill and its text, both as they are now."""

    skill: Skill
    content: str


class SkillLookup(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """For whom skills are looked up."""

    cwd: str | None = None
    """Where the session works, absolute."""
    agent: AgentRef | None = None
    """Whose layers of registrations count; None: the global ones alone."""
    sandbox_policy: SandboxPolicy | None = None
    signal: CancelToken | None = None


class SkillList(msgspec.Struct, frozen=True):
    """What a provider has."""

    skills: Sequence[Skill]
    """In an order of its own."""
    is_complete: bool = True
    """False: there may be more that cannot be seen at present."""


class SkillProvider(Protocol):
    """Has skills."""

    @property
    def name(self) -> str: ...

    async def list(self, lookup: SkillLookup) -> SkillList:
        """Those that there are now. Raising is the same as having none, for a while."""

    async def get(self, skill: Skill, lookup: SkillLookup) -> LoadedSkill | None:
        """One of them, read anew; None where it is gone.

        Raises:
            SkillError: it is there and cannot be used.
        """


class SkillSnapshot(msgspec.Struct, frozen=True):
    """Which skills there are for somebody."""

    skills: Sequence[Skill]
    """One of each name, in the order of their ranks."""
    is_complete: bool

    def find(self, name: str) -> Skill | None:
        return next((skill for skill in self.skills if skill.name == name), None)


class Skills(Protocol):
    """The registry. What is registered through a scope's context counts for that scope and those inside."""

    def add_provider(self, provider: SkillProvider) -> Effect:
        """Have a provider asked, until the effect is undone.

        Raises:
            SkillError: this layer has a provider of that name.
        """

    def register(self, skill: Skill, content: str) -> Effect:
        """Have one skill, until the effect is undone.

        Raises:
            SkillError: its name is none, its description is blank, or this layer has registered the name.
        """

    def invalidate(self) -> None:
        """What was listed before may be wrong now."""

    async def snapshot(self, lookup: SkillLookup, *, is_fresh: bool = False) -> SkillSnapshot:
        """What there is. `is_fresh`: ask the providers again, as at the beginning of a step."""

    async def get(self, name: str, lookup: SkillLookup) -> LoadedSkill | None:
        """The skill that counts under that name, its text read anew; None where there is none.

        Raises:
            SkillError: it is there and cannot be used.
        """


SKILLS: ServiceKey[Skills] = ServiceKey("skills")
