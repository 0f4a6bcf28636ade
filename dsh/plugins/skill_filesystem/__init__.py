"""Row `skill-filesystem`: skills in files, of the project, of the person, and of directories of one's own.

Directories are looked into when a step begins; nothing watches them in between
(`spec/capabilities-more.md` §3).
"""

import os
from pathlib import Path
from typing import Annotated

import msgspec

from dsh.capabilities.bounds import Amount, NonEmpty
from dsh.capabilities.fs import FS, FsError
from dsh.capabilities.launch import HOME_PATH, LAUNCH_ENVIRONMENT
from dsh.capabilities.skills import SKILLS, LoadedSkill, Skill, SkillError, SkillList, SkillLookup
from dsh.kernel import Context
from dsh.plugins.skill_filesystem.document import NoSkill
from dsh.plugins.skill_filesystem.root import AGENTS_RANK, BUNDLED_RANK, CUSTOM_RANK, HOME_RANK, Root, Roots
from dsh.plugins.skill_filesystem.scan import Scanner
from dsh.session.value import MAX_SAFE_INT

inject = [FS, SKILLS]
provide = ()

_NO_WATCHER = {
    "watchUsePolling": "nothing is watched, directories are looked into when a step begins",
    "watchPollIntervalMs": "nothing is watched, directories are looked into when a step begins",
    "watchFollowSymlinks": "links are always followed",
}
"""Keys of the original without a meaning here, and why."""

Millis = Annotated[int, msgspec.Meta(ge=0, le=MAX_SAFE_INT)]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    provider_name: NonEmpty = "filesystem"
    """What the provider is called, in results of the tool `skill`."""
    include_default_roots: bool = True
    """Whether to look into `.dsh/skills` and `.agents/skills` of the project and into those of the home."""
    custom_skill_dirs: list[NonEmpty] = []
    """More directories to look into: absolute, `~/…`, or below the directory where dsh was started."""
    bundled_skill_dir: str | None = None
    """One that comes last; unset: `$DSH_BUNDLED_SKILL_DIR`, where it is set."""
    max_skill_bytes: Amount = 102_400
    """Files larger than this, in bytes, are not offered."""
    watch: bool = True
    """Whether to look again when a step begins. Without, what was seen first stays."""
    watch_stability_threshold_ms: Millis = 200
    """A skill whose file is none any more counts for so long as it was: it may just be written."""
    watch_max_projects: Amount = 128
    """For how many working directories it is remembered what was seen; the oldest go first."""
    watch_use_polling: bool | msgspec.UnsetType = msgspec.UNSET
    """Has no meaning here, and is refused: nothing is watched."""
    watch_poll_interval_ms: int | msgspec.UnsetType = msgspec.UNSET
    """Has no meaning here, and is refused: nothing is watched."""
    watch_follow_symlinks: bool | msgspec.UnsetType = msgspec.UNSET
    """Has no meaning here, and is refused: links are always followed."""

    def __post_init__(self) -> None:
        given = {
            "watchUsePolling": self.watch_use_polling,
            "watchPollIntervalMs": self.watch_poll_interval_ms,
            "watchFollowSymlinks": self.watch_follow_symlinks,
        }
        for key, value in given.items():
            if value is not msgspec.UNSET:
                raise ValueError(f"{key} has no meaning here: {_NO_WATCHER[key]}; leave it out")


class FileSkills:
    """Implements `dsh.capabilities.skills.SkillProvider`."""

    def __init__(self, ctx: Context, config: Config, roots: Roots) -> None:
        self._ctx, self._config, self._roots = ctx, config, roots
        self._scanner = Scanner(
            ctx.logger.warning,
            max_bytes=config.max_skill_bytes,
            max_projects=config.watch_max_projects,
            settle_s=config.watch_stability_threshold_ms / 1000,
        )

    @property
    def name(self) -> str:
        return self._config.provider_name

    async def list(self, lookup: SkillLookup) -> SkillList:
        seen = None if self._config.watch else self._scanner.seen(lookup.cwd)
        if seen is not None:
            return seen
        fs = self._ctx.use(FS)
        roots = await self._roots.of(fs, lookup.cwd, lookup.signal)
        return await self._scanner.scan(fs, roots, lookup)

    async def get(self, skill: Skill, lookup: SkillLookup) -> LoadedSkill | None:
        try:
            return await self._scanner.load(self._ctx.use(FS), skill, lookup)
        except NoSkill as reason:
            raise SkillError(f"the skill in {skill.key} cannot be used: {reason}") from None
        except FsError as error:
            if error.fs_code == "FS_ABORTED":
                raise
            raise SkillError(f"the skill in {skill.key} cannot be read: {error.message}") from error


def roots_of(ctx: Context, config: Config) -> Roots:
    """What the row looks into, here."""
    launch = ctx.get(LAUNCH_ENVIRONMENT)
    home = ctx.get(HOME_PATH)

    def variable(name: str) -> str:
        """Of the person's own environment: a project's `.env` chooses no directories outside of it."""
        found = None if launch is None else launch.get_from(name, ("process", "user-env"))
        return "" if found is None else found.value.strip()

    fixed = [Root(_absolute(path), CUSTOM_RANK) for path in config.custom_skill_dirs]
    if config.include_default_roots:
        if home is not None:
            fixed.append(Root(str(home("skills")), HOME_RANK, frozenset({".system"})))
        agents = variable("DSH_AGENTS_HOME") or "~/.agents"
        fixed.append(Root(_absolute(f"{agents}/skills"), AGENTS_RANK))
    if bundled := config.bundled_skill_dir or variable("DSH_BUNDLED_SKILL_DIR"):
        fixed.append(Root(_absolute(bundled), BUNDLED_RANK))
    return Roots(tuple(fixed), config.include_default_roots)


def _absolute(path: str) -> str:
    return os.path.normpath(Path(os.path.expanduser(path)).absolute())  # noqa: PTH111 -- an unknown user is no error


def apply(ctx: Context, config: Config) -> None:
    ctx.use(SKILLS).add_provider(FileSkills(ctx, config, roots_of(ctx, config)))
