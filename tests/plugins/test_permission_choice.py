"""Row `permission`: which preset a session has, and the choice of another one, by service and by command."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.agent.contract import Agent
from dsh.capabilities.approval import APPROVAL, ApprovalError
from dsh.capabilities.commands import COMMANDS, CommandFailure, CommandSuccess
from dsh.capabilities.permission import CUSTOM, PERMISSIONS, Permissions, PresetError
from dsh.capabilities.sandbox import SANDBOX_MODES, SANDBOX_POLICY, SandboxMode
from dsh.kernel import Context, resolve_config
from dsh.plugins import approval, commands, permission, sandbox_policy
from dsh.plugins.permission.presets import Presets
from dsh.session.error import ReentrantAppend
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from tests.agent.kit import Loop, data_of, loop, text, types
from tests.aio import aio
from tests.sandboxes import any_sandbox, no_sandbox

FULL: SandboxMode = "danger-full-access"
TABLE: dict[str, Any] = {
    "open": {"sandbox": FULL, "approval": "never", "description": "No questions."},
    "asking": {"sandbox": FULL, "approval": "ask", "name": "Careful"},
    "same": {"sandbox": FULL, "approval": "ask"},
    "narrow": {"sandbox": "read-only", "approval": "ask"},
}
PINNED = ["permission/preset", "sandbox/mode", "approval/policy"]


@asynccontextmanager
async def presets(*, any_mode: bool = False, pins: bool = True) -> AsyncIterator[tuple[Loop, Agent]]:
    """A live agent under preset `open`."""
    rows: list[Any] = [
        (any_sandbox if any_mode else no_sandbox, {}),
        (sandbox_policy, {"mode": FULL}),
        (approval, {"policy": "never"}),
        (commands, {}),
    ]
    last = (permission, {"presets": TABLE})
    async with loop(text("bye"), rows=[*rows, last] if pins else rows) as run:
        agent = await run.agent()
        if not pins:
            await run.ctx.plugin(*last)
            await run.breath()
            await run.breath()
        yield run, agent


def service(run: Loop) -> Permissions:
    return run.ctx.use(PERMISSIONS)


def facts(agent: Agent, start: int = 3) -> list[tuple[str, Any]]:
    """What the log says of permissions, without what was pinned at the beginning."""
    return [(e.type, dict(e.data)) for e in agent.session.events(start) if e.type in PINNED]


@aio
async def test_a_fresh_session_has_the_default() -> None:
    async with presets() as (run, agent):
        assert types(agent.session) == PINNED
        assert service(run).effective(agent.session) == service(run).default == "open"
        assert list(service(run).table) == list(TABLE)


@aio
async def test_a_choice_logs_the_preset_first_then_only_what_changes() -> None:
    async with presets(any_mode=True) as (run, agent):
        assert service(run).choose(agent, "asking") is True
        assert facts(agent) == [
            ("permission/preset", {"preset": "asking"}),
            ("approval/policy", {"policy": "ask"}),
        ]
        assert service(run).choose(agent, "narrow") is True
        assert facts(agent)[2:] == [
            ("permission/preset", {"preset": "narrow"}),
            ("sandbox/mode", {"mode": "read-only"}),
        ]
        assert service(run).choose(agent, "open") is True
        assert [kind for kind, _ in facts(agent)[4:]] == PINNED
        assert service(run).effective(agent.session) == "open"


@aio
async def test_the_model_is_told_of_a_changed_policy_once() -> None:
    async with presets(any_mode=True) as (run, agent):
        service(run).choose(agent, "asking")
        service(run).choose(agent, "narrow")

        spliced = data_of(agent.session, "agent/inbox/spliced")
        assert len(spliced) == 1
        assert spliced[0]["inserted"][0]["source"] == {"kind": "plugin", "plugin": "user-approval"}
        assert agent.status == "idle"


@aio
async def test_the_effective_preset_is_not_chosen_again() -> None:
    async with presets() as (run, agent):
        assert service(run).choose(agent, "open") is False
        service(run).choose(agent, "asking")
        length = agent.session.length

        assert service(run).choose(agent, "asking") is False
        assert agent.session.length == length


@aio
async def test_of_two_entries_with_one_pair_the_chosen_one_keeps_its_name() -> None:
    async with presets() as (run, agent):
        service(run).choose(agent, "same")
        assert service(run).effective(agent.session) == "same"

        assert service(run).choose(agent, "asking") is True
        assert facts(agent)[-1] == ("permission/preset", {"preset": "asking"})
        assert service(run).effective(agent.session) == "asking"


@aio
async def test_a_pair_that_was_changed_by_hand_is_named_by_the_first_that_fits_or_is_custom() -> None:
    async with presets(any_mode=True) as (run, agent):
        agent.session.append("approval/policy", {"policy": "ask"})
        assert service(run).effective(agent.session) == "asking"
        agent.session.append("sandbox/mode", {"mode": "workspace-write"})
        assert service(run).effective(agent.session) == CUSTOM
        agent.session.append("sandbox/mode", {"mode": FULL})
        agent.session.append("approval/policy", {"policy": "never"})
        assert service(run).effective(agent.session) == "open"


@aio
async def test_a_choice_completes_a_log_that_says_nothing_yet() -> None:
    async with presets(pins=False) as (run, agent):
        assert service(run).effective(agent.session) == "open"

        assert service(run).choose(agent, "asking") is True

        assert facts(agent, 0) == [
            ("permission/preset", {"preset": "asking"}),
            ("sandbox/mode", {"mode": FULL}),
            ("approval/policy", {"policy": "ask"}),
        ]


@aio
async def test_a_choice_of_the_policy_that_holds_by_config_logs_it_and_tells_nobody() -> None:
    async with presets(pins=False) as (run, agent):
        agent.session.append("sandbox/mode", {"mode": "workspace-write"})

        assert service(run).choose(agent, "open") is True

        assert [kind for kind, _ in facts(agent, 1)] == PINNED
        assert data_of(agent.session, "agent/inbox/spliced") == []


@pytest.mark.parametrize(
    ("key", "code", "hint"),
    [
        ("nope", "UNKNOWN_PRESET", "presets: open, asking, same, narrow"),
        ("", "UNKNOWN_PRESET", "presets: open, asking, same, narrow"),
        (CUSTOM, "UNKNOWN_PRESET", "presets: open, asking, same, narrow"),
        ("narrow", "UNSUPPORTED_MODE", "modes that can: danger-full-access"),
    ],
)
@aio
async def test_what_cannot_be_chosen_changes_nothing(key: str, code: str, hint: str) -> None:
    async with presets() as (run, agent):
        with pytest.raises(PresetError) as caught:
            service(run).choose(agent, key)

        assert (caught.value.code, caught.value.hint) == (code, hint)
        assert types(agent.session) == PINNED


@aio
async def test_an_agent_that_has_ended_gets_no_preset() -> None:
    async with presets() as (run, _):
        handle = await run.create()
        await handle.dispose()

        with pytest.raises(ApprovalError, match="has ended"):
            service(run).choose(handle.agent, "asking")

        assert types(handle.agent.session) == PINNED


@aio
async def test_an_observer_of_the_log_changes_nothing_at_once() -> None:
    refused: list[Exception] = []
    async with presets() as (run, agent):

        def at_once(_: object) -> None:
            try:
                service(run).choose(agent, "asking")
            except ReentrantAppend as error:
                refused.append(error)

        run.when("turn/start", at_once)
        await run.prompt(agent, "go")

        assert len(refused) == 1
        assert facts(agent) == []


# -- the command -----------------------------------------------------------------------------------


async def typed(run: Loop, agent: Agent, line: str) -> Any:
    return await run.ctx.use(COMMANDS).execute(agent, line)


@aio
async def test_the_command_chooses_as_the_original_logs_it() -> None:
    async with presets(any_mode=True) as (run, agent):
        assert await typed(run, agent, "/permission narrow") == CommandSuccess("Permission preset: narrow.")

        found = [
            (e.type, {k: v for k, v in e.data.items() if k != "commandId"}) for e in agent.session.events(3)
        ]
        assert found[0] == (
            "command/run",
            {"name": "permission", "args": " narrow", "source": {"kind": "user"}},
        )
        assert found[1:4] == [
            ("permission/preset", {"preset": "narrow"}),
            ("sandbox/mode", {"mode": "read-only"}),
            ("approval/policy", {"policy": "ask"}),
        ]
        assert found[-1] == ("command/done", {"kind": "success", "text": "Permission preset: narrow."})


@aio
async def test_the_command_alone_lists_what_there_is() -> None:
    async with presets() as (run, agent):
        outcome = await typed(run, agent, "/permission  ")

        assert outcome.text.splitlines() == [
            "Permission preset: open.",
            "* open: No questions. (sandbox danger-full-access, approval never)",
            "  asking: Careful (sandbox danger-full-access, approval ask)",
            "  same: sandbox danger-full-access, approval ask",
            "  narrow: sandbox read-only, approval ask",
        ]
        assert facts(agent) == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/permission nope", "'nope' is not a preset; presets: open, asking, same, narrow"),
        ("/permission open asking", "'open asking' is not a preset; presets: open, asking, same, narrow"),
        (
            "/permission narrow",
            "preset 'narrow' asks for sandbox mode 'read-only', which cannot be kept; "
            "modes that can: danger-full-access",
        ),
    ],
)
@aio
async def test_the_command_says_what_is_wrong(line: str, told: str) -> None:
    async with presets() as (run, agent):
        assert await typed(run, agent, line) == CommandFailure(told)
        assert facts(agent) == []


@aio
async def test_the_command_is_there_only_with_the_row_of_commands() -> None:
    rows: list[Any] = [
        (no_sandbox, {}),
        (sandbox_policy, {"mode": FULL}),
        (approval, {"policy": "never"}),
        (permission, {"presets": TABLE}),
    ]
    async with loop(text("bye"), rows=rows) as run:
        assert run.ctx.get(PERMISSIONS) is not None
        run.ctx.plugin(commands)
        for _ in range(5):
            await run.breath()
        assert [one.name for one in run.ctx.use(COMMANDS).list()] == ["permission"]


# -- damage, and laws ------------------------------------------------------------------------------

MODES: list[Any] = [None, *SANDBOX_MODES, "open", 7]
POLICIES: list[Any] = [None, "ask", "never", "always", 7]
NAMES: list[Any] = [None, *TABLE, "gone", 7]


class Told:
    """An agent that only listens."""

    def __init__(self, ctx: Context, session: Session) -> None:
        self.id, self.ctx, self.session = session.id, ctx, session
        self.messages: list[Any] = []

    def inject(self, message: Any) -> None:
        self.messages.append(message)


async def over(seed: list[tuple[str, Any]]) -> tuple[Context, Presets, Told]:
    ctx = Context()
    await ctx.plugin(approval, {"policy": "never"})
    await ctx.plugin(any_sandbox)
    await ctx.plugin(sandbox_policy, {"mode": FULL})
    table = resolve_config(permission.Config, {"presets": TABLE}).presets
    sandbox, decides = ctx.get(SANDBOX_POLICY), ctx.get(APPROVAL)
    assert sandbox is not None and decides is not None
    rows = [{"type": kind, "seq": seq, "time": 0, "data": data} for seq, (kind, data) in enumerate(seed)]
    session = Session.seeded(SessionHeader(id="s", created_at=0), rows)
    return ctx, Presets(table, lambda: "open", sandbox, decides, lambda _: True), Told(ctx, session)


def seed_of(name: Any, mode: Any, policy: Any) -> list[tuple[str, Any]]:
    parts = (
        ("permission/preset", "preset", name),
        ("sandbox/mode", "mode", mode),
        ("approval/policy", "policy", policy),
    )
    return [(kind, {key: value}) for kind, key, value in parts if value is not None]


@aio
async def test_damage_is_the_narrowest_and_no_preset_by_accident() -> None:
    for name, mode, policy in itertools.product(NAMES, MODES, POLICIES):
        ctx, found, agent = await over(seed_of(name, mode, policy))
        sandbox = mode if mode in SANDBOX_MODES else FULL if mode is None else "read-only"
        asks = policy == "ask"
        fitting = [
            k
            for k, v in TABLE.items()
            if (v["sandbox"], v["approval"]) == (sandbox, "ask" if asks else "never")
        ]
        expected = name if name in fitting else fitting[0] if fitting else CUSTOM
        assert found.effective(agent.session) == expected, (name, mode, policy)
        await ctx.dispose()


@given(
    st.sampled_from(NAMES),
    st.sampled_from(MODES),
    st.sampled_from(POLICIES),
    st.lists(st.sampled_from(list(TABLE))),
)
def test_whatever_the_log_held_a_choice_takes_hold_and_a_second_one_changes_nothing(
    name: Any, mode: Any, policy: Any, keys: list[str]
) -> None:
    @aio
    async def body() -> None:
        ctx, found, agent = await over(seed_of(name, mode, policy))
        for key in keys:
            before, was = agent.session.length, found.effective(agent.session)
            assert found.choose(agent, key) == (was != key)
            assert found.effective(agent.session) == key
            added = [event.type for event in agent.session.events(before)]
            assert added == [kind for kind in PINNED if kind in added]
            assert added[:1] == ([] if was == key else ["permission/preset"])
            length = agent.session.length
            assert found.choose(agent, key) is False
            assert agent.session.length == length
        await ctx.dispose()

    body()
