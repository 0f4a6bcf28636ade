"""The row `model-catalogue`: what settings and row say of routes, and the catalogue that ships."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities.model_catalogue import MODEL_CATALOGUE, ModelCatalogue
from dsh.capabilities.model_facts import ModelFacts
from dsh.capabilities.settings import SETTINGS
from dsh.kernel import Context
from dsh.plugins import model_catalogue
from dsh.plugins.settings.document import MemoryStore
from dsh.plugins.settings.service import SettingsService
from dsh.session.projection.price import Price
from dsh.testing.workspace import Workspace
from tests.aio import aio


async def mounted(
    config: Mapping[str, Any] | None = None, document: MemoryStore | None = None
) -> tuple[Context, ModelCatalogue]:
    ctx = Context()
    if document is not None:

        def settings(inner: Context) -> None:
            SettingsService(inner, document)

        await ctx.plugin(settings)
    await ctx.plugin(model_catalogue, config or {})
    return ctx, ctx.use(MODEL_CATALOGUE)


@aio
async def test_what_the_settings_say_of_a_route_is_known_at_once() -> None:
    document = MemoryStore({"models": {"p/m": {"contextWindow": 1000, "price": {"input": 1, "output": 2}}}})
    ctx, catalogue = await mounted(document=document)
    assert catalogue.configured("p", "m") == ModelFacts(context_window=1000, price=Price(input=1, output=2))
    assert catalogue.configured("p", "other") is None
    assert catalogue.configured("other", "m") is None

    document.put("models", {"p/m": {"maxOutputTokens": 5}})
    service: Any = ctx.use(SETTINGS)
    await service.reload()
    assert catalogue.configured("p", "m") == ModelFacts(max_output_tokens=5)
    await ctx.dispose()


@aio
async def test_an_id_may_hold_slashes() -> None:
    ctx, catalogue = await mounted({"models": {"openai-compatible/qwen/coder": {"contextWindow": 7}}})
    assert catalogue.configured("openai-compatible", "qwen/coder") == ModelFacts(context_window=7)
    await ctx.dispose()


@aio
async def test_settings_are_laid_over_what_the_row_says() -> None:
    row = {"models": {"p/m": {"contextWindow": 1, "maxOutputTokens": 2}, "p/n": {"name": "N"}}}
    document = MemoryStore({"models": {"p/m": {"contextWindow": 3}}})
    ctx, catalogue = await mounted(row, document)

    assert catalogue.configured("p", "m") == ModelFacts(context_window=3, max_output_tokens=2)
    assert catalogue.configured("p", "n") == ModelFacts(name="N")
    await ctx.dispose()


@aio
async def test_what_ships_is_asked_by_vendor() -> None:
    ctx, catalogue = await mounted()
    facts = catalogue.shipped("anthropic", "claude-opus-5")
    assert facts is not None and facts.context_window == 1_000_000
    assert catalogue.shipped("anthropic", "nothing") is None
    await ctx.dispose()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{contextWindow: 0}", "models.a/b.contextWindow"),
        ("{maxOutputTokens: many}", "models.a/b.maxOutputTokens"),
        ("{price: {input: 1}}", "models.a/b.price"),
        ("{price: {input: 1, output: 2, long: {input: 1, output: 2}}}", "models.a/b.price.long"),
        ("{price: {input: 1e7, output: 2}}", "models.a/b.price.input"),
        ("{contextWindow: 9007199254740992}", "models.a/b.contextWindow"),
        ("{name: ' '}", "models.a/b.name"),
        ("{inputModalities: [smell]}", "models.a/b.inputModalities"),
    ],
)
def test_what_is_wrong_in_the_settings_stops_the_start_with_its_line(
    tmp_path: Path, text: str, said: str
) -> None:
    space = Workspace(tmp_path)
    (space.home / "settings.yaml").write_text(f"models:\n  a/b: {text}\n")

    done = space.run("run", "hello")

    assert done.code == 3
    assert "settings.yaml:2:" in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize("key", ["flash", "/flash", "acme/"])
def test_a_key_that_is_no_route_is_refused_wherever_it_stands(tmp_path: Path, key: str) -> None:
    """It would never be asked for, and nobody would know why there is no price."""
    space = Workspace(tmp_path)
    (space.home / "settings.yaml").write_text(f"models:\n  {key}: {{contextWindow: 7}}\n")
    done = space.run("run", "hello")
    assert done.code == 3
    assert "settings.yaml:" in done.stderr
    assert f"settings models: {key}: no route is named so; write <provider>/<model>" in done.stderr

    with pytest.raises(ValueError, match="no route is named so"):
        model_catalogue.Config(models={key: ModelFacts()})


LOADED = """
import asyncio, sys
from dsh.kernel import Context
from dsh.plugins import model_catalogue
from dsh.capabilities.model_catalogue import MODEL_CATALOGUE
async def main():
    ctx = Context()
    await ctx.plugin(model_catalogue)
    catalogue = ctx.use(MODEL_CATALOGUE)
    catalogue.configured("p", "m")
    print("dsh.llm.catalogue.shipped" in sys.modules)
    catalogue.shipped("openai", "m")
    print("dsh.llm.catalogue.shipped" in sys.modules)
asyncio.run(main())
"""


def test_the_data_is_loaded_with_the_first_question_about_it() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\nTrue\n", "")
