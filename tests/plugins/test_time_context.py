"""Row `time-context`: the time at each step, the person's zone, what has passed since."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from dsh.agent.contract import AGENT_PRE_STEP, Agent
from dsh.agent.last_reading import LastReading
from dsh.capabilities.recorded import RECORDED
from dsh.capabilities.replay import GivenSources
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.plugins import time_context
from dsh.plugins.time_context import Times, stamp, zone_of
from dsh.session.log import Session
from dsh.session.message import user_message
from tests.agent.kit import Loop, calls, loop, settled, text
from tests.aio import aio

DAY = 86_400_000


def readings(session: Session) -> list[Any]:
    return [
        e.data
        for e in session.events()
        if e.type == "user/message" and e.data["source"].get("plugin") == "time-context"
    ]


def told(session: Session) -> list[str]:
    return [message["content"][0]["text"] for message in readings(session)]


class Fake:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1_750_000_000_000

    def __call__(self) -> int:
        return self.now


async def asked(run: Loop, source: dict[str, Any] | None = None, *more: dict[str, Any]) -> Agent:
    agent = await run.agent()
    for one in more:
        agent.inject(user_message("also", one))
    agent.followup(user_message("go", source))
    await agent.when_idle()
    return agent


def listening(clock: Callable[[], int], interval: int = 0) -> Callable[[Context], None]:
    times = Times(None, interval, clock)

    def listen(ctx: Context) -> None:
        ctx.on(AGENT_PRE_STEP, times.before_step)

    return listen


@aio
async def test_each_step_is_told_the_time_as_a_snapshot_behind_everything_else() -> None:
    rows: list[Any] = [(time_context, {"timeZone": "Europe/Berlin"})]
    async with loop(calls(("c1", "nothing", "{}")), text("done"), rows=rows) as run:
        agent = await asked(run)

        first, second = readings(agent.session)
        stated = first["content"][0]["text"]
        assert first["source"] == {
            "kind": "plugin",
            "plugin": "time-context",
            "form": "snapshot",
            "sections": ({"name": "time-context", "text": stated},),
        }
        assert re.match(
            r"Turn 1, step 1: it is \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+0[12]:00\[Europe/Berlin\]\. ", stated
        )
        assert stated.endswith("The person's time zone is Europe/Berlin.")
        assert second["content"][0]["text"].startswith("Turn 1, step 2: it is ")
        assert "since the last reading." in second["content"][0]["text"]


@pytest.mark.parametrize(
    ("zone", "wanted"),
    [
        ("UTC", "2025-06-15T15:06:40+00:00[UTC]"),
        ("Europe/Berlin", "2025-06-15T17:06:40+02:00[Europe/Berlin]"),
        ("America/St_Johns", "2025-06-15T12:36:40-02:30[America/St_Johns]"),
        ("Asia/Kathmandu", "2025-06-15T20:51:40+05:45[Asia/Kathmandu]"),
    ],
)
def test_the_stamp_has_date_time_offset_and_zone(zone: str, wanted: str) -> None:
    assert stamp(1_750_000_000_999, zone_of(zone)) == wanted


def test_without_a_zone_the_stamp_is_that_of_the_machine() -> None:
    assert re.fullmatch(r"2025-06-1[456]T\d\d:\d\d:40[+-]\d\d:\d\d\[.+\]", stamp(1_750_000_000_000, None))


BERLIN = {"kind": "user", "clientTimeZone": "Europe/Berlin"}
TOKYO = {"kind": "user", "clientTimeZone": "Asia/Tokyo"}


@pytest.mark.parametrize(
    ("sources", "wanted"),
    [
        ([BERLIN], "The person's time zone is Europe/Berlin."),
        ([BERLIN, BERLIN], "The person's time zone is Europe/Berlin."),
        ([{"kind": "user"}], "The person's time zone is not known. Ask where it matters"),
        ([{"kind": "user", "clientTimeZone": "Mars/Base"}], "The person's time zone is not known."),
        ([{"kind": "user", "clientTimeZone": "../../etc/passwd"}], "The person's time zone is not known."),
        ([BERLIN, TOKYO], "several time zones (Asia/Tokyo, Europe/Berlin). Ask where it matters"),
        ([{"kind": "user"}, TOKYO], "The person's time zone is Asia/Tokyo."),
    ],
)
@aio
async def test_the_zone_of_the_person_is_that_of_the_messages_of_the_step(
    sources: list[dict[str, Any]], wanted: str
) -> None:
    async with loop(first=listening(Fake())) as run:
        agent = await asked(run, *sources)

        assert wanted in told(agent.session)[0]


PASSED = ((5_400_000, "1 h 30 min"), (2 * DAY, "2 d"), (61_000, "1 min 1 s"), (-DAY, "0 s"), (2_550, "2.5 s"))


@aio
async def test_what_has_passed_is_told_since_the_message_before() -> None:
    clock = Fake()
    async with loop(text("one"), text("two"), first=listening(clock)) as run:
        agent = await asked(run)
        assert "since" not in told(agent.session)[0]
        for moved, wanted in PASSED:
            clock.now = agent.session.event(agent.session.surface_nodes[-1]).time + moved
            await run.prompt(agent, "go on")
            assert f"{wanted} since the message before." in told(agent.session)[-1]


@aio
async def test_an_interval_keeps_readings_apart() -> None:
    clock = Fake()
    async with loop(text("one"), first=listening(clock, interval=60_000)) as run:
        agent = await asked(run)
        first = LastReading("time-context").of(agent.session)
        assert first is not None
        for moved, count in ((0, 1), (59_999, 1), (60_000, 2)):
            clock.now = first.time + moved
            await run.prompt(agent, "go on")
            assert len(told(agent.session)) == count


@aio
async def test_a_reading_that_a_summary_has_taken_away_is_no_reason_to_be_silent() -> None:
    clock = Fake()
    async with loop(text("one"), first=listening(clock, interval=DAY)) as run:
        agent = await asked(run)
        session, nodes = agent.session, agent.session.surface_nodes
        clock.now = session.event(nodes[0]).time
        session.append(
            "user/message",
            user_message("before", {"kind": "plugin", "plugin": "compact", "compactionId": "c"}),
            surface={"op": "replace", "start": nodes[0], "end": nodes[-1]},
            sources=nodes,
        )
        await run.prompt(agent, "go on")

        assert len(told(session)) == 2


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../etc/passwd", "/etc/localtime", "a\0b"])
@aio
async def test_a_zone_that_is_none_is_an_error_of_the_row(zone: str) -> None:
    ctx = Context()
    fiber = ctx.plugin(time_context, {"timeZone": zone})

    with pytest.raises(CompositionError, match="is no time zone that is known here"):
        await settled(fiber)
    await ctx.dispose()


@aio
async def test_a_replay_gives_the_readings_of_the_record() -> None:
    given = GivenSources()

    def replay(ctx: Context) -> None:
        ctx.provide(RECORDED, given)

    async with loop(rows=[(time_context, {})], first=replay) as run:
        agent = await asked(run)

        assert told(agent.session) == []
        assert given.covers(user_message("x", {"kind": "plugin", "plugin": "time-context"}))
