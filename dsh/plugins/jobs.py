"""Row `jobs`: the registry of work that goes on in the background of agents.

A job belongs to the agent that started it and ends with it. Its end is settled once: what a producer says
later is not heard (`spec/capabilities-core.md` §16).
"""

import asyncio
import contextlib
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from dsh.agent.liveness import is_live
from dsh.capabilities.agent import AgentRef
from dsh.capabilities.bounds import Amount
from dsh.capabilities.jobs import (
    JOBS,
    JOBS_CHANGED,
    JOBS_SETTLED,
    MODEL,
    Job,
    JobError,
    JobHooks,
    JobOutcome,
    JobSpec,
    JobSubject,
)
from dsh.errors import KernelError
from dsh.kernel import Cancelled, CancelToken, Context, Effect, ScopeTarget, Service
from dsh.kernel.foreign import awaited, bounded, contained, told
from dsh.kernel.layer import Contributions
from dsh.session.log import now_ms
from dsh.unicode import valid

provide = [JOBS]

END_S = 10.0
"""How long the end of an owner waits for its jobs; what has not ended then is counted as failed."""
OWNER_ENDED = "its owner has ended"
ORPHANED = "it may be orphaned"
_KIND = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    max_concurrent_jobs_per_owner: Amount = 10
    """How many jobs of an agent may run at once."""
    max_finished_jobs_per_owner: Amount = 100
    """How many ended jobs of an agent stay readable; those that ended first go first."""


class _Record:
    """One job: what is told of it, its hooks, and who waits for it."""

    def __init__(self, job: Job, owner: AgentRef | None, hooks: JobHooks) -> None:
        self.job, self.owner, self.hooks = job, owner, hooks
        self.waiters: set[asyncio.Future[None]] = set()
        self.ended = asyncio.Event()
        self._readers: dict[str, Callable[[], str]] = {}

    def change(self, **fields: Any) -> None:
        self.job = msgspec.structs.replace(self.job, **fields)

    def read(self, reader: str) -> str:
        hooks = self.hooks
        if hooks.open_output is not None:
            if reader not in self._readers:
                self._readers[reader] = hooks.open_output()
            return self._readers[reader]()
        return hooks.final_output() if self.job.is_over and hooks.final_output is not None else ""


class _Owned:
    """The jobs of one owner, or those of nobody. `bond` ends them with their owner."""

    def __init__(self) -> None:
        self.live: dict[str, _Record] = {}
        self.over: deque[str] = deque()
        """Ids, in the order of their ends."""
        self.starting = 0
        self.is_closed = False
        self.bond: Effect | None = None
        self.none_starts = asyncio.Event()
        self.none_starts.set()


class JobRegistry(Service):
    """Implements `dsh.capabilities.jobs.Jobs`. State: the jobs in order of their start, and their owners."""

    provide = JOBS

    def __init__(self, ctx: Context, config: Config, *, end_s: float = END_S) -> None:
        self._config, self._end_s = config, end_s
        self._records: dict[str, _Record] = {}
        self._owners: dict[AgentRef | None, _Owned] = {}
        self._numbers: Counter[str] = Counter()
        self._controllers: Contributions[str] = Contributions()
        super().__init__(ctx)
        ctx.effect(lambda: self._close_all, "background jobs")

    def attach(self) -> Effect:
        scope = self.ctx.scope
        return self.ctx.effect(lambda: self._controllers.add(scope, "jobs"), "controller of jobs")

    # -- starting --------------------------------------------------------------------------------

    async def start(self, spec: JobSpec) -> Job:
        owned = self._room_for(spec)
        owned.starting += 1
        owned.none_starts.clear()
        try:
            hooks = await awaited(spec.run(), f"the start of a {spec.kind} job")
            if owned.is_closed:
                await self._undo_start(spec, hooks)
            return self._enter(spec, owned, hooks)
        finally:
            owned.starting -= 1
            if not owned.starting:
                owned.none_starts.set()

    def _room_for(self, spec: JobSpec) -> _Owned:
        """Who takes the job, if everything about it is right."""
        if not _KIND.fullmatch(spec.kind):
            raise JobError(f"{spec.kind!r:.60} is no kind of job: it takes a-z, 0-9 and single dashes")
        if not spec.label.strip():
            raise JobError("a job needs a label that says what it does")
        limit = spec.output_limit_bytes
        if limit is not None and limit < 1:
            raise JobError(f"the limit of a job's output is a positive number of bytes, not {limit}")
        if not self._controllers.view(spec.owner):
            raise JobError("no row looks after background jobs here; mount row tool-jobs")
        owned = self._owned_by(spec.owner)
        most = self._config.max_concurrent_jobs_per_owner
        if len(owned.live) + owned.starting >= most:
            raise JobError(f"{most} background jobs run already; wait for one, or end one with job_kill")
        return owned

    def _owned_by(self, owner: AgentRef | None) -> _Owned:
        owned = self._owners.get(owner)
        if owned is not None:
            if owned.is_closed:
                raise _ended(owner)
            return owned
        owned = _Owned()
        if owner is not None:
            if not is_live(self.owner_ctx, owner):
                raise _ended(owner)
            try:
                owned.bond = owner.ctx.effect(lambda: lambda: self._close(owner), "background jobs")
            except KernelError as error:
                raise _ended(owner) from error
        self._owners[owner] = owned
        return owned

    async def _undo_start(self, spec: JobSpec, hooks: JobHooks) -> None:
        """The owner has gone while the work began."""
        with contextlib.suppress(Exception):
            _cancel(hooks, OWNER_ENDED, f"a {spec.kind} job")
        end = self.owner_ctx.kernel.keep(_outcome(hooks, spec.kind), f"end of a {spec.kind} job")
        await asyncio.wait((end,), timeout=self._end_s)
        raise JobError(f"the {spec.kind} job was ended at once: its owner has ended")

    def _enter(self, spec: JobSpec, owned: _Owned, hooks: JobHooks) -> Job:
        self._numbers[spec.kind] += 1
        job = Job(
            id=f"{spec.kind}-{self._numbers[spec.kind]}",
            kind=spec.kind,
            label=valid(spec.label),
            status="running",
            started_at=now_ms(),
            owner_session=None if spec.owner is None else spec.owner.session.id,
            output_limit_bytes=spec.output_limit_bytes,
        )
        record = _Record(job, spec.owner, hooks)
        self._records[job.id] = owned.live[job.id] = record
        self.owner_ctx.kernel.keep(self._follow(record), f"job {job.id}")
        self._tell_change(record)
        return job

    # -- reading and ending ----------------------------------------------------------------------

    def list(self, caller: str | None) -> Sequence[Job]:
        return tuple(r.job for r in self._records.values() if _is_open(r.job, caller))

    def get(self, job_id: str, caller: str | None) -> Job:
        return self._find(job_id, caller).job

    def running(self) -> Sequence[Job]:
        return tuple(r.job for r in self._records.values() if not r.job.is_over)

    def read(self, job_id: str, caller: str | None, *, reader: str = MODEL) -> str:
        record = self._find(job_id, caller)
        is_over = record.job.is_over
        text = record.read(reader)
        if is_over and reader == MODEL:
            record.change(reported=True)
        return text

    def kill(self, job_id: str, caller: str | None, reason: str | None = None) -> Job:
        record = self._find(job_id, caller)
        if not record.job.is_over:
            _cancel(record.hooks, reason, f"job {job_id}")
            is_news = record.job.status != "stopping"
            record.change(status="stopping", reported=True)
            if is_news:
                self._tell_change(record)
        return record.job

    async def wait(
        self, job_id: str, ms: float, caller: str | None, *, signal: CancelToken | None = None
    ) -> Job:
        if not (ms > 0 and math.isfinite(ms)):
            raise JobError(f"the time to wait is a positive number of milliseconds, not {ms}")
        record = self._find(job_id, caller)
        if record.job.is_over:
            return record.job
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def abort(reason: object) -> None:
            if not waiter.done():
                record.waiters.discard(waiter)
                waiter.set_exception(Cancelled(reason))

        record.waiters.add(waiter)
        undo = None if signal is None else signal.on_cancel(abort)
        try:
            done, _ = await asyncio.wait((waiter,), timeout=ms / 1000)
            if done:
                waiter.result()
        finally:
            record.waiters.discard(waiter)
            if undo is not None:
                undo()
        return record.job

    def _find(self, job_id: str, caller: str | None) -> _Record:
        if not job_id.strip():
            raise JobError("the id of a job is blank")
        record = self._records.get(job_id)
        if record is None or not _is_open(record.job, caller):
            raise JobError(f"there is no job {job_id!r:.60}; job_list shows those there are")
        return record

    # -- the end ---------------------------------------------------------------------------------

    async def _follow(self, record: _Record) -> None:
        outcome = await _outcome(record.hooks, record.job.id)
        self._settle(record, outcome)

    def _settle(self, record: _Record, outcome: JobOutcome) -> None:
        """The first outcome counts. Who waits learns of it, so nobody else needs to be told."""
        if record.job.is_over:
            return
        record.change(
            status=outcome.status,
            detail=None if outcome.detail is None else bounded(outcome.detail),
            finished_at=now_ms(),
            reported=record.job.reported or bool(record.waiters),
        )
        record.ended.set()
        waiters, record.waiters = record.waiters, set()
        for waiter in waiters:
            waiter.set_result(None)
        self._forget_oldest(record)
        self._tell_change(record)
        subject = JobSubject(record.job, record.owner)
        self.owner_ctx.emit(JOBS_SETTLED, subject, subject=ScopeTarget(record.owner))

    def _tell_change(self, record: _Record) -> None:
        subject = JobSubject(record.job, record.owner)
        self.owner_ctx.emit(JOBS_CHANGED, subject, subject=ScopeTarget(record.owner))

    def _forget_oldest(self, record: _Record) -> None:
        """The job is over: it takes the place of the one that ended first, if too many are kept."""
        owned = self._owners[record.owner]
        del owned.live[record.job.id]
        owned.over.append(record.job.id)
        if len(owned.over) > self._config.max_finished_jobs_per_owner:
            del self._records[owned.over.popleft()]

    async def _close_all(self) -> None:
        bonds = [owned.bond for owned in self._owners.values() if owned.bond is not None]
        await asyncio.gather(*map(self._close, tuple(self._owners)))
        for bond in bonds:
            bond.release()

    async def _close(self, owner: AgentRef | None) -> None:
        """End the jobs of an owner and forget them. None of it is a piece of news to anybody."""
        owned = self._owners.get(owner)
        if owned is None:
            return
        owned.is_closed = True
        live = tuple(owned.live.values())
        for record in live:
            record.change(reported=True)
            try:
                _cancel(record.hooks, OWNER_ENDED, f"job {record.job.id}")
            except Exception as error:
                detail = f"it could not be ended ({told(error)}); {ORPHANED}"
                self._settle(record, JobOutcome("failed", detail))
        ends = [asyncio.ensure_future(record.ended.wait()) for record in live]
        ends.append(asyncio.ensure_future(owned.none_starts.wait()))
        try:
            await asyncio.wait(ends, timeout=self._end_s)
        finally:
            for end in ends:
                end.cancel()
        for record in live:
            self._settle(record, JobOutcome("failed", f"it did not end within {self._end_s:g} s; {ORPHANED}"))
        if self._owners.get(owner) is owned:
            del self._owners[owner]
            for job_id in owned.over:
                del self._records[job_id]


async def _outcome(hooks: JobHooks, name: str) -> JobOutcome:
    """What comes of the work; whatever its producer raises is a failure of the job."""
    try:
        outcome: object = await awaited(hooks.done, f"job {name}")
    except Exception as error:
        return JobOutcome("failed", told(error))
    if not isinstance(outcome, JobOutcome):
        return JobOutcome("failed", f"its producer answered {type(outcome).__name__} for an outcome")
    return outcome


def _cancel(hooks: JobHooks, reason: str | None, name: str) -> None:
    try:
        hooks.cancel(reason)
    except BaseException as raised:
        raise contained(raised, f"the cancel of {name}")  # noqa: B904 -- the same, or made of it


def _is_open(job: Job, caller: str | None) -> bool:
    return job.owner_session is None or job.owner_session == caller


def _ended(owner: AgentRef | None) -> JobError:
    who = "row jobs" if owner is None else f"agent {owner.id}"
    return JobError(f"{who} has ended, it cannot start a job")


def apply(ctx: Context, config: Config) -> None:
    JobRegistry(ctx, config)
