"""The page about tools names every code, stage, field and card that there is."""

import re
from pathlib import Path

import msgspec

from docs.generate.source import REPOSITORY
from dsh.kernel import Event
from dsh.tools import event
from dsh.tools.definition import ToolDefinition
from dsh.tools.presentation import CallCard, ResultCard

PAGE = (REPOSITORY / "docs" / "tools.md").read_text(encoding="utf-8")
REGISTRATION = {"INVALID_TOOL", "RESERVED_TOOL", "DUPLICATE_TOOL", "UNSCOPED", "EMPTY_RESTRICTION"}
"""Codes of registrations, not of calls."""


def codes_in(path: Path) -> set[str]:
    return set(re.findall(r'code="([A-Z_]+)"', path.read_text(encoding="utf-8")))


def test_every_code_of_a_call_is_there() -> None:
    modules = [*(REPOSITORY / "dsh" / "tools").glob("*.py"), REPOSITORY / "dsh" / "agent" / "scheduler.py"]
    codes = set().union(*map(codes_in, modules)) - REGISTRATION - {"UNSUPPORTED_SCHEMA"}

    assert codes and {code for code in codes if f"`{code}`" not in PAGE} == set()


def test_every_stage_is_there() -> None:
    names = {one.name for one in vars(event).values() if isinstance(one, Event)} - {"tools/change"}

    assert {name for name in names if f"`{name}`" not in PAGE} == set()


def test_every_field_of_a_definition_is_there() -> None:
    fields = set(ToolDefinition.__struct_fields__)
    shown = {"is_concurrency_safe": "concurrency_safe"}

    assert {name for name in fields if f"`{shown.get(name, name)}`" not in PAGE} == set()


def test_every_card_is_there() -> None:
    kinds = (*CallCard.__args__, *ResultCard.__args__)
    tags = {kind.__struct_config__.tag for kind in kinds if issubclass(kind, msgspec.Struct)}

    assert {tag for tag in tags if f"`{tag}`" not in PAGE} == set()
