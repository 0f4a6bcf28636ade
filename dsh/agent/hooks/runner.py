"""Runs the hooks of one event: through the shell service, under the session's sandbox policy, logged.

Nothing that a hook does raises here. What goes wrong is told once on standard error, stands in the log, and
counts as the hook's `onFailure` says.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from dsh.agent.hooks.answer import Answer, read_answer
from dsh.agent.hooks.config import HookConfig
from dsh.agent.hooks.dialect import WITHOUT_MATCHER, Dialect, Point
from dsh.agent.hooks.file import Group, Handler, HookFile
from dsh.agent.hooks.outcome import NOTHING, Outcome, merged
from dsh.agent.hooks.payload import encoded
from dsh.capabilities.launch import APP_OUTPUT
from dsh.capabilities.sandbox import SANDBOX_POLICY
from dsh.capabilities.shell import SHELL, ShellRequest, ShellResult
from dsh.capabilities.shell_env import SHELL_ENV
from dsh.capabilities.terminal_text import readable
from dsh.kernel import CancelToken, Context
from dsh.kernel.foreign import bounded, contained, told
from dsh.session.log import Session

MAX_OUTPUT_BYTES = 1024 * 1024
"""Of each stream of a hook; a longer answer is none."""
MAX_NOTICE_CHARS = 1000
"""Of what a hook has for a person, in one line."""
UNLOADED = "hooks are unloaded"


class _Run(msgspec.Struct, frozen=True):
    """One hook that is to run, and its name in the log."""

    id: str
    group: Group
    handler: Handler


class _Ended(msgspec.Struct, frozen=True):
    """How it came out."""

    answer: Answer
    duration_ms: int
    exit_code: int | None = None
    stderr: str = ""


class HookRunner:
    """State: how many hooks were begun, those that run, what was told already."""

    def __init__(
        self,
        ctx: Context,
        dialect: Dialect,
        file: HookFile,
        config: HookConfig,
        *,
        command_of: Callable[[str, str], str] = lambda command, cwd: command,
        env_of: Callable[[str], Mapping[str, str]] = lambda cwd: {},
    ) -> None:
        """`command_of` and `env_of` make a command line and variables for a working directory."""
        self._ctx, self._dialect, self._file, self._config = ctx, dialect, file, config
        self._command_of, self._env_of = command_of, env_of
        self._shell = ctx.use(SHELL)
        self._count = 0
        self._told: set[str] = set()
        self._gone = CancelToken()
        self._running: set[asyncio.Future[Any]] = set()
        ctx.effect(lambda: self._end, f"running hooks of {dialect.owner}")

    def has(self, point: Point) -> bool:
        """Whether any hook waits for this point."""
        return point in self._file.groups

    async def run(
        self,
        point: Point,
        query: str,
        payload: Mapping[str, Any],
        *,
        session: Session,
        signal: CancelToken,
        turn: int | None = None,
    ) -> Outcome:
        """Run every hook of a point that matches, and merge what they answer.

        Args:
            query: what matchers are held against.
            turn: the open turn, in which the hooks are logged; None: they are not.
        """
        runs = [
            _Run(self._next_id(point), group, handler)
            for group in self._file.groups.get(point, ())
            if point in WITHOUT_MATCHER or group.matches(query)
            for handler in group.handlers
        ]
        if not runs:
            return NOTHING
        log = _Log(session, point, self._dialect, turn, self._config.stderr_summary_max_chars)
        stdin = encoded(self._dialect, payload)
        cwd = str(payload["cwd"])

        async def one(run: _Run) -> _Ended:
            return await self._run(point, run, stdin, cwd, session, signal)

        if self._config.concurrent:
            for run in runs:
                log.invoked(run)
            ended: Sequence[_Ended] = await asyncio.gather(*(one(run) for run in runs))
            for run, end in zip(runs, ended, strict=True):
                log.result(run, end)
        else:
            ended = []
            for run in runs:
                log.invoked(run)
                ended.append(await one(run))
                log.result(run, ended[-1])
        return merged([end.answer for end in ended])

    def warn(self, text: str) -> None:
        """Tell a person, once for each text."""
        if text not in self._told:
            self._told.add(text)
            self._ctx.logger.warning("%s", text)

    def notice(self, text: str) -> None:
        """Give a person the words of a hook."""
        output = self._ctx.get(APP_OUTPUT)
        line = _cut(" ".join(text.split()), MAX_NOTICE_CHARS)
        if output is not None:
            output.notice(line)
        else:
            self._ctx.logger.warning("%s", line)

    # -- one hook --------------------------------------------------------------------------------

    def _next_id(self, point: Point) -> str:
        self._count += 1
        return f"{self._dialect.name}:{point}:{self._count}"

    async def _run(
        self, point: Point, run: _Run, stdin: bytes, cwd: str, session: Session, signal: CancelToken
    ) -> _Ended:
        running: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._running.add(running)
        token = CancelToken.any_of(signal, self._gone)
        begun = time.monotonic()
        try:
            result = await self._shell.run(self._request(run.handler, stdin, cwd, session, token))
            answer, code, stderr = _read(point, result), result.exit_code, result.stderr.text.strip()
        except BaseException as raised:
            error = contained(raised, "a hook")
            answer, code, stderr = Answer(problem=f"it could not be run: {bounded(told(error))}"), None, ""
        finally:
            token.detach()
            self._running.discard(running)
            running.set_result(None)
        duration_ms = round((time.monotonic() - begun) * 1000)
        return _Ended(self._judged(run, answer, signal), duration_ms, code, stderr)

    def _request(
        self, handler: Handler, stdin: bytes, cwd: str, session: Session, token: CancelToken
    ) -> ShellRequest:
        policies, managed = self._ctx.get(SANDBOX_POLICY), self._ctx.get(SHELL_ENV)
        return ShellRequest(
            command=self._command_of(handler.command, cwd),
            workdir=cwd,
            timeout_ms=handler.timeout_ms or self._config.default_timeout_ms,
            env=self._env_of(cwd),
            dsh_env=managed.collect(session) if managed is not None else {},
            sandbox_policy=policies.resolve(session) if policies is not None else None,
            signal=token,
            stdin=stdin,
            max_output_bytes=MAX_OUTPUT_BYTES,
        )

    def _judged(self, run: _Run, answer: Answer, signal: CancelToken) -> Answer:
        """The answer with what a failure means, told to a person; and with its context cut to size."""
        handler, at_most = run.handler, self._config.max_context_chars
        if len(answer.context) > at_most:
            more = len(answer.context) - at_most
            cut = f"{answer.context[:at_most]}… [{more} more characters of this hook's context are left out]"
            answer = msgspec.structs.replace(answer, context=cut)
        if answer.message:
            self.notice(f"{self._dialect.owner}: {answer.message}")
        if not answer.problem or signal.cancelled:
            return answer
        is_closed = (handler.on_failure or self._config.on_failure) == "deny"
        name = f"{handler.where} ({_first_line(handler.command)})"
        meant = "that counts as its objection" if is_closed else "the run goes on without it"
        self.warn(f"hook {name} failed: {answer.problem}; {meant}")
        if not is_closed:
            return answer
        reason = f"the hook {name} failed, and its failure is an objection: {answer.problem}"
        if answer.decision == "deny":
            reason = answer.reason or reason
        return msgspec.structs.replace(answer, said="deny", reason=reason, failed_closed=True)

    # -- the end ---------------------------------------------------------------------------------

    async def _end(self) -> None:
        """Stop what runs and wait until it is gone."""
        self._gone.cancel(UNLOADED)
        if self._running:
            await asyncio.wait(tuple(self._running))


class _Log:
    """Writes the pairs `hook/invoked` and `hook/result` of one event, as long as its turn is open."""

    def __init__(
        self, session: Session, point: Point, dialect: Dialect, turn: int | None, max_chars: int
    ) -> None:
        self._session, self._point, self._dialect = session, point, dialect
        self._turn, self._max_chars = turn, max_chars
        self._open: set[str] = set()

    def invoked(self, run: _Run) -> None:
        data: dict[str, Any] = {"turn": self._turn, "point": self._point, "dialect": self._dialect.name}
        data["handlerId"] = run.id
        if run.group.matcher is not None and self._point not in WITHOUT_MATCHER:
            data["matcher"] = run.group.matcher
        if self._append("hook/invoked", data):
            self._open.add(run.id)

    def result(self, run: _Run, end: _Ended) -> None:
        if run.id not in self._open:
            return
        data: dict[str, Any] = {"turn": self._turn, "point": self._point, "handlerId": run.id}
        data["decision"] = end.answer.logged
        if end.exit_code is not None:
            data["exitCode"] = end.exit_code
        if summary := end.stderr or end.answer.problem:
            data["stderrSummary"] = _cut(summary, self._max_chars)
        data["durationMs"] = end.duration_ms
        self._append("hook/result", data)

    def _append(self, kind: str, data: dict[str, Any]) -> bool:
        if self._turn is None or self._session.open_turn != self._turn:
            return False
        self._session.append(kind, data)
        return True


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def _first_line(command: str) -> str:
    return _cut(command.strip().splitlines()[0], 80)


def _read(point: Point, result: ShellResult) -> Answer:
    if result.timed_out:
        return Answer(problem=f"it did not end within {result.timeout_ms / 1000:g} s")
    if result.aborted:
        return Answer(problem="it was stopped, because its turn or its row ended")
    if result.signal is not None:
        return Answer(problem=f"it was killed by {result.signal}")
    if result.exit_code is None:
        return Answer(problem="it could not be stopped and was left behind")
    stdout = readable(result.stdout.printed)
    if result.exit_code == 0:  # else its output counts for nothing
        if result.stdout.truncated:
            return Answer(problem=f"it printed more than {MAX_OUTPUT_BYTES} bytes")
        is_named = stdout != result.stdout.text  # for what it is: no text
        if is_named and not stdout.lstrip().startswith("{"):
            return Answer(problem="what it printed is no text")
    answer = read_answer(point, result.exit_code, stdout, result.stderr.text)
    if answer.problem and result.sandbox is not None and result.sandbox.denied:
        problem = f"{answer.problem} (the sandbox refused it something, mode {result.sandbox.mode})"
        answer = msgspec.structs.replace(answer, problem=problem)
    return answer
