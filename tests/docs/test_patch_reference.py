"""The reference of patch files names every key, name and function, and its examples are true."""

import json
import re
from pathlib import Path

import pytest

from docs.generate.source import REPOSITORY
from dsh.composition.expression.evaluation import Scope, evaluate
from dsh.composition.expression.language import FUNCTIONS, NAMES
from dsh.composition.grammar import PATCH_FIELDS, ROW_FIELDS
from dsh.composition.value import Expr, Mark

PAGE = (REPOSITORY / "docs" / "patch-reference.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """What stands below a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no heading {title!r}"
    return found[1]


def first_cells(title: str) -> list[str]:
    """What stands in code type in the first column of the table below a heading, in order."""
    cells = re.findall(r"^\| (`.*?`) \|", section(title), re.MULTILINE)
    return [word for cell in cells for word in re.findall(r"`([^`]+)`", cell)]


def test_every_key_of_a_row_has_its_line_and_no_other() -> None:
    assert sorted(first_cells("Keys of a row")) == sorted(ROW_FIELDS)


def test_every_key_of_a_patch_has_its_line_and_no_other() -> None:
    assert sorted(first_cells("Keys of a patch")) == sorted(set(PATCH_FIELDS) - set(ROW_FIELDS))


def test_every_name_of_the_expression_language_has_its_line() -> None:
    assert sorted(first_cells("Names")) == sorted(NAMES)


def test_every_function_of_the_expression_language_has_its_line() -> None:
    assert sorted(cell.partition("(")[0] for cell in first_cells("Functions")) == sorted(FUNCTIONS)


EXAMPLES = re.findall(r"^\| `(.+)` \| `(.+)` \|$", section("The language by example"), re.MULTILINE)


@pytest.mark.parametrize(("text", "value"), EXAMPLES)
def test_an_expression_gives_what_the_page_says(
    text: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    env = {"MODE": "fast", "EMPTY": ""}
    scope = Scope(env=env, cwd="/work", profile="headless", home=Path("/home"), ctx=None)

    assert evaluate(Expr(text, Mark("page.yml", 1, 1)), scope) == json.loads(value)


def test_the_page_has_enough_examples() -> None:
    shown = " ".join(text for text, _ in EXAMPLES)

    assert len(EXAMPLES) > 10
    assert all(f"{name}(" in shown for name in set(FUNCTIONS) - {"home", "here"})
