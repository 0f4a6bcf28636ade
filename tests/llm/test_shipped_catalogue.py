"""The catalogue that ships: every figure has a page and a day, and nothing in it is at odds with itself."""

import json
from datetime import date
from typing import Any
from urllib.parse import urlsplit

import pytest

from dsh.llm.catalogue.shipped import FILE, ShippedModel, shipped_facts, shipped_models
from dsh.plugins.llm_deepseek import Config

ENTRIES = [
    pytest.param(entry, id=f"{vendor}/{model}")
    for vendor, models in shipped_models().items()
    for model, entry in models.items()
]


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_names_its_sources_and_days(entry: ShippedModel) -> None:
    assert entry.source.startswith("https://")
    assert date.fromisoformat(entry.date) > date(2025, 1, 1)
    assert bool(entry.price_source) == bool(entry.price_date)
    if entry.price_source:
        assert entry.price_source.startswith("https://")
        assert date.fromisoformat(entry.price_date) > date(2025, 1, 1)


OWN_PAGES = {
    "anthropic": "platform.claude.com",
    "deepseek": "api-docs.deepseek.com",
    "openai": "developers.openai.com",
}


def test_a_price_is_from_a_page_of_the_vendor_itself() -> None:
    priced = [
        (vendor, model, urlsplit(entry.price_source or entry.source).hostname)
        for vendor, models in shipped_models().items()
        for model, entry in models.items()
        if entry.price is not None
    ]
    assert len(priced) > 5
    assert [found for found in priced if found[2] != OWN_PAGES.get(found[0])] == []


def test_vendors_and_models_are_in_order_and_none_is_there_twice() -> None:
    pairs: list[list[str]] = []

    def see(found: list[tuple[str, Any]]) -> dict[str, Any]:
        pairs.append([key for key, _ in found])
        return dict(found)

    shipped = json.loads(FILE.read_bytes(), object_pairs_hook=see)
    assert all(len(set(keys)) == len(keys) for keys in pairs)
    assert list(shipped) == sorted(shipped)
    assert all(list(models) == sorted(models) for models in shipped.values())


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_without_a_price_says_why(entry: ShippedModel) -> None:
    assert entry.price is not None or entry.price_note
    assert entry.price is not None or not entry.price_source


@pytest.mark.parametrize("entry", ENTRIES)
def test_figures_are_plausible(entry: ShippedModel) -> None:
    window, longest, price = entry.context_window, entry.max_output_tokens, entry.price
    assert "text" in entry.input_modalities
    assert window is None or longest is None or longest <= window
    if price is not None:
        assert 0 < price.input < price.output < 1000
        assert price.cache_read is None or price.cache_read < price.input
        assert price.cache_write is None or price.cache_write >= price.input
    if price is not None and price.long is not None:
        assert window is not None and price.long.above_input_tokens < window
        assert (price.long.input, price.long.output) > (price.input, price.output)


def test_the_models_that_the_deepseek_row_lists_are_in_it_with_the_same_window() -> None:
    for model in Config().models:
        facts = shipped_facts("deepseek", model.id)
        assert facts is not None
        assert facts.context_window == model.context_window


@pytest.mark.parametrize("snapshot", ["claude-haiku-4-5-20251001", "claude-haiku-4-5"])
def test_a_dated_snapshot_is_the_model_it_is_of(snapshot: str) -> None:
    facts = shipped_facts("anthropic", snapshot)
    assert facts is not None
    assert facts.context_window == 200_000


@pytest.mark.parametrize(
    ("vendor", "model"),
    [("anthropic", "claude-unheard-of"), ("nobody", "gpt-5"), ("anthropic", ""), ("openai", "gpt-5-2025")],
)
def test_what_is_not_in_it_is_not_known(vendor: str, model: Any) -> None:
    assert shipped_facts(vendor, model) is None
