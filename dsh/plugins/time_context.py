"""Row `time-context`: what time it is, told to the model at each step. In no bundle.

A message of source `plugin: time-context` says where the turn stands, date, time and zone, the person's zone,
and how long it is since the message before (`spec/capabilities-core.md` §21).
"""

import math
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, tzinfo
from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec

from dsh.agent.contract import AGENT_PRE_STEP, PreStep, PreStepDecision
from dsh.agent.last_reading import LastReading, is_fresh, reading
from dsh.agent.step_context import is_entered, with_context
from dsh.capabilities.bounds import MAX_TIMER_MS
from dsh.capabilities.recorded import is_given
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.session.log import Clock, Session, now_ms
from dsh.session.message import Message

provide = ()

OWNER = "time-context"
ZONE_KEY = "clientTimeZone"
"""In the source of a person's message: the zone they wrote it in."""
ASK = "Ask where it matters, and do not guess"


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    time_zone: str | None = None
    """The zone times are told in, such as `Europe/Berlin`, and the person's where their messages name none;
    unset: that of this machine, and the person's is not known."""
    refresh_interval_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_TIMER_MS)] = 0
    """While the last reading is not older than this, in milliseconds, none is made; 0: at each step."""


class Times:
    """The listener. State: the last reading of each session."""

    def __init__(self, zone: ZoneInfo | None, refresh_interval_ms: int, clock: Clock = now_ms) -> None:
        self._zone = zone
        self._refresh_interval_ms = refresh_interval_ms
        self._clock = clock
        self._readings = LastReading(OWNER)

    async def before_step(
        self, step: PreStep, following: Callable[[], Awaitable[PreStepDecision]]
    ) -> PreStepDecision:
        """Add the time to a step that is entered."""
        decision = await following()
        if not is_entered(decision, step):
            return decision
        session, now = step.agent.session, self._clock()
        last = self._readings.of(session)
        if is_fresh(last, now, self._refresh_interval_ms):
            return decision
        before = _last_visible_ms(session) if step.step == 1 else None if last is None else last.time
        zones = self._zones(decision.messages)
        text = " ".join(
            (
                f"Turn {step.turn}, step {step.step}: it is {stamp(now, self._shown_in(zones))}.",
                *_elapsed(before, now, since_message=step.step == 1),
                _person(zones),
            )
        )
        return with_context(step, decision, reading(OWNER, text))

    def _zones(self, messages: Iterable[Message]) -> list[ZoneInfo]:
        """The zones that the person's messages name, each once, else the configured one."""
        named = [m["source"].get(ZONE_KEY) for m in messages if m["source"].get("kind") == "user"]
        found = dict.fromkeys(name for name in named if isinstance(name, str))
        zones = [zone for name in found if (zone := zone_of(name)) is not None]
        return zones or ([] if self._zone is None else [self._zone])

    def _shown_in(self, zones: list[ZoneInfo]) -> ZoneInfo | None:
        if self._zone is not None:
            return self._zone
        return zones[0] if len(zones) == 1 else None


def zone_of(name: str) -> ZoneInfo | None:
    """The zone of a name, None where there is none of it."""
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        return None


def stamp(time_ms: int, zone: tzinfo | None) -> str:
    """`YYYY-MM-DDTHH:MM:SS±HH:MM[Zone]`; without a zone in that of the machine."""
    at = datetime.fromtimestamp(time_ms // 1000, UTC).astimezone(zone)
    offset = at.strftime("%z")
    name = zone.key if isinstance(zone, ZoneInfo) else at.tzname()
    return f"{at:%Y-%m-%dT%H:%M:%S}{offset[:3]}:{offset[3:5]}[{name}]"


def _person(zones: list[ZoneInfo]) -> str:
    if len(zones) == 1:
        return f"The person's time zone is {zones[0].key}."
    if zones:
        names = ", ".join(zone.key for zone in zones)
        return f"The person's messages name several time zones ({names}). {ASK} which one is meant."
    return f"The person's time zone is not known. {ASK} it."


def _elapsed(before_ms: int | None, now_ms: int, *, since_message: bool) -> tuple[str, ...]:
    if before_ms is None:
        return ()
    since = "the message before" if since_message else "the last reading"
    return (f"{_span(max(now_ms - before_ms, 0))} since {since}.",)


def _span(span_ms: int) -> str:
    """Such as `2 d 3 h`, `4 min 5 s` or `0.5 s`: the two largest units."""
    if span_ms < 60_000:
        return f"{math.floor(span_ms / 100) / 10:g} s"
    seconds = span_ms // 1000
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= size:
            rest = seconds % size // part
            return f"{seconds // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError("a minute has a unit")


def _last_visible_ms(session: Session) -> int | None:
    """When the newest message came that the model sees already."""
    last = session.surface_from(-1)
    return session.event(last[0]).time if last else None


def apply(ctx: Context, config: Config) -> None:
    zone = None if config.time_zone is None else zone_of(config.time_zone)
    if config.time_zone is not None and zone is None:
        raise CompositionError(
            f"row time-context: timeZone {config.time_zone!r:.80} is no time zone that is known here",
            hint="give a name such as Europe/Berlin or UTC; on a bare system the package tzdata has them",
        )
    if is_given(ctx, kind="plugin", plugin=OWNER):
        return
    ctx.on(AGENT_PRE_STEP, Times(zone, config.refresh_interval_ms).before_step)
