"""Prices in `settings.yaml`, as commands read them without any row."""

import subprocess
import sys
from pathlib import Path

import pytest

from dsh.capabilities.prices import PricesError, read_prices
from dsh.session.projection.price import Price


def home(tmp_path: Path, text: str) -> Path:
    (tmp_path / "settings.yaml").write_text(text)
    return tmp_path


def test_a_price_by_route(tmp_path: Path) -> None:
    text = """
models:
  deepseek-official/deepseek-v4-flash:
    price: {input: 0.3, output: 1, cacheRead: 0.03}
    contextWindow: 7
    name: "旗舰"
  acme/free: {}
shell: {timeoutMs: 5}
"""
    assert read_prices(home(tmp_path, text)) == {
        "deepseek-official/deepseek-v4-flash": Price(input=0.3, output=1, cache_read=0.03)
    }


@pytest.mark.parametrize("text", ["", "shell: {}", "models:", "models: {}", "[]"])
def test_where_nothing_is_said_nothing_has_a_price(tmp_path: Path, text: str) -> None:
    assert read_prices(home(tmp_path, text)) == {}
    assert read_prices(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: 7", "settings.yaml:1:1: models is a mapping from routes"),
        ("models:\n  a/b: 7", "settings.yaml:2:3: models.a/b: Expected object"),
        ("models:\n  a/b:", "settings.yaml:2:3: models.a/b: "),
        ("models:\n  flash: {}", "settings.yaml:2:3: models.flash: no route is named so"),
        ("models:\n  /flash: {}", "settings.yaml:2:3: models./flash: "),
        ("models:\n  p/: {}", "settings.yaml:2:3: models.p/: "),
        ("models:\n  acme:\n    flash: {price: {input: 1, output: 1}}", "models.acme: no route is named so"),
        ("models:\n  a/b: {prise: {}}", "unknown field prise"),
        ("models:\n  a/b: {contextWindow: 0}", "models.a/b.contextWindow"),
        ("models:\n  a/b: {price: {input: 1, output: 1, cachRead: 1}}", "models.a/b.price: "),
        ("models:\n  a/b: {price: {input: 1000001, output: 1}}", "models.a/b.price.input"),
        ("models:\n  a/b: {price: {input: x, output: 1}}", "models.a/b.price.input"),
        ("models:\n  a/b: {price: {input: -1, output: 1}}", "models.a/b.price.input"),
        ("models:\n  a/b: {price: {input: 1}}", "output"),
        ("models:\n  a/b: {price: {input: !expr env.X, output: 1}}", "models.a/b.price.input"),
    ],
)
def test_a_price_that_is_none_is_named_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PricesError) as refused:
        read_prices(home(tmp_path, text))
    assert said in refused.value.message
    assert '{"<provider>/<model>": {price: ' in refused.value.hint


def test_settings_that_cannot_be_read_are_named_and_not_quoted(tmp_path: Path) -> None:
    with pytest.raises(PricesError) as refused:
        read_prices(home(tmp_path, "models: {}\nkey: 'hunter2\n"))
    assert "settings.yaml:" in refused.value.message
    assert "hunter2" not in refused.value.message + refused.value.hint

    (tmp_path / "settings.yaml").unlink()
    (tmp_path / "settings.yaml").mkdir()
    with pytest.raises(PricesError, match=r"settings\.yaml: Is a directory"):
        read_prices(tmp_path)


LOADED = """
import sys
from pathlib import Path
from dsh.capabilities.prices import read_prices
from dsh.persistence.projections import read_rows
read_prices(Path("/nonexistent"))
print(*sorted({"dsh.kernel", "asyncio", "httpx", "sqlite3", "zstandard"} & sys.modules.keys()))
"""


def test_commands_read_prices_and_stored_titles_without_the_kernel() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")
