"""Row `subprocess`: starts processes in groups of their own and leaves none behind.

A child gets the null device or given bytes as stdin, real pipes for its output, an environment without
secrets, and no terminal. Its output is read until it exits, not until the pipes close, since a child in
the background may hold them for ever (`spec/capabilities-core.md` §8).
"""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from dsh.capabilities import guard
from dsh.capabilities.bounds import MAX_TIMER_MS
from dsh.capabilities.subprocess import SUBPROCESS, SpawnError, SpawnSpec, Terminal, TerminalSpec
from dsh.kernel import CancelToken, Context, Service
from dsh.plugins.subprocess.child import Child
from dsh.plugins.subprocess.collector import SpillFolder
from dsh.plugins.subprocess.process import Process

__all__ = ["Config", "apply", "provide"]

provide = [SUBPROCESS]

SECRET_NAME = re.compile(
    r"(?<!MON)KEY(?!BOARD)|PASSW|PASSPHRASE|SECRET|TOKEN|CREDENTIAL|_(?:PASS|PWD|PAT|AUTH)$", re.IGNORECASE
)


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the `subprocess` row. Patterns are those of `fnmatch`, and heed upper and lower case."""

    keep_env: list[str] = []
    """Variables that commands see though their names look like a secret's. It does not show what `hideEnv`
    names, the key of a model provider, or `DSH_*`.
    """
    hide_env: list[str] = []
    """More variables that commands do not see."""


def scrubbed(
    environ: Mapping[str, str], hidden: frozenset[str] = frozenset(), config: Config | None = None
) -> dict[str, str]:
    """The environment a child may see: without secrets by name, without `DSH_*`."""
    config = config or Config()

    def is_shown(name: str) -> bool:
        if name in hidden or name.upper().startswith("DSH_") or _matches(name, config.hide_env):
            return False
        return not SECRET_NAME.search(name) or _matches(name, config.keep_env)

    return {name: value for name, value in environ.items() if is_shown(name)}


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


class SubprocessService(Service):
    """Starts processes; owns every group until it is seen gone."""

    provide = SUBPROCESS

    def __init__(self, ctx: Context, config: Config) -> None:
        super().__init__(ctx)
        self._config = config
        self._folder = SpillFolder()
        self._children: set[Child] = set()
        self._hidden: dict[str, int] = {}
        self._is_closed = False
        _hear_of_children()
        ctx.effect(lambda: self._folder.remove, "spill folder")
        ctx.effect(lambda: self._end_all, "running processes")

    def hide(self, name: str) -> None:
        def undo() -> None:
            self._hidden[name] -= 1

        self._hidden[name] = self._hidden.get(name, 0) + 1
        self.ctx.effect(lambda: undo, f"hidden variable {name}")

    def spawn(self, spec: SpawnSpec) -> Process:
        self._check(spec, spec.signal)
        process = Process(spec, self._environment(spec.env), self._folder)
        self._children.add(process)
        return process

    def spawn_terminal(self, spec: TerminalSpec) -> Terminal:
        from dsh.plugins.subprocess.terminal import TerminalChild  # few need it

        self._check(spec, None)
        child = TerminalChild(spec, self._environment(spec.env), self._folder)
        self._children.add(child)
        return child

    def _check(self, spec: SpawnSpec | TerminalSpec, token: CancelToken | None) -> None:
        if not spec.argv or not spec.argv[0]:
            raise SpawnError("cannot start a process without a program name")
        if not 0 < spec.grace_ms <= MAX_TIMER_MS:
            raise SpawnError(f"grace_ms must be between 1 and {MAX_TIMER_MS}, got {spec.grace_ms}")
        if self._is_closed or (token is not None and token.cancelled):
            why = "the run is ending" if self._is_closed else "it was cancelled before"
            raise SpawnError(f"cannot start {spec.argv[0]!r}: {why}")
        if not Path(spec.cwd).is_dir():
            raise SpawnError(f"cannot start {spec.argv[0]!r}: {spec.cwd!r} is not a directory")
        self._children = {child for child in self._children if not child.is_over}
        guard.start()

    def _environment(self, explicit: Mapping[str, str | None]) -> dict[str, str]:
        env = scrubbed(
            os.environ, frozenset(name for name, count in self._hidden.items() if count), self._config
        )
        for name, value in explicit.items():
            if value is None:
                env.pop(name, None)
            else:
                env[name] = value
        return env

    async def _end_all(self) -> None:
        self._is_closed = True
        running = tuple(self._children)
        for process in running:
            process.terminate()
        ended = await asyncio.gather(*(p.wait_for_exit() for p in running), return_exceptions=True)
        for process, outcome in zip(running, ended, strict=True):
            if outcome is not True:
                why = f": {outcome}" if isinstance(outcome, BaseException) else ""
                self.owner_ctx.logger.error("process group %d could not be ended%s", process.pid, why)
            process.close()
        self._children.clear()


def _hear_of_children() -> None:
    """Undo an inherited `SIGCHLD` of "ignore": under it the system drops the exit codes of all children."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        with contextlib.suppress(ValueError):  # not the main thread: whoever owns it decides
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def apply(ctx: Context, config: Config) -> None:
    SubprocessService(ctx, config)
