"""Boots a profile and stays until its app asks for the end.

Environment layers, composition, root context, launch services, rows, audit, then the app may start
(`spec/composition.md` §6). Every way out goes through one `Shutdown`.
"""

import asyncio
import gc
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from dsh.capabilities.headless import requested_directory
from dsh.capabilities.launch import (
    APP_EXIT,
    APP_INTERRUPT,
    APP_OUTPUT,
    BOOT,
    CMDLINE_ARGS,
    HOME_PATH,
    LAUNCH_ENVIRONMENT,
    Interrupt,
    LaunchEnvironment,
)
from dsh.capabilities.process_group import kill_all
from dsh.cli import console
from dsh.cli.argv import Invocation
from dsh.cli.children import end_children, kill_children
from dsh.cli.directory import enter
from dsh.cli.loop import run_to_end
from dsh.cli.notice import notices
from dsh.cli.process import EXIT_CODES, Watchdog
from dsh.cli.report import describe, report
from dsh.cli.shutdown import DISPOSAL_S, Shutdown
from dsh.cli.stream import Output, claim_output
from dsh.composition.compose import Composition, compose
from dsh.composition.environment import export, load_environment
from dsh.composition.home import HomePaths, home_path
from dsh.composition.mount.loader import Facts, Loader, start_bound
from dsh.composition.mount.wording import described
from dsh.composition.profile import PROFILE_FILE, profile_folder
from dsh.errors import CompositionError, DshError
from dsh.kernel import Context
from dsh.kernel.foreign import contained

CUT = "its turn has no end in the log; opening the session repairs it"
RELEASE_S = 2.0
"""How long undoing the tree may take after background work died."""
BLOCKED_S = 2.0
"""How much longer than its bound a start or an end may take where the loop cannot even say so."""
WATCH_AFTER_S = 1.0
"""How old a run is before its files are watched: short ones do not pay for it."""
CAUSES = {
    130: Interrupt("SIGINT", 130, {"kind": "user"}),
    143: Interrupt("SIGTERM", 143, {"kind": "hook", "reason": "signal:SIGTERM"}),
}


class Embedding(NamedTuple):
    """What a command of the launcher's own changes about the profile that it boots."""

    patch: Path
    """A shipped layer over all others; what it misses is nothing to tell."""
    provide: Callable[[Context], None]
    """Puts services into the root before any row is mounted."""
    cwd: str
    """What expressions read as `cwd`."""
    notices: Callable[[Context, LaunchEnvironment, Composition], list[str]]
    """What is told of what the run does without, in place of the usual lines."""
    require: Callable[[Context], None]
    """Raises a `CompositionError` where the mounted rows do not suit the command."""


def boot(invocation: Invocation, watchdog: Watchdog, embedding: Embedding | None = None) -> int:
    """Run a profile to its end; answers the exit code.

    Args:
        embedding: for a command that is an app of its own.

    Raises:
        UsageError: the directory of `-C` among the app's arguments cannot be entered.
        CompositionError: what is wrong before anything is mounted.
    """
    output = claim_output()
    watchdog.before_end = _kill_everything
    console.install()
    directory = requested_directory(invocation.rest)
    if directory is not None:
        enter(directory)
    home = home_path()
    environment, warnings = load_environment(Path.cwd(), home, os.environ)
    own = [embedding.patch] if embedding is not None else []
    composition = compose(invocation.profile, [*map(Path, invocation.patches), *own], home)
    missed = [w for w in composition.warnings if w.label not in map(str, own)]
    for warning in (*warnings, *missed):
        output.notice(f"dsh: {warning}")
    if invocation.locked is not None:
        from dsh.composition.lock.document import require_locked

        require_locked(composition, home, Path(invocation.locked))
    export(environment, os.environ)
    cwd = str(Path.cwd()) if embedding is None else embedding.cwd
    facts = Facts(home, invocation.profile, cwd, environment.mapping())
    run = _Run(invocation, composition, facts, environment, output, watchdog, embedding)
    try:
        code = run_to_end(run.live(), run.died)
    except asyncio.CancelledError:
        code = report(DshError("a plugin has cancelled the tasks of the program itself", hint=CUT))
        kill_all()
    except BaseException as error:
        code = report(error)
        kill_all()
    watchdog.leave(code, lambda: _end_children(output))
    return code


def _kill_everything() -> None:
    kill_all()
    kill_children()


def _end_children(output: Output) -> None:
    for name in end_children():
        output.notice(f"dsh: a plugin left {name} running; it was ended")


class _Arguments:
    """Implements `CmdlineArgs`; the words are data for expressions as well."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words

    def get(self) -> tuple[str, ...]:
        return self._words

    def expression_data(self) -> list[str]:
        return list(self._words)


class _Gate:
    """Implements `Boot`: opens once the audit has passed."""

    def __init__(self) -> None:
        self._passed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        return self._passed.is_set()

    def open(self) -> None:
        self._passed.set()

    async def ready(self) -> None:
        await self._passed.wait()


class _Run:
    """One life of the tree: holds the root context, the gate and the shutdown."""

    def __init__(
        self,
        invocation: Invocation,
        composition: Composition,
        facts: Facts,
        environment: LaunchEnvironment,
        output: Output,
        watchdog: Watchdog,
        embedding: Embedding | None = None,
    ) -> None:
        self._embedding = embedding
        self._invocation, self._composition, self._facts = invocation, composition, facts
        self._environment, self._output, self._watchdog = environment, output, watchdog
        self._loader: Loader | None = None

    async def live(self) -> int:
        """Mount, audit, let the app run, dispose."""
        self._root = Context()
        self._gate = _Gate()
        self._shutdown = Shutdown(self._root.dispose, force=self._watchdog.force)
        self._loop = loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._unawaited)
        self._root.kernel.on_failure = self._failed
        self._watchdog.attach(loop, self._signalled)
        self._provide()
        mounting = asyncio.ensure_future(self._mount())
        ending = asyncio.ensure_future(self._shutdown.requested())
        await asyncio.wait((mounting, ending), return_when=asyncio.FIRST_COMPLETED)
        code = await self._shutdown.requested()
        with self._guarded(DISPOSAL_S, code):
            await self._shutdown.run()
            mounting.cancel()
            await asyncio.wait((mounting,), timeout=RELEASE_S)
        self._watchdog.drain(code)
        return code

    def _provide(self) -> None:
        root = self._root
        root.provide(LAUNCH_ENVIRONMENT, self._environment)
        root.provide(CMDLINE_ARGS, _Arguments(self._invocation.rest))
        root.provide(APP_EXIT, self._shutdown.request)
        root.provide(APP_OUTPUT, self._output)
        root.provide(HOME_PATH, HomePaths(self._facts.home))
        root.provide(BOOT, self._gate)
        if self._embedding is not None:
            self._embedding.provide(root)

    async def _mount(self) -> None:
        """Mount and judge the rows; what is wrong ends the run, unless the app has asked for the end."""
        try:
            loader = self._loader = Loader(self._root, self._facts)
            loader.bound_s, loader.require_more = start_bound(os.environ), self._require_app
            with self._guarded(loader.bound_s, CompositionError.exit_code):
                await loader.load(self._composition)
            if self._shutdown.pending:
                return
            loader.require_active()
        except BaseException as raised:
            error = contained(raised, "the start")
            if not self._shutdown.pending:
                self._shutdown.request(report(error))
            return
        gc.freeze()
        gc.enable()
        self._watch_files(loader)
        told = notices if self._embedding is None else self._embedding.notices
        for text in told(self._root, self._environment, self._composition):
            self._output.notice(text)
        self._gate.open()

    def _guarded(self, bound_s: float, code: int) -> AbstractContextManager[None]:
        """End the process, with the row at fault, when code blocks the loop for longer than this may take."""

        def say() -> None:  # in the watchdog's thread
            if self._loader is not None:
                self._output.notice(f"dsh: {self._loader.blocked_by(self._loop, bound_s)}")

        return self._watchdog.guarded(bound_s + BLOCKED_S, code, say)

    def _watch_files(self, loader: Loader) -> None:
        """Once the run is not short any more, keep the rows true to the user's patch files."""
        if self._invocation.locked is not None or self._embedding is not None:
            return

        async def follow() -> None:
            await asyncio.sleep(WATCH_AFTER_S)
            from dsh.composition.mount.reload import Reload, fixed_files

            manifest = profile_folder(self._facts.home, self._facts.profile) / PROFILE_FILE
            fixed = fixed_files(self._composition.layers, manifest)
            reload = Reload(
                loader,
                self._facts.home,
                say=self._output.notice,
                fixed=fixed,
                guarded=lambda: self._guarded(loader.bound_s, CompositionError.exit_code),
            )
            try:
                await reload.run()
            except Exception as error:
                self._output.notice(f"dsh: edits are not followed any more: {describe(error)}")

        self._root.spawn(follow(), "live reload")

    def _require_app(self) -> None:
        """An app asks for the end itself; who only reads its arguments and publishes them is none."""
        enders = self._root.kernel.injectors.get(APP_EXIT.name, ())
        if all(CMDLINE_ARGS.name in f.inject and f.runtime and f.runtime.provides for f in enders):
            raise CompositionError(
                f"profile {self._invocation.profile!r} has no app: nothing in it would do anything or end",
                hint="add a bundle that brings one, for instance headless",
            )
        if self._embedding is not None:
            self._embedding.require(self._root)

    def _signalled(self, number: int) -> None:
        code = EXIT_CODES[number]
        if not self._shutdown.pending and self._gate.is_open:
            try:
                if self._root.bail(APP_INTERRUPT, CAUSES[code]):
                    return
            except Exception as error:
                report(error)
        self._shutdown.interrupt(code)

    def _failed(self, error: BaseException, label: str) -> None:
        """Background work of the tree died, which the kernel has reported: the run cannot be trusted."""
        self._shutdown.request(1, bound_s=RELEASE_S)

    def _unawaited(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(error := context.get("exception"), BaseException):
            self.died(error)

    def died(self, error: BaseException) -> None:
        """A task or callback that nobody waits for has failed: the run cannot be trusted either."""
        if not self._shutdown.pending:
            self._output.notice(f"dsh: fatal load failure: {described(error)}")
            self._shutdown.request(1, bound_s=RELEASE_S)
