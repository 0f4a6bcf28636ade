"""Cancel tokens (`design.md` §10.1)."""

import asyncio

import pytest

from dsh.kernel import Cancelled, CancelToken
from tests.aio import aio


def test_the_first_reason_wins() -> None:
    token = CancelToken()

    token.cancel("one")
    token.cancel("two")

    assert (token.cancelled, token.reason) == (True, "one")
    with pytest.raises(Cancelled) as caught:
        token.raise_if_cancelled()
    assert caught.value.reason == "one"
    assert not isinstance(caught.value, asyncio.CancelledError)


def test_callbacks_run_once_and_can_be_taken_back() -> None:
    token = CancelToken()
    heard: list[str] = []
    token.on_cancel(heard.append)
    undo = token.on_cancel(lambda _: heard.append("never"))
    undo()

    token.cancel("stop")
    token.on_cancel(lambda reason: heard.append(f"late {reason}"))

    assert heard == ["stop", "late stop"]


def test_a_fused_token_follows_the_first_and_can_be_detached() -> None:
    one, two = CancelToken(), CancelToken()
    fused, loose = CancelToken.any_of(one, None, two), CancelToken.any_of(one)
    loose.detach()

    two.cancel("two")
    one.cancel("one")

    assert (fused.reason, loose.cancelled) == ("two", False)


@aio
async def test_race_ends_with_the_token_and_drops_the_late_outcome() -> None:
    token, gate = CancelToken(), asyncio.Event()

    async def fails_late() -> None:
        await gate.wait()
        raise ValueError("late")

    asyncio.get_running_loop().call_soon(token.cancel, "stop")
    with pytest.raises(Cancelled):
        await token.race(fails_late())
    gate.set()
    await asyncio.sleep(0.001)


@aio
async def test_race_returns_what_the_work_returns() -> None:
    async def work() -> int:
        return 3

    assert await CancelToken().race(work()) == 3


@aio
async def test_sleep_ends_early_and_leaves_no_timer() -> None:
    token = CancelToken()
    asyncio.get_running_loop().call_later(0.001, token.cancel, "stop")

    with pytest.raises(Cancelled):
        await token.sleep(60)
    await asyncio.sleep(0)
