"""What reading a composition loads: no kernel, no event loop, no evaluator."""

import subprocess
import sys

import pytest

PURE = [
    "value",
    "text.source",
    "text.yaml",
    "expression.language",
    "row",
    "grammar",
    "patch",
    "plugin_name",
    "profile",
    "compose",
    "dump",
    "home",
]
HEAVY = ["asyncio", "logging", "msgspec", "simpleeval", "ast", "inspect", "json", "difflib", "dsh.kernel"]


def loaded(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_load_nothing_heavy(module: str) -> None:
    assert not loaded(f"import dsh.composition.{module}").intersection(HEAVY)


def test_a_dump_loads_nothing_heavy() -> None:
    code = (
        "from pathlib import Path\nfrom dsh.composition.compose import compose\n"
        "from dsh.composition.dump import dump\ndump(compose('headless', [], Path('/nonexistent')))"
    )
    assert not loaded(code).intersection(HEAVY)


def test_the_evaluator_is_loaded_by_the_first_expression_only() -> None:
    assert "simpleeval" not in loaded("import dsh.composition.mount.loader")
