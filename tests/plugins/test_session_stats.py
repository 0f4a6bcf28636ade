"""The row `session-stats`: figures of a live session, with the prices that the settings say now."""

from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities.projections import PROJECTIONS
from dsh.kernel import Context
from dsh.llm.adapter import ModelInfo
from dsh.llm.registry import LLM, LlmRegistry
from dsh.plugins import model_catalogue, session_projection, session_stats
from dsh.plugins import session as session_row
from dsh.plugins.settings.document import MemoryStore
from dsh.plugins.settings.service import SettingsService
from dsh.session.log import Session
from dsh.session.projection.price import Price
from dsh.session.store import SESSIONS
from dsh.testing.workspace import Workspace
from tests.agent.kit import ScriptedModel, settled
from tests.aio import aio
from tests.e2e.model import serve
from tests.e2e.reply import text
from tests.session.build import reply

PRICED = {"acme/acme-1": {"price": {"input": 2.0, "output": 4.0}}}


async def mounted(document: MemoryStore | None = None) -> tuple[Context, Session]:
    ctx = Context()
    await ctx.plugin(session_row)
    if document is not None:

        def settings(inner: Context) -> None:
            SettingsService(inner, document)

        await ctx.plugin(settings)
    await ctx.plugin(model_catalogue)
    await settled(ctx.plugin(session_projection, {}))
    await settled(ctx.plugin(session_stats, {}))
    log, _ = ctx.use(SESSIONS).create("one")
    log.append("turn/start", {"turn": 1})
    log.append("step/start", {"turn": 1, "step": 1})
    usage = {"inputTokens": 500_000, "outputTokens": 250_000}
    data = {"turn": 1, "step": 1, "message": reply(), "usage": usage}
    log.append("assistant/message", data, surface="append", sources=[])
    return ctx, log


def cost(ctx: Context, log: Session) -> Any:
    return ctx.use(PROJECTIONS).snapshot(log).values["sessionStats"]["costUsd"]


@aio
async def test_what_a_route_costs_is_said_in_the_settings() -> None:
    document = MemoryStore({"models": PRICED})
    ctx, log = await mounted(document)
    assert cost(ctx, log) == pytest.approx(2.0)

    document.put("models", {"acme/acme-1": {"price": {"input": 0.0, "output": 4.0}}})
    from dsh.capabilities.settings import SETTINGS

    service: Any = ctx.use(SETTINGS)
    await service.reload()
    assert cost(ctx, log) == pytest.approx(1.0)
    await ctx.dispose()


@aio
async def test_without_settings_nothing_has_a_price() -> None:
    ctx, log = await mounted()
    assert cost(ctx, log) is None
    await ctx.dispose()


class Adapter(ScriptedModel):
    """Says a price, or fails to."""

    def __init__(self, price: Price | None) -> None:
        super().__init__()
        self._price = price

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        if self._price is None:
            raise ZeroDivisionError("no price today")
        return ModelInfo(provider=provider, id=model, name=model, price=self._price)


@aio
async def test_the_adapter_of_the_route_knows_its_price_best(caplog: pytest.LogCaptureFixture) -> None:
    ctx, log = await mounted(MemoryStore({"models": PRICED}))
    await settled(ctx.plugin(LlmRegistry, name="llm"))
    assert cost(ctx, log) == pytest.approx(2.0), "no adapter serves the route"
    assert caplog.text == "", "which is no fault of anybody's"

    ctx.use(LLM).register_adapter(["acme"], Adapter(Price(input=10, output=0)))
    # half a million tokens of input
    assert cost(ctx, log) == pytest.approx(5.0)
    await ctx.dispose()


@aio
async def test_where_the_adapter_knows_no_price_the_settings_may() -> None:
    ctx, log = await mounted(MemoryStore({"models": PRICED}))
    await settled(ctx.plugin(LlmRegistry, name="llm"))
    ctx.use(LLM).register_adapter(["acme"], ScriptedModel())

    assert cost(ctx, log) == pytest.approx(2.0)
    await ctx.dispose()


@aio
async def test_an_adapter_that_fails_costs_nothing_but_its_price(caplog: pytest.LogCaptureFixture) -> None:
    ctx, log = await mounted(MemoryStore({"models": PRICED}))
    await settled(ctx.plugin(LlmRegistry, name="llm"))
    ctx.use(LLM).register_adapter(["acme"], Adapter(None))

    assert cost(ctx, log) == pytest.approx(2.0), "the settings say one"
    assert cost(ctx, log) == pytest.approx(2.0)
    assert caplog.text.count("the adapter of route acme tells no price: no price today") == 1
    await ctx.dispose()


def test_a_price_that_is_none_stops_the_start_with_its_line(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    (space.home / "settings.yaml").write_text("models:\n  a/b: {price: {input: cheap, output: 1}}\n")

    done = space.run("run", "hello")

    assert done.code == 3
    assert (
        "settings.yaml:2:24: settings models.a/b.price.input: expected number but got string" in done.stderr
    )


def test_a_priced_model_runs_as_any_other(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    (space.home / "settings.yaml").write_text(
        "models:\n  deepseek-official/deepseek-v4-flash: {price: {input: 1, output: 2}}\n"
    )
    with serve([text("ok")]) as model:
        space.use_model(model.base_url)
        done = space.run("run", "hello")

    assert (done.code, done.stdout, done.stderr) == (0, "ok\n", "")
