"""Settings that change under a call: one generation serves it whole, the next attempt is of the new one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dsh.kernel import Context
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.session.message import user_message
from dsh.testing.mock_server.part import Text, whole
from tests.agent.kit import ends
from tests.aio import aio, aio_in_virtual_time
from tests.contract.wire.memory_http import MemoryHttp
from tests.contract.wire.recovery import looped
from tests.contract.wire.wires import MEMORY, Line, Reply, Wire, composed, in_memory, over_wires
from tests.plugins.test_settings_consumers import edit, provide, settle

ELSEWHERE = "http://elsewhere.invalid/v1"


class Section:
    """The settings section of a wire's row."""

    def __init__(self, ctx: Context, wire: Wire, store: Any) -> None:
        self._ctx, self._wire, self._store = ctx, wire, store

    async def change(self, base_url: str, **changes: Any) -> None:
        section = self._wire.config(base_url, **changes)
        await edit(self._ctx, self._store, self._wire.row.replace("_", "-"), section)


@asynccontextmanager
async def settings_of(ctx: Context, wire: Wire) -> AsyncIterator[Section]:
    """The service, and the section of the row that is mounted already."""
    mounting, store = provide(ctx)
    await mounting
    await settle()
    yield Section(ctx, wire, store)


@over_wires
@aio
async def test_a_prepared_call_is_of_the_settings_it_was_prepared_with(wire: Wire) -> None:
    http = MemoryHttp([wire.plan(whole(Text("old"))), wire.plan(whole(Text("new")))])
    keys = {wire.key_variable: "old-secret", "ANOTHER_API_KEY": "new-secret"}
    async with composed(http, keys) as ctx:
        await wire.mount(ctx, MEMORY)
        line = Line(ctx, wire)
        async with settings_of(ctx, wire) as section:
            call = await line.llm.prepare_call(LlmCallConfig(wire.route, "m"))
            await section.change(ELSEWHERE, apiKeyEnv="ANOTHER_API_KEY")

            asked = LlmRequest(config=call.config, messages=(user_message("x"),))
            assert Reply([chunk async for chunk in call.stream(asked)]).text == "old"
            assert (await line.ask()).text == "new"

    old, new = http.sent
    assert old.url.startswith(MEMORY) and "old-secret" in str(old.headers)
    assert new.url.startswith(ELSEWHERE) and "new-secret" in str(new.headers)


@over_wires
@aio_in_virtual_time
async def test_a_retry_is_prepared_anew_and_goes_where_the_settings_say_by_then(wire: Wire) -> None:
    plans = [wire.error("server_error"), wire.plan(whole(Text("yes")))]
    async with looped(wire, plans, {}) as it, settings_of(it.ctx, wire) as section:
        prompting = asyncio.ensure_future(it.prompt("go"))
        await asyncio.sleep(0.1)
        assert len(it.rows("llm/retry")) == 1 and it.rows("llm/retry-started") == []
        await section.change(ELSEWHERE)
        await prompting

        assert ends(it.agent.session) == [{"kind": "completed"}]
        assert [sent.url.startswith(ELSEWHERE) for sent in it.sent] == [False, True]
        assert it.sent[0].body["messages"] == it.sent[1].body["messages"]


@over_wires
@aio
async def test_settings_that_cannot_be_leave_the_last_good_ones(wire: Wire) -> None:
    plans = [wire.plan(whole(Text("yes"))) for _ in range(4)]
    async with in_memory(wire, *plans) as line, settings_of(line.ctx, wire) as section:
        await section.change(ELSEWHERE)
        for wrong in ({"streamIdleTimeoutMs": -1}, {"nobodyKnows": 1}, {"retryPolicy": {"maxRetries": -1}}):
            await section.change("http://wrong.invalid", **wrong)
            await line.ask()
        await section.change("no url")
        await line.ask()

        assert [sent.url.startswith(ELSEWHERE) for sent in line.sent] == [True] * 4
