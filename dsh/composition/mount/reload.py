"""Keeps the mounted rows true to the user's patch files while the program runs.

Watched are the profile's patch, the home's patch and the files of includes. What is fixed at the start
(`--patch` files, the profile's manifest) is watched too, but only to say so. An edit is applied as a whole or
not at all; edits that come while one is being applied make one more round (`spec/composition.md` §8).
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from dsh.composition.compose import Composition, recompose
from dsh.composition.mount.entry import Entry
from dsh.composition.mount.event import CONFIG_UPDATE_FAILED, UpdateFailed
from dsh.composition.mount.loader import Loader
from dsh.composition.mount.transaction import Refused, StageError
from dsh.composition.mount.watch import POLL_S, Watch
from dsh.composition.mount.wording import with_hint
from dsh.composition.patch import Layer
from dsh.composition.profile import user_files
from dsh.composition.same import same
from dsh.composition.text.source import read_bytes
from dsh.errors import DshError
from dsh.kernel import FIBER_STATUS, FiberState
from dsh.kernel.foreign import contained
from dsh.kernel.internal import StatusChange

SHOWN = 8
"""How many changed rows are named."""
QUIET_S = 0.1
"""How long files must say the same before they count: some editors empty a file first, or take it away."""
MAX_LOOKS = 20
"""How often they are looked at for that; one that never comes to rest is taken as it is then."""
logger = logging.getLogger("dsh.reload")


class Reload:
    """Watches the files and edits the tree. Holds what the files said when they were last tried."""

    def __init__(
        self,
        loader: Loader,
        home: Path,
        *,
        say: Callable[[str], None],
        fixed: Iterable[Path] = (),
        environ: Mapping[str, str] | None = None,
        poll_s: float = POLL_S,
        quiet_s: float = QUIET_S,
        guarded: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """
        Args:
            say: prints one line or more for the person at the terminal.
            fixed: files whose changes take effect with the next start.
            environ: the inherited environment; the process's by default.
            guarded: makes what watches over one edit.
        """
        assert loader.composition is not None
        self._loader, self._home, self._say, self._environ = loader, home, say, environ
        self._quiet_s, self._guarded = quiet_s, guarded
        self._patches = [path for _, path in user_files(loader.composition.profile, home)]
        self._fixed = list(fixed)
        self._dirty: set[Path] = set(self._patches)
        self._woken = asyncio.Event()
        self._tried: dict[Path, bytes | str | None] = {}
        self._told = {str(warning) for warning in loader.composition.warnings}
        self._watch = Watch([*self._live(), *self._fixed], self.touch, poll_s=poll_s)

    async def run(self) -> None:
        """Apply what was edited since the start, then every further edit, until cancelled."""
        watching = asyncio.ensure_future(self._watch.run())
        try:
            while True:
                await self.refresh()
                await self._woken.wait()
        finally:
            watching.cancel()
            await asyncio.wait((watching,))

    def touch(self, paths: Iterable[Path]) -> None:
        """These files may have changed."""
        for path in paths:
            if path in self._fixed:
                self._say(f"dsh: {path} has changed; it takes effect with the next start")
            else:
                self._dirty.add(path)
                self._woken.set()

    async def refresh(self) -> None:
        """Apply what is new in the files, until nothing is. Never raises for what is wrong there."""
        while self._dirty:
            now = await self._at_rest()
            paths, self._dirty = self._dirty, set()
            self._woken.clear()
            changed = [path for path in now if path in paths and now[path] != self._tried.get(path, b"")]
            self._tried.update((path, now[path]) for path in changed)
            if changed:
                with self._guarded():
                    await self._apply(changed)
                self._watch.watch([*self._live(), *self._fixed])

    async def _at_rest(self) -> dict[Path, bytes | str | None]:
        """What the files hold, once nobody is in the middle of writing them."""
        now = {path: _content(path) for path in self._live()}
        for _ in range(MAX_LOOKS):
            if all(now[path] == self._tried.get(path, b"") for path in now):
                break
            before = now
            await asyncio.sleep(self._quiet_s)
            if (now := {path: _content(path) for path in before}) == before:
                break
        return now

    def _live(self) -> list[Path]:
        includes = [entry.included.path for entry in self._loader.entries if entry.included is not None]
        return [*self._patches, *includes]

    async def _apply(self, paths: list[Path]) -> None:
        names = ", ".join(map(str, paths))
        before = self._loader.composition
        assert before is not None
        paused = _Paused(self._loader)
        try:
            composition = recompose(before, self._home, environ=self._environ)
            self._warn(composition)
            names = _names(before, composition, paths) or names
            with paused:
                stale = frozenset(paths).difference(self._patches)
                ids = await self._loader.reload(composition, stale=stale)
        except Refused as error:
            self._say(f"dsh: {names}: not applied: {error.message}; it takes effect with the next start")
        except BaseException as raised:
            failure = contained(raised, "the reload")
            if self._loader.owner_ctx.closed:
                return
            self._say(f"dsh: {names}: not applied, {paused.outcome(failure)}: {_text(failure)}")
            await self._fail(paths, failure)
        else:
            if ids:
                self._say(f"dsh: {names}: applied; changed rows: {_listed(ids)}")

    def _warn(self, composition: Composition) -> None:
        for warning in map(str, composition.warnings):
            if warning not in self._told:
                self._told.add(warning)
                self._say(f"dsh: {warning}")

    async def _fail(self, paths: list[Path], error: Exception) -> None:
        if isinstance(error, DshError):
            error.is_told = True
        for path in paths:
            try:
                await self._loader.owner_ctx.parallel(CONFIG_UPDATE_FAILED, UpdateFailed(str(path), error))
            except Exception as failure:
                logger.error("listeners of %s failed: %s", CONFIG_UPDATE_FAILED.name, failure)


class _Paused:
    """Notes which rows stop while it is entered: an edit that is put back may have restarted some of them."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._ids: dict[str, None] = {}

    def __enter__(self) -> None:
        self._listening = self._loader.owner_ctx.on(FIBER_STATUS, self._note)

    def __exit__(self, *_: object) -> None:
        self._listening()

    def _note(self, change: StatusChange) -> None:
        if change.old_state is FiberState.ACTIVE and isinstance(entry := change.fiber.entry, Entry):
            self._ids[entry.id] = None

    def outcome(self, error: Exception) -> str:
        """What a failed edit has left behind: as it was, the same after restarts, or not all of it."""
        if isinstance(error, StageError) and error.stage == "rollback":
            return "and not all rows could be put back"
        restarted = [entry.id for entry in self._loader.entries if entry.id in self._ids and entry.is_active]
        if restarted:
            return f"the rows are as before, but restarted: {_listed(restarted)}"
        return "the rows run on as before"


def _listed(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return f"{', '.join(ids[:SHOWN])}{more}"


def _names(before: Composition, after: Composition, paths: list[Path]) -> str:
    """Those of the files that say something else now."""
    old, new = ({layer.path: layer.patches for layer in made.layers} for made in (before, after))
    return ", ".join(str(path) for path in paths if not same(old.get(path, []), new.get(path, [])))


def _text(error: Exception) -> str:
    if isinstance(error, DshError):
        return f"{error.message} ({error.hint})" if error.hint else error.message
    return with_hint(error)


def _content(path: Path) -> bytes | str | None:
    """What a file holds; None for one that is absent, a text for one that cannot be read."""
    try:
        return read_bytes(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return str(error)


def fixed_files(layers: list[Layer], manifest: Path) -> list[Path]:
    """The files of the user that are read at the start only: each `--patch` and the profile's manifest."""
    patches = [layer.path for layer in layers if layer.kind == "patch" and layer.path is not None]
    return [Path(os.path.abspath(path)) for path in (*patches, manifest)]  # noqa: PTH100 -- links stay
