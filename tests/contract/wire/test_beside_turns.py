"""Titles and summaries under hundreds of seeded faults, through the rows that ask for them, on every wire.

They are tried again by the policy of their route like any request, without a word of it in the log.
"""

import asyncio
import itertools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from dsh.agent.contract import AgentOptions, CreateAgent
from dsh.agent.registry import AGENTS
from dsh.capabilities.compaction import COMPACTION, CompactionError
from dsh.plugins import compaction_basic, session_title, session_title_llm, token_meter
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.session.verify.log import verify
from tests.agent.kit import data_of
from tests.aio import aio_in_virtual_time
from tests.contract.wire.memory_http import MemoryHttp, Sent
from tests.contract.wire.recovery import Expected, expected_turns, looped, plan_of
from tests.contract.wire.test_seeded_faults import script_of
from tests.contract.wire.wires import Wire, over_wires

BUDGET = 3
POLICY = {"maxRetries": BUDGET}
LONG_S = 3600.0
"""Longer than any of these calls takes, all its attempts together."""


def calls_of(wire: Wire, *without: str) -> list[Expected]:
    """What each call is answered; a reply of tool calls is no answer here."""
    script = [name for name in script_of(7, 400) if name not in ("tool_call_success", *without)]
    calls = list(expected_turns(wire, script, BUDGET))
    assert sum(len(call.retries) + bool(call.code) for call in calls) > 200
    return calls


def server(wire: Wire, words: bytes, calls: Sequence[Expected]) -> MemoryHttp:
    """Answers every turn at once, and the calls with these words by the script."""
    script = (plan_of(wire, name) for call in calls for name in call.behaviours)
    return MemoryHttp(itertools.repeat(plan_of(wire, "success")), (words, script))


def check(call: Expected, sent: Sequence[Sent], log: Session) -> None:
    """Whether it was asked as often as the policy says, no sooner than it says, and untold."""
    assert len(sent) == len(call.behaviours), call
    for (before, after), (_, _, wait_ms) in zip(pairwise(sent), call.retries, strict=True):
        assert after.at_s - before.at_s >= wait_ms / 1000 - 1e-6, call
    assert data_of(log, "llm/retry") == data_of(log, "llm/retry-started") == []


@over_wires
@aio_in_virtual_time
async def test_a_title_is_made_or_not_as_the_policy_says(wire: Wire) -> None:
    words, calls = b"You name the sessions", calls_of(wire)
    limits = {"fallbackMaxWords": 5, "fallbackMaxBytes": 40, "maxTitleBytes": 80}
    asks = {"provider": wire.route, "model": "m", "timeoutMs": int(LONG_S * 1000)}
    rows: list[Any] = [(session_title, limits), (session_title_llm, asks)]
    async with looped(wire, (), POLICY, rows=rows, http=server(wire, words, calls)) as it:
        for number, call in enumerate(calls):
            first = len(it.sent)
            options = AgentOptions(provider=wire.route, model="m")
            agent = (await it.ctx.use(AGENTS).create(CreateAgent(cwd="/ws", options=options))).agent
            agent.followup(user_message(f"task {number}"))
            await agent.when_idle()
            await asyncio.sleep(LONG_S)

            check(call, [sent for sent in it.sent[first:] if words in sent.raw], agent.session)
            made = [row["source"]["kind"] for row in data_of(agent.session, "session/title")]
            assert made == ["fallback", *(["provider"] if call.kind == "completed" else [])], call
            assert data_of(agent.session, "turn/end")[0]["reason"] == {"kind": "completed"}
            assert verify(agent.session).findings == ()


@over_wires
@aio_in_virtual_time
async def test_a_summary_is_made_or_not_as_the_policy_says(wire: Wire) -> None:
    words, calls = b"call no tool", calls_of(wire, "context_overflow")
    rows: list[Any] = [(token_meter, {}), (compaction_basic, {"auto": False})]
    async with looped(wire, (), POLICY, rows=rows, http=server(wire, words, calls)) as it:
        log = it.agent.session
        for number, call in enumerate(calls):
            await it.prompt(f"task {number}: " + "lorem ipsum " * 200)
            first, code = len(it.sent), ""
            try:
                assert await it.ctx.use(COMPACTION).compact_now(it.agent) is not None
            except CompactionError as error:
                code = error.code

            assert all(words in sent.raw for sent in it.sent[first:])
            check(call, it.sent[first:], log)
            assert code == ("" if call.kind == "completed" else "summary"), call
        assert len(data_of(log, "compaction/summary")) == sum(call.kind == "completed" for call in calls)
        assert verify(log).findings == ()
