"""Row `permission`, mounted: which preset is the default, and what a new session's log gets."""

from collections.abc import Iterable
from typing import Any

import pytest

from dsh.errors import CompositionError
from dsh.kernel import Context, ScopeTarget
from dsh.plugins import approval, permission, sandbox_policy
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.store import SESSION_CREATED
from tests.aio import aio
from tests.sandboxes import broken_sandbox, no_sandbox

FULL = "danger-full-access"
PAIR = {"sandbox": FULL, "approval": "never"}


async def mounted(config: Any = None, *, policy: str = "never", sandbox: Any = no_sandbox) -> Context:
    ctx = Context()
    await ctx.plugin(sandbox)
    await ctx.plugin(sandbox_policy, {"mode": FULL})
    await ctx.plugin(approval, {"policy": policy})
    await ctx.plugin(permission, config)
    return ctx


def fresh() -> Session:
    return Session(SessionHeader(id="s", created_at=0))


def seeded(*events: tuple[str, Any]) -> Session:
    rows = [{"type": kind, "seq": seq, "time": 0, "data": data} for seq, (kind, data) in enumerate(events)]
    return Session.seeded(SessionHeader(id="s", created_at=0), rows)


def facts(session: Session) -> list[tuple[str, Any]]:
    return [
        (e.type, dict(e.data)) for e in session.events(session.first_live_seq) if e.type != "session/end-seed"
    ]


@aio
async def test_a_fresh_session_gets_preset_mode_and_policy_in_this_order() -> None:
    ctx = await mounted()
    session = fresh()

    ctx.emit(SESSION_CREATED, session, subject=ScopeTarget(None))

    assert facts(session) == [
        ("permission/preset", {"preset": FULL}),
        ("sandbox/mode", {"mode": FULL}),
        ("approval/policy", {"policy": "never"}),
    ]
    await ctx.dispose()


@aio
async def test_a_complete_log_gets_nothing() -> None:
    ctx = await mounted()
    session = seeded(
        ("permission/preset", {"preset": "read-only"}),
        ("sandbox/mode", {"mode": "read-only"}),
        ("approval/policy", {"policy": "ask"}),
    )

    ctx.emit(SESSION_CREATED, session, subject=ScopeTarget(None))

    assert facts(session) == []
    await ctx.dispose()


@pytest.mark.parametrize(
    ("seed", "added"),
    [
        (
            [("permission/preset", {"preset": "read-only"})],
            [("sandbox/mode", {"mode": "read-only"}), ("approval/policy", {"policy": "ask"})],
        ),
        (
            [("sandbox/mode", {"mode": "read-only"}), ("approval/policy", {"policy": "ask"})],
            [("permission/preset", {"preset": "read-only"})],
        ),
        (
            [("sandbox/mode", {"mode": "read-only"})],
            [("approval/policy", {"policy": "never"})],
        ),
        (
            [("permission/preset", {"preset": "gone"}), ("approval/policy", {"policy": "ask"})],
            [("sandbox/mode", {"mode": FULL})],
        ),
        (
            [("approval/policy", {})],
            [("sandbox/mode", {"mode": FULL})],
        ),
    ],
)
@aio
async def test_a_partly_set_log_gains_only_what_it_misses(
    seed: Iterable[tuple[str, Any]], added: list[tuple[str, Any]]
) -> None:
    ctx = await mounted()
    session = seeded(*seed)

    ctx.emit(SESSION_CREATED, session, subject=ScopeTarget(None))

    assert facts(session) == added
    await ctx.dispose()


@aio
async def test_a_pair_without_a_preset_stops_the_start_with_the_remedy() -> None:
    with pytest.raises(CompositionError, match="no preset has sandbox 'danger-full-access'") as failure:
        await mounted(policy="ask")

    assert "DSH_PERMISSION_MODE" in failure.value.hint


@aio
async def test_a_default_that_no_sandbox_can_keep_stops_the_start_with_the_remedy() -> None:
    with pytest.raises(CompositionError, match="preset 'read-only': no sandbox here can keep") as failure:
        await mounted({"defaultPreset": "read-only"}, sandbox=broken_sandbox)

    assert failure.value.hint == "install one"


@aio
async def test_a_preset_with_the_same_pair_or_an_explicit_default_helps() -> None:
    ctx = await mounted(
        {"presets": {"mine": {"sandbox": FULL, "approval": "ask", "description": "x"}}}, policy="ask"
    )
    session = fresh()
    ctx.emit(SESSION_CREATED, session, subject=ScopeTarget(None))
    assert facts(session)[0] == ("permission/preset", {"preset": "mine"})
    await ctx.dispose()

    ctx = await mounted({"defaultPreset": FULL}, policy="ask")
    session = fresh()
    ctx.emit(SESSION_CREATED, session, subject=ScopeTarget(None))
    assert facts(session)[2] == ("approval/policy", {"policy": "never"})
    await ctx.dispose()


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"presets": {"custom": PAIR}}, "reserved"),
        ({"presets": {}}, "no preset has"),
        ({"presets": {"a": {"sandbox": "open", "approval": "ask"}}}, "invalid"),
        ({"presets": {"a": {"sandbox": FULL}}}, "missing required value"),
        ({"presets": {"a": {**PAIR, "more": 1}}}, "unknown key"),
        ({"defaultPreset": "nope"}, "'nope' is not a preset .presets: read-only, workspace-write, danger"),
        ({"defaultPreset": "workspace-write"}, "cannot be kept"),
    ],
)
@aio
async def test_what_stops_the_start(config: Any, problem: str) -> None:
    with pytest.raises(CompositionError, match=problem):
        await mounted(config)
