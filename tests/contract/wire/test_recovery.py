"""The recovery matrix on every wire and a fake clock: all faults, both modes, three budgets, exact waits."""

import asyncio
from typing import Any

import pytest

from dsh.agent.contract import AGENT_REQUEST_ERROR, RequestFailed, RetryRequest
from dsh.session.verify.log import verify
from dsh.testing.mock_server.part import FaultKind, Text, whole
from tests.agent.kit import ends, short
from tests.aio import aio_in_virtual_time
from tests.contract.wire.outcomes import failures
from tests.contract.wire.recovery import (
    ANSWERED,
    BY_HEADERS,
    BY_OPTIONS,
    code_of,
    duration_s,
    expected_turns,
    looped,
    plan_of,
)
from tests.contract.wire.wires import WIRES, Wire, over_wires

LIMIT = {"maxProviderDelayMs": 3000}
REQUEST_ID = {"deepseek": "x-request-id", "openai": "x-request-id", "anthropic": "request-id"}
FAULTS = [
    pytest.param(wire, behaviour, id=f"{wire.name}-{behaviour}")
    for wire in WIRES
    for behaviour in failures(wire)
    if behaviour not in BY_OPTIONS | BY_HEADERS
]


@pytest.mark.parametrize("budget", [0, 1, 5])
@pytest.mark.parametrize(("wire", "behaviour"), FAULTS)
@aio_in_virtual_time
async def test_a_fault_is_tried_again_as_the_policy_says(wire: Wire, behaviour: str, budget: int) -> None:
    plan = plan_of(wire, behaviour)
    turn = next(expected_turns(wire, [behaviour] * (budget + 1), budget))
    async with looped(wire, [plan] * (budget + 1), {"maxRetries": budget}) as it:
        begun_s = asyncio.get_running_loop().time()
        await it.prompt("go")

        assert len(it.sent) == len(turn.behaviours)
        [end] = ends(it.agent.session)
        assert (end["kind"], end["error"]["code"]) == ("error", turn.code)
        rows = it.rows("llm/retry")
        assert tuple((row["step"], row["retry"], row["delayMs"]) for row in rows) == turn.retries
        assert [row["retry"] for row in it.rows("llm/retry-started")] == [row["retry"] for row in rows]
        assert {row["retryId"] for row in it.rows("llm/retry-started")} == {row["retryId"] for row in rows}
        assert {row["failure"]["code"] for row in rows} <= {turn.code}
        assert {row["maxRetries"] for row in rows} <= {budget}
        waited_s = sum(delay for _, _, delay in turn.retries) / 1000
        passed_s = asyncio.get_running_loop().time() - begun_s
        assert passed_s == pytest.approx(waited_s + duration_s(plan) * len(turn.behaviours), abs=0.01)
        assert it.rows("assistant/message") == []
        assert verify(it.agent.session).findings == ()


@pytest.mark.parametrize(("wire", "behaviour"), FAULTS)
@aio_in_virtual_time
async def test_mode_always_goes_on_whatever_it_was_and_sends_nothing_of_it(
    wire: Wire, behaviour: str
) -> None:
    plans = [plan_of(wire, behaviour)] * 7 + [wire.plan(whole(Text("at last")))]
    async with looped(wire, plans, {"mode": "always"}) as it:
        await it.prompt("go")

        assert ends(it.agent.session) == [{"kind": "completed"}]
        rows = it.rows("llm/retry")
        waits = [500, 1000, 2000, 4000, 8000, 10_000, 10_000]
        assert [row["delayMs"] for row in rows] == ([1000] * 7 if behaviour == "rate_limit" else waits)
        assert {row["failure"]["code"] for row in rows} == {code_of(wire, behaviour)}
        assert all("maxRetries" not in row and row["policyKey"] == '["always",500,10000,0]' for row in rows)
        assert {sent.raw for sent in it.sent} == {it.sent[0].raw}
        [message] = it.rows("assistant/message")
        assert message["message"]["content"] == ({"type": "text", "text": "at last"},)
        assert verify(it.agent.session).findings == ()


@over_wires
@pytest.mark.parametrize("behaviour", ANSWERED)
@aio_in_virtual_time
async def test_an_answer_is_asked_for_once(wire: Wire, behaviour: str) -> None:
    plans = [plan_of(wire, behaviour), plan_of(wire, "success")]
    async with looped(wire, plans, {"mode": "always"}) as it:
        await it.prompt("go")

        assert len(it.sent) == (2 if behaviour == "tool_call_success" else 1)
        assert it.rows("llm/retry") == []


@over_wires
@pytest.mark.parametrize("kind", ["rate_limit", "service_unavailable", "overloaded"])
@pytest.mark.parametrize(
    ("limit", "asked_s", "mode", "wait_ms"),
    [
        ({}, "0", "normal", 500),
        ({}, "-5", "normal", 500),
        ({}, "3.5", "normal", 500),
        ({}, "abc", "normal", 500),
        ({}, "Wed, 21 Oct 2015 07:28:00 GMT", "normal", 500),
        ({}, 20, "normal", 20_000),
        ({}, 300, "normal", 300_000),
        ({}, 301, "normal", None),
        ({}, 86_400, "normal", None),
        ({}, 86_400, "always", 500),
        (LIMIT, 2, "normal", 2000),
        (LIMIT, 3, "normal", 3000),
        (LIMIT, 4, "normal", None),
        (LIMIT, 4, "always", 500),
        (LIMIT, 3, "always", 3000),
    ],
)
@aio_in_virtual_time
async def test_the_servers_wait_below_at_and_above_the_limit(
    wire: Wire, kind: FaultKind, limit: dict[str, Any], asked_s: int | str, mode: str, wait_ms: float | None
) -> None:
    refusal = wire.error(kind, headers={"retry-after": str(asked_s), REQUEST_ID[wire.name]: "req-9"})
    async with looped(wire, [refusal, wire.plan(whole(Text("yes")))], {"mode": mode, **limit}) as it:
        await it.prompt("go")
        [end] = ends(it.agent.session)

        if wait_ms is None:
            assert f"{asked_s} s" in end["error"]["message"]
            assert end["error"]["providerRetryAfterMs"] == int(asked_s) * 1000
            assert (end["error"]["requestId"], end["error"]["status"]) == ("req-9", refusal.status)
            assert len(it.sent) == 1
            return
        assert end == {"kind": "completed"}
        [row] = it.rows("llm/retry")
        told = {"providerRetryAfterMs": asked_s * 1000} if isinstance(asked_s, int) else {}
        facts = {key: value for key, value in row["failure"].items() if key not in ("message", "code")}
        assert facts == {"status": refusal.status, **told, "requestId": "req-9"}
        first, second = it.sent
        assert second.at_s - first.at_s == pytest.approx(wait_ms / 1000)


@over_wires
@aio_in_virtual_time
async def test_a_retry_stays_in_its_step_and_only_its_own_chunks_are_cited(wire: Wire) -> None:
    async with looped(wire, [plan_of(wire, "partial_eof"), plan_of(wire, "success")], {}) as it:
        await it.prompt("go")

        log = it.agent.session
        kinds = [word for word in short(log).split() if word != "request/usage"]
        assert " ".join(kinds).endswith(
            "request/context request/digest chunks llm/retry llm/retry-started request/digest chunks "
            "assistant/message step/end turn/end"
        )
        [retry] = [event.seq for event in log.events() if event.type == "llm/retry"]
        [reply] = [event for event in log.events() if event.type == "assistant/message"]
        assert reply.sources is not None
        assert min(reply.sources) > retry


@over_wires
@aio_in_virtual_time
async def test_mode_always_ends_with_a_cancellation_at_any_moment(wire: Wire) -> None:
    """In a request, in a stream, in a wait, between them: the turn ends there and then."""
    faults = ["stall_after_text", "server_error", "slow_success", "partial_eof", "stall", "content_filter"]
    plans = [plan_of(wire, behaviour) for behaviour in faults if code_of(wire, behaviour)] * 30
    policy = {"mode": "always", "backoff": {"initialDelayMs": 7000, "maxDelayMs": 7000, "jitterRatio": 0}}
    async with looped(wire, plans, policy) as it:
        loop = asyncio.get_running_loop()
        for number in range(60):
            begun_s, after_s, first = loop.time(), number * 1.37 % 70, it.agent.session.length
            loop.call_later(after_s, lambda: it.agent.cancel({"kind": "user"}))
            await it.prompt(f"task {number}")

            assert loop.time() - begun_s == pytest.approx(after_s, abs=0.01)
            assert ends(it.agent.session)[-1] == {"kind": "aborted", "reason": {"kind": "user"}}
            assert it.http.open_streams == 0
            waits, begun = it.rows("llm/retry", first), it.rows("llm/retry-started", first)
            assert len(waits) - len(begun) in (0, 1), "at most the last wait was cut off"
        assert verify(it.agent.session).findings == ()


@over_wires
@aio_in_virtual_time
async def test_a_turn_that_is_cancelled_in_a_wait_asks_no_more(wire: Wire) -> None:
    async with looped(wire, [wire.error("server_error")] * 9, {}) as it:
        asyncio.get_running_loop().call_later(1.2, lambda: it.agent.cancel({"kind": "user"}))
        await it.prompt("go")

        assert asyncio.get_running_loop().time() == pytest.approx(1.2, abs=0.01)
        assert len(it.sent) == 2
        assert [row["retry"] for row in it.rows("llm/retry")] == [1, 2]
        assert [row["retry"] for row in it.rows("llm/retry-started")] == [1]
        assert ends(it.agent.session) == [{"kind": "aborted", "reason": {"kind": "user"}}]
        assert short(it.agent.session).endswith("llm/retry step/end turn/end")


@over_wires
@aio_in_virtual_time
async def test_a_row_that_goes_in_a_wait_ends_it_with_the_failure(wire: Wire) -> None:
    async with looped(wire, [wire.error("server_error")] * 9, {}) as it:
        prompting = asyncio.ensure_future(it.prompt("go"))
        await asyncio.sleep(1.2)
        await it.retry.dispose()
        await prompting

        assert asyncio.get_running_loop().time() == pytest.approx(1.2, abs=0.01)
        assert len(it.sent) == 2
        assert [row["retry"] for row in it.rows("llm/retry-started")] == [1]
        assert ends(it.agent.session)[0]["error"]["code"] == "SERVER"
        await it.prompt("again")
        assert len(it.sent) == 3, "without the row nothing is tried again"


@over_wires
@aio_in_virtual_time
async def test_a_full_window_is_left_to_whoever_can_shorten_the_history(wire: Wire) -> None:
    asked: list[str] = []

    async def shorten(failed: RequestFailed, following: Any) -> RetryRequest | None:
        asked.append(failed.failure.code)
        return {"kind": "retry"}

    plans = [wire.error("context_overflow"), wire.error("server_error"), wire.plan(whole(Text("yes")))]
    async with looped(wire, plans, {}) as it:
        it.ctx.on(AGENT_REQUEST_ERROR, shorten)
        await it.prompt("go")

        assert asked == ["CONTEXT_WINDOW_EXCEEDED"]
        assert [row["retry"] for row in it.rows("llm/retry")] == [1]
        assert ends(it.agent.session) == [{"kind": "completed"}]
