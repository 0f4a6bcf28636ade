"""Row `session-composition`: writes into the log of each session which composition it runs on.

`composition/mounted` says it by its digest, once before the first turn and again where an edit of the running
composition has changed it. The event is ignorable: other readers of the log pass over it. A session in which
nothing runs gets none.
"""

from collections.abc import Awaitable, Callable

import msgspec

from dsh.agent.contract import AGENT_PRE_STEP, AGENT_STATUS, PreStep, PreStepDecision, StatusChanged
from dsh.capabilities.launch import HOME_PATH
from dsh.composition.compose import Composition
from dsh.composition.home import home_path
from dsh.composition.mount.loader import LOADER
from dsh.errors import DshError
from dsh.kernel import Context, ServiceKey
from dsh.session.log import Session

inject = [LOADER]
RECORDER: ServiceKey["Recorder"] = ServiceKey("sessionComposition")
"""Provided so that there is one: a second would find everything written."""

provide = [RECORDER]

MOUNTED = "composition/mounted"


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The row has no options."""


class Recorder:
    """Appends the event. Holds what it last said of the composition that is mounted."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._of: Composition | None = None
        """The composition that `_data` is about; each edit makes another one."""
        self._data: dict[str, str] | None = None

    def status_changed(self, change: StatusChanged) -> None:
        """An agent begins to run: its turn has not been logged yet."""
        if change.status == "running":
            self.record(change.agent.session)

    def before_step(
        self, step: PreStep, following: Callable[[], Awaitable[PreStepDecision]]
    ) -> Awaitable[PreStepDecision]:
        """The composition may have been edited since the turn began."""
        self.record(step.agent.session)
        return following()

    def record(self, session: Session) -> None:
        data = self._mounted()
        if data is None:
            return
        last = session.last(MOUNTED)
        if last is None or last.data != data:
            session.append(MOUNTED, data, ignorable=True)

    def _mounted(self) -> dict[str, str] | None:
        """The payload for what is mounted now; None if that cannot be told."""
        composition = self._ctx.use(LOADER).composition
        if composition is not None and composition is not self._of:
            self._of, self._data = composition, self._told(composition)
        return self._data

    def _told(self, composition: Composition) -> dict[str, str] | None:
        from dsh.composition.lock.digest import ALGORITHM, contents_of, digest_of

        home = self._ctx.get(HOME_PATH)
        entries = self._ctx.use(LOADER).entries
        read = {id(entry.row): [child.row for child in entry.children] for entry in entries if entry.children}
        try:
            contents = contents_of(composition, home() if home is not None else home_path(), read)
        except DshError as error:
            self._ctx.logger.warning("the composition is not recorded in the log: %s", error.message)
            return None
        return {
            "digest": digest_of(contents),
            "algorithm": ALGORITHM,
            "dsh": contents.dsh,
            "profile": contents.profile,
        }


def apply(ctx: Context, config: Config) -> None:
    recorder = Recorder(ctx)
    ctx.provide(RECORDER, recorder)
    ctx.on(AGENT_STATUS, recorder.status_changed, global_=True)
    ctx.on(AGENT_PRE_STEP, recorder.before_step, global_=True)
