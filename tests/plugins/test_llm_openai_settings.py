"""Routes of `llm-openai` that the settings change, and what the row loads."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from dsh.capabilities.http import HTTP
from dsh.capabilities.launch import LAUNCH_ENVIRONMENT
from dsh.capabilities.subprocess import SUBPROCESS
from dsh.composition.environment import Environment
from dsh.kernel import Context
from dsh.kernel.schema import resolve_config
from dsh.llm.chat.openai import OpenAiAdapter
from dsh.llm.registry import LLM
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.llm.transport.credential import ContextKeys
from dsh.plugins import llm, llm_deepseek, llm_openai
from dsh.session.message import user_message
from dsh.testing.mock_server import MockModelServer
from tests.aio import aio
from tests.plugins.chat_table import SUCCESS
from tests.plugins.openai_wire import KEY, ROUTE, refused, routes, usual
from tests.plugins.test_settings_consumers import edit, provide
from tests.plugins.wire import text_of

# -- settings that change --------------------------------------------------------------------------


@aio
async def test_routes_come_change_and_go_with_the_settings_and_a_call_keeps_its_own() -> None:
    async with MockModelServer(repeat_last=True) as server, routes({}) as run:
        fiber, store = provide(run.ctx)
        await fiber
        await edit(run.ctx, store, "llm-openai", {"providers": {"one": usual(server.base_url)}})
        assert [info.provider for info in run.llm.list_providers()] == ["one"]
        assert text_of(await run.ask(route="one")) == SUCCESS

        call = await run.llm.prepare_call(LlmCallConfig("one", "m"))
        policy = {"maxRetries": 1}
        await edit(
            run.ctx,
            store,
            "llm-openai",
            {"providers": {"two": {"keyless": True, "baseURL": server.base_url, "retryPolicy": policy}}},
        )
        assert [info.provider for info in run.llm.list_providers()] == ["two"]
        assert [listed.provider for listed in run.llm.list_configurable_providers()] == ["two"]
        assert (await run.llm.prepare_call(LlmCallConfig("two", "m"))).retry_policy.max_retries == 1
        asked = LlmRequest(config=call.config, messages=(user_message("x"),))
        assert text_of([chunk async for chunk in call.stream(asked)]) == SUCCESS
        assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
        assert (await refused(run, route="one")).code == "NO_ADAPTER"

        await edit(run.ctx, store, "llm-openai", {})
        assert run.llm.list_providers() == ()
        await edit(
            run.ctx, store, "llm-openai", {"providers": {"two": {"keyless": True, "baseURL": "http://x"}}}
        )
        assert [info.provider for info in run.llm.list_providers()] == ["two"]


@aio
async def test_settings_change_a_part_of_a_route_and_what_is_wrong_leaves_it_as_it_was() -> None:
    async with routes({ROUTE: usual("http://x")}) as run:
        fiber, store = provide(run.ctx)
        await fiber
        change = {"providers": {ROUTE: {"displayName": "Gateway"}}}
        await edit(run.ctx, store, "llm-openai", change)
        assert [info.display_name for info in run.llm.list_providers()] == ["Gateway"]
        for wrong in ({"displayName": " "}, {"unknown": 1}, {"baseURL": "x"}):
            await edit(run.ctx, store, "llm-openai", {"providers": {ROUTE: wrong}})
            assert [info.display_name for info in run.llm.list_providers()] == ["Gateway"]


@aio
async def test_a_route_that_another_row_serves_cannot_be_taken_by_the_settings() -> None:
    async with routes({ROUTE: usual("http://x")}) as run:
        await run.ctx.plugin(llm_deepseek, {})
        fiber, store = provide(run.ctx)
        await fiber
        taken = {"providers": {"deepseek-official": {"keyless": True, "baseURL": "http://y"}}}
        await edit(run.ctx, store, "llm-openai", taken)
        names = {info.provider: info.display_name for info in run.llm.list_providers()}
        assert names == {ROUTE: ROUTE, "deepseek-official": "DeepSeek"}


@aio
async def test_the_routes_go_with_the_row() -> None:
    ctx = Context()
    ctx.provide(LAUNCH_ENVIRONMENT, Environment({}, []))
    await ctx.plugin(llm, {})
    fiber = ctx.plugin(llm_openai, {"providers": {"a": usual("http://x"), "b": usual("http://y")}})
    await fiber
    assert len(ctx.use(LLM).list_providers()) == 2
    await fiber.dispose()
    assert ctx.use(LLM).list_providers() == ()
    assert ctx.use(LLM).list_configurable_providers() == ()
    assert ctx.use(HTTP) is not None
    await ctx.dispose()


# -- what is loaded --------------------------------------------------------------------------------

WIRE = ("body", "call", "translator", "event", "discovery", "leaked")


def test_the_wire_is_loaded_with_the_first_call_and_not_with_the_row() -> None:
    code = (
        "import sys, json; import dsh.plugins.llm, dsh.plugins.llm_openai, dsh.plugins.llm_deepseek; "
        "print(json.dumps([name for name in sys.modules if name.startswith('dsh.llm.') or name == 'httpx']))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    loaded: Sequence[str] = json.loads(run.stdout)

    assert not {f"dsh.llm.chat.{name}" for name in WIRE} & set(loaded)
    assert not {"httpx", "dsh.llm.transport.attempt", "dsh.llm.unknown_model"} & set(loaded)


class Hiding:
    """What a route's key is hidden by, in place of the service `subprocess`."""

    def __init__(self) -> None:
        self.hidden: list[str] = []

    def hide(self, name: str) -> None:
        self.hidden.append(name)


@aio
async def test_the_variable_of_each_key_is_kept_from_child_processes_once() -> None:
    given = {"a": usual("http://x"), "b": usual("http://y"), "c": {"keyless": True, "baseURL": "http://z"}}
    async with routes(given) as run:
        service: Any = Hiding()
        run.ctx.provide(SUBPROCESS, service)
        fiber, store = provide(run.ctx)
        await fiber
        added = {"providers": {"d": usual("http://x", apiKeyEnv="GATEWAY_KEY")}}
        await edit(run.ctx, store, "llm-openai", added)
        assert service.hidden == ["OPENAI_API_KEY", "GATEWAY_KEY"]


@aio
async def test_a_route_of_which_nothing_changed_keeps_what_is_remembered_of_it() -> None:
    def config(name: str) -> llm_openai.Config:
        return resolve_config(llm_openai.Config, {"providers": {"a": usual(), "b": usual(displayName=name)}})

    async with routes({}) as run:
        adapter = OpenAiAdapter(run.ctx.use(HTTP), ContextKeys(run.ctx))
        adapter.serve(config("x").providers)
        before = adapter.routes
        adapter.serve(config("y").providers)

    assert adapter.routes["a"] is before["a"]
    assert adapter.routes["b"] is not before["b"]
