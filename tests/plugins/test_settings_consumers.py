"""The rows that let people override their options: settings over the row, the variable over both."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dsh.agent.default_model import DEFAULT_MODEL, ModelSelection
from dsh.capabilities.launch import LAUNCH_ENVIRONMENT
from dsh.capabilities.settings import SETTINGS, SettingsError
from dsh.capabilities.settings_section import SettingsSection, install_settings_section
from dsh.capabilities.shell import SHELL, ShellRequest
from dsh.composition.environment import Environment
from dsh.kernel import Context, FiberState, ScopeTarget
from dsh.llm.registry import LLM, LLM_ADAPTERS_UPDATED
from dsh.plugins import agent_default_model, approval, bash_local, permission, sandbox_policy, subprocess
from dsh.plugins.settings.document import MemoryStore
from dsh.plugins.settings.service import SettingsService
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.store import SESSION_CREATED
from dsh.testing.mock_server import MockModelServer
from tests.aio import aio
from tests.contract.providers import SHELLS, provider
from tests.plugins.settings_kit import Options
from tests.plugins.wire import against, text_of, wire
from tests.sandboxes import no_sandbox

FULL = "danger-full-access"


def provide(ctx: Context, **sections: Any) -> tuple[Any, MemoryStore]:
    """Mount the service on a context that has rows already, or is to get them."""
    store = MemoryStore({name.replace("_", "-"): value for name, value in sections.items()})

    def settings(inner: Context) -> None:
        SettingsService(inner, store)

    return ctx.plugin(settings), store


async def edit(ctx: Context, store: MemoryStore, namespace: str, section: Any) -> None:
    """Change the document from outside and let everybody know."""
    store.put(namespace, section)
    service = ctx.get(SETTINGS)
    assert isinstance(service, SettingsService)
    await service.reload()
    await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


# -- the installer ---------------------------------------------------------------------------------


@aio
async def test_a_section_follows_the_service_and_falls_back_to_the_row() -> None:
    ctx = Context()
    told: list[int] = []
    held: list[SettingsSection[Options]] = []

    def row(inner: Context) -> None:
        section = install_settings_section(
            inner, "mine", Options, Options(count=2, name="row"), changed=lambda now: told.append(now.count)
        )
        held.append(section)

    await ctx.plugin(row)
    section = held[0]
    assert (section.get().count, section.scope, told) == (2, None, [])

    fiber, store = provide(ctx, mine={"count": 3})
    await fiber
    await settle()
    assert section.get() == Options(count=3, name="row")
    assert told == [3]
    await edit(ctx, store, "mine", {"count": 4})
    assert told == [3, 4]

    await fiber.dispose()
    assert section.get() == Options(count=2, name="row")
    assert told == [3, 4, 2]
    await ctx.dispose()
    assert told == [3, 4, 2]


@aio
async def test_nobody_is_told_while_the_row_itself_goes() -> None:
    ctx = Context()
    told: list[int] = []

    def row(inner: Context) -> None:
        install_settings_section(
            inner, "mine", Options, Options(), changed=lambda now: told.append(now.count)
        )

    service, _ = provide(ctx, mine={"count": 3})
    await service
    fiber = await ctx.plugin(row)
    await settle()
    await fiber.dispose()
    assert told == [3]
    await ctx.dispose()


@aio
async def test_a_section_that_is_not_accepted_fails_below_the_row() -> None:
    ctx = Context()
    service, _ = provide(ctx, agent_default_model={"modle": "x"})
    await service
    row = await ctx.plugin(agent_default_model, {"provider": "p", "model": "m"})
    await settle()
    assert row.state is FiberState.ACTIVE
    [failed] = [f for r in ctx.kernel.runtimes.values() for f in r.fibers if f.state is FiberState.FAILED]
    assert failed.parent is row.ctx
    assert str(failed.error) == "settings agent-default-model: unknown key 'modle'"
    await ctx.dispose()


# -- agent-default-model ---------------------------------------------------------------------------


@aio
async def test_the_default_model_is_read_live_and_saved_in_the_settings() -> None:
    ctx = Context()
    service, store = provide(ctx, agent_default_model={"model": "chosen"})
    await service
    await ctx.plugin(agent_default_model, {"provider": "p", "model": "m", "reasoningEffort": "low"})
    await settle()
    found = ctx.get(DEFAULT_MODEL)
    assert found is not None
    assert found.current_selection() == ModelSelection("p", "chosen", "low")

    await edit(ctx, store, "agent-default-model", {"provider": "q", "model": "n", "reasoningEffort": "max"})
    assert found.current_selection() == ModelSelection("q", "n", "max")
    await edit(ctx, store, "agent-default-model", {"model": ""})
    assert found.current_selection() == ModelSelection("q", "n", "max")

    await found.save_selection(ModelSelection("r", "o"))
    assert store.sections["agent-default-model"] == {"provider": "r", "model": "o"}
    with pytest.raises(SettingsError):
        await found.save_selection(ModelSelection("", "o"))
    await ctx.dispose()


@aio
async def test_without_settings_saving_a_selection_does_nothing() -> None:
    ctx = Context()
    await ctx.plugin(agent_default_model, {"provider": "p", "model": "m"})
    found = ctx.get(DEFAULT_MODEL)
    assert found is not None
    await found.save_selection(ModelSelection("x", "y"))
    assert found.current_selection() == ModelSelection("p", "m")
    await ctx.dispose()


# -- shell -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", SHELLS)
@aio
async def test_the_shell_reads_its_limits_for_each_command(row: ModuleType, tmp_path: Path) -> None:
    async with provider(row, {"timeoutMs": 60_000, "maxTimeoutMs": 70_000}) as ctx:
        service, store = provide(ctx, shell={"maxTimeoutMs": 50_000})
        await service
        await settle()
        shell = ctx.get(SHELL)
        assert shell is not None
        assert (await shell.run(ShellRequest(command="true"))).timeout_ms == 50_000
        await edit(ctx, store, "shell", {"timeoutMs": 40_000, "cwd": str(tmp_path)})
        result = await shell.run(ShellRequest(command="pwd"))
        assert (result.timeout_ms, result.stdout.text) == (40_000, f"{tmp_path}\n")
        await edit(ctx, store, "shell", {"timeoutMs": -1})
        assert (await shell.run(ShellRequest(command="true"))).timeout_ms == 40_000


@aio
async def test_an_invalid_shell_section_is_refused_when_it_is_written() -> None:
    ctx = Context()
    service, _ = provide(ctx)
    await service
    await ctx.plugin(subprocess)
    await ctx.plugin(bash_local)
    await settle()
    settings = ctx.get(SETTINGS)
    assert settings is not None
    for section in ({"timeoutMs": 0}, {"graceMs": "x"}, {"maxOutputBytes": -5}, {"timeout": 1}):
        with pytest.raises(SettingsError) as caught:
            await settings.update("shell", section)
        assert caught.value.code == "SETTINGS_INVALID"
    await ctx.dispose()


# -- llm-deepseek ----------------------------------------------------------------------------------


@aio
async def test_the_model_s_row_reads_its_section_per_request_and_keeps_the_last_good_one() -> None:
    async with against(*["success"] * 4, row={"maxTokens": 11}) as (run, server):
        service, store = provide(run.ctx, llm_deepseek={"maxTokens": 22, "reasoningEffort": "low"})
        await service
        await settle()

        async def sent() -> tuple[Any, Any]:
            await run.ask()
            return server.requests[-1].body["max_tokens"], server.requests[-1].body["reasoning_effort"]

        assert await sent() == (22, "low")
        await edit(run.ctx, store, "llm-deepseek", {"maxTokens": 33})
        assert await sent() == (33, "high")
        await edit(
            run.ctx,
            store,
            "llm-deepseek",
            {"maxTokens": 44, "thinking": "disabled", "reasoningEffort": "max"},
        )
        assert await sent() == (33, "high")
        await service.dispose()
        assert await sent() == (11, "high")


@aio
async def test_a_change_of_the_endpoint_does_not_reach_into_a_prepared_call() -> None:
    async with (
        MockModelServer(["success"]) as old,
        MockModelServer(["success"]) as new,
        wire(None, baseURL=old.base_url) as run,
    ):
        service, store = provide(run.ctx)
        await service
        await settle()
        chunks = run.stream()
        first = await anext(chunks)
        await edit(run.ctx, store, "llm-deepseek", {"baseURL": new.base_url})
        rest = [first] + [chunk async for chunk in chunks]
        assert text_of(rest)
        assert (len(old.requests), len(new.requests)) == (1, 0)
        await run.ask()
        assert (len(old.requests), len(new.requests)) == (1, 1)


@aio
async def test_another_retry_policy_registers_the_route_anew_and_other_changes_do_not() -> None:
    async with wire("http://127.0.0.1:9") as run:
        told: list[None] = []
        run.ctx.on(LLM_ADAPTERS_UPDATED, told.append)
        service, store = provide(run.ctx)
        await service
        await settle()
        await edit(run.ctx, store, "llm-deepseek", {"maxTokens": 5})
        assert told == []
        await edit(run.ctx, store, "llm-deepseek", {"retryPolicy": {"maxRetries": 1}})
        assert told == [None]
        llm = run.ctx.get(LLM)
        assert llm is not None
        assert [one.provider for one in llm.list_providers()] == ["deepseek-official"]


@aio
async def test_a_key_named_by_the_settings_stays_out_of_commands_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UNUSUAL", "value")
    async with wire("http://127.0.0.1:9") as run:
        await run.ctx.plugin(subprocess)
        await run.ctx.plugin(bash_local)
        service, _ = provide(run.ctx, llm_deepseek={"apiKeyEnv": "UNUSUAL"})
        await service
        await settle()
        shell = run.ctx.get(SHELL)
        assert shell is not None
        assert (await shell.run(ShellRequest(command="echo [$UNUSUAL]"))).stdout.text == "[]\n"


# -- permission ------------------------------------------------------------------------------------

PRESETS = {
    "open": {"sandbox": FULL, "approval": "never"},
    "asking": {"sandbox": FULL, "approval": "ask"},
    "third": {"sandbox": FULL, "approval": "ask", "name": "another"},
}


@asynccontextmanager
async def permissions(
    section: Any, *, variable: str | None = None, **config: Any
) -> AsyncIterator[tuple[Context, MemoryStore]]:
    ctx = Context()
    environ = {} if variable is None else {"DSH_PERMISSION_MODE": variable}
    try:
        ctx.provide(LAUNCH_ENVIRONMENT, Environment(environ, []))
        service, store = provide(ctx, **({} if section is None else {"permission": section}))
        await service
        await ctx.plugin(no_sandbox)
        await ctx.plugin(sandbox_policy, {"mode": FULL})
        await ctx.plugin(approval, {"policy": "never"})
        await ctx.plugin(permission, {"presets": PRESETS, **config})
        await settle()
        yield ctx, store
    finally:
        await ctx.dispose()


def pinned(ctx: Context) -> str:
    session = Session(SessionHeader(id="s", created_at=0))
    ctx.emit(SESSION_CREATED, session, subject=ScopeTarget(None))
    event = session.last("permission/preset")
    assert event is not None
    return str(event.data["preset"])


@pytest.mark.parametrize(
    ("variable", "section", "row", "expected"),
    [
        (None, None, None, "open"),
        (None, None, "asking", "asking"),
        (None, {"defaultPreset": "third"}, "asking", "third"),
        (None, {"defaultPreset": None}, "asking", "asking"),
        (FULL, {"defaultPreset": "third"}, "asking", "open"),
        (FULL, None, "asking", "open"),
        ("", {"defaultPreset": "third"}, None, "third"),
        ("read-only", {"defaultPreset": "third"}, None, "third"),  # a patch has fixed another mode
    ],
)
@aio
async def test_the_variable_outranks_the_settings_which_outrank_the_row(
    variable: str | None, section: Any, row: str | None, expected: str
) -> None:
    async with permissions(section, variable=variable, defaultPreset=row) as (ctx, _):
        assert pinned(ctx) == expected


@aio
async def test_a_changed_preset_counts_for_the_next_session_and_a_wrong_one_does_not() -> None:
    async with permissions({"defaultPreset": "asking"}) as (ctx, store):
        await edit(ctx, store, "permission", {"defaultPreset": "third"})
        assert pinned(ctx) == "third"
        await edit(ctx, store, "permission", {"defaultPreset": "thrid"})
        assert pinned(ctx) == "third"
        await edit(ctx, store, "permission", None)
        assert pinned(ctx) == "open"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("thrid", r"settings permission\.defaultPreset: 'thrid' is not a preset"),
        ("narrow", r"settings permission\.defaultPreset: preset 'narrow' asks for sandbox mode 'read-only'"),
    ],
)
@aio
async def test_a_preset_that_does_not_exist_or_cannot_be_kept_is_refused(name: str, words: str) -> None:
    presets = {**PRESETS, "narrow": {"sandbox": "read-only", "approval": "ask"}}
    async with permissions(None, presets=presets) as (ctx, _):
        settings = ctx.get(SETTINGS)
        assert settings is not None
        with pytest.raises(SettingsError, match=words) as caught:
            await settings.update("permission", {"defaultPreset": name})
        assert caught.value.hint
