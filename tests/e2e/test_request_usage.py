"""What requests used and cost: from the provider's report to the log and the figures."""

import json
from pathlib import Path

import pytest

from dsh.testing.workspace import Workspace
from tests.e2e.model import serve
from tests.e2e.reply import text

ROUTE = "deepseek-official/deepseek-v4-flash"


def test_a_price_of_the_settings_becomes_a_cost_in_log_and_figures(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    (space.home / "settings.yaml").write_text(
        f"models:\n  {ROUTE}: {{price: {{input: 1000, output: 2000}}}}\n"
    )
    with serve([text("ok")]) as model:
        space.use_model(model.base_url)
        done = space.run("run", "hello")
    assert done.code == 0, done.stderr
    # what it cost stays what it cost, whatever a token costs later
    (space.home / "settings.yaml").write_text(f"models:\n  {ROUTE}: {{price: {{input: 1, output: 2}}}}\n")

    shown = json.loads(space.run("sessions", "stats", "last", "--requests", "--json").stdout)

    [request] = shown["requests"]
    tokens = request["tokens"]
    cost = (tokens["input"] + tokens["cacheRead"]) / 1000 + tokens["output"] / 500
    assert cost > 0
    assert request["costUsd"] == pytest.approx(cost, abs=1e-9)
    assert (request["route"], request["costFrom"]) == (ROUTE, "log")
    assert shown["stats"]["costUsd"] == pytest.approx(cost, abs=1e-9)


def test_a_model_without_a_price_has_tokens_and_no_cost(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    with serve([text("ok")]) as model:
        space.use_model(model.base_url)
        done = space.run("run", "hello")
    assert done.code == 0, done.stderr

    shown = space.run("sessions", "stats", "last", "--requests").stdout

    assert f"not known: there is no price of {ROUTE}" in shown
    assert "1.1" in shown


def test_settings_say_how_large_a_window_is(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    (space.home / "settings.yaml").write_text(f"models:\n  {ROUTE}: {{contextWindow: 123456}}\n")
    with serve([text("ok")]) as model:
        space.use_model(model.base_url)
        done = space.run("run", "hello")
    assert done.code == 0, done.stderr

    raw = space.run("sessions", "show", "last", "--raw").stdout

    assert '"contextWindow":123456' in raw
