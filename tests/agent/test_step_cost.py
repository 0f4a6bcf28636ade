"""What a step costs does not depend on how long the log is: counted, which gives the same every time.

Instructions of Python are counted, not those inside one: copying or comparing a list of pointers is one.
"""

import sys
from collections.abc import Sequence
from itertools import pairwise
from types import FrameType, ModuleType
from typing import Any

import pytest

from dsh.plugins import session_projection, session_stats, token_meter
from dsh.session.log import Session
from dsh.session.store import SESSION_EVENT, Appended
from tests.agent.kit import Loop, Reply, calls, ends, loop, text
from tests.agent.recorder import record
from tests.aio import aio

EARLY, LATE = 20, 400
MARGIN = 0.02
"""Digits of numbers, a rehash of a table: nothing that grows."""

Rows = Sequence[tuple[ModuleType, dict[str, Any]]]
METERED: Rows = ((session_projection, {}), (session_stats, {}), (token_meter, {}))


class Counter:
    """Counts the instructions of Python that run between two moments."""

    def __init__(self) -> None:
        self.count = 0
        self._before: Any = None

    def start(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._enter)

    def stop(self) -> None:
        sys.settrace(self._before)

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, arg: Any) -> Any:
        self.count += event == "opcode"
        return self._step


class Steps:
    """Counts the instructions of two steps of a session, an early and a late one."""

    def __init__(self, it: Loop) -> None:
        self.early, self.late = Counter(), Counter()
        self._seen = 0
        it.ctx.on(SESSION_EVENT, self._observe)

    def _observe(self, appended: Appended) -> None:
        if appended.event.type != "step/start":
            return
        self._seen += 1
        for counter, at in ((self.early, EARLY), (self.late, LATE)):
            if self._seen == at:
                counter.start()
            elif self._seen == at + 1:
                counter.stop()

    def check(self) -> None:
        few, many = self.early.count, self.late.count
        assert few > 1000
        assert abs(many - few) <= MARGIN * few, f"step {LATE} takes {many} instructions, step {EARLY} {few}"


def script(words: str) -> list[Reply]:
    return [*(calls((f"c{n:04}", "look", "{}")) for n in range(LATE + 2)), text(words)]


async def look(args: Any, exec: Any) -> str:  # noqa: A002
    return "looked"


@pytest.mark.parametrize("rows", [(), METERED], ids=["alone", "metered"])
@aio
async def test_a_late_step_costs_what_an_early_one_does(rows: Rows) -> None:
    async with loop(*script("done"), rows=rows) as it:
        it.tool("look", look)
        agent = await it.agent()
        steps = Steps(it)
        await it.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "completed"}]
        steps.check()


@aio
async def test_so_it_is_where_the_history_has_to_be_mended() -> None:
    """A log that lost a result long ago is mended in every request, at no cost for each."""
    async with loop(calls(("lost", "look", "{}")), text("one"), *script("done")) as it:
        it.tool("look", look)
        agent = await it.agent()
        await it.prompt(agent, "a")
        nodes = agent.session.surface_nodes
        surface = {"op": "replace", "start": nodes[0], "end": nodes[1]}
        short = {"id": "u", "role": "user", "content": [], "source": {"kind": "user"}}
        agent.session.append("user/message", short, surface=surface, sources=nodes[:2])
        steps = Steps(it)
        await it.prompt(agent, "go")
        steps.check()


@aio
async def test_a_log_is_not_looked_through_for_a_request() -> None:
    async with loop(*script("done")) as it:
        it.tool("look", look)
        agent = await it.agent()
        looked: list[str] = []
        _watch(agent.session, looked)
        await it.prompt(agent, "go")
        assert looked == []


def _watch(session: Session, looked: list[str]) -> None:
    """Note every look at the whole log."""
    held: Any = session
    log = held._log

    class Watched:
        """The entries of the log."""

        def __getattr__(self, name: str) -> Any:
            if name in ("walk", "copy", "select", "events"):
                looked.append(name)
            return getattr(log, name)

        def __setattr__(self, name: str, value: Any) -> None:
            setattr(log, name, value)

    held._log = Watched()


@aio
async def test_the_text_of_a_request_begins_with_that_of_the_one_before() -> None:
    """To the byte, in one session, as the prompt cache of a provider needs it (LS-11)."""
    replies = [calls((f"c{n}", "look", "{}")) for n in range(4)]
    async with loop(*replies, text(" "), text("one"), text("two")) as it:
        it.tool("look", look)
        agent = await it.agent()
        sent = record(it)
        await it.prompt(agent, "go")
        await it.prompt(agent, "")
        await it.prompt(agent, "on")
        bodies = [dispatch.body.partition(b'],"stream"') for dispatch in sent]
        assert len(bodies) == 7
        for (before, *_), (after, *_) in pairwise(bodies):
            assert after.startswith(before)
        assert len({rest for _, _, rest in bodies}) == 1
