"""The page on providers: its patches make routes, and its tables tell the switches that there are."""

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from docs.generate.source import REPOSITORY
from dsh.composition.compose import compose
from dsh.kernel.schema import resolve_config
from dsh.llm.chat.dialect import Compat, ThinkingStyle, dialect_of
from dsh.plugins.llm_openai import Config
from tests.docs.page import Block, blocks

PAGE = REPOSITORY / "docs" / "providers.md"
PATCHES = [block for block in blocks(PAGE) if block.name.endswith(".yml")]


@pytest.mark.parametrize("block", PATCHES, ids=lambda block: block.name)
def test_each_patch_adds_a_route_to_the_one_there_is(block: Block, tmp_path: Path) -> None:
    file = tmp_path / block.name
    file.write_text(block.text, encoding="utf-8")
    composed = compose("headless", [file], tmp_path / "home", environ={})
    assert composed.warnings == []
    row = next(row for row in composed.rows if row.id == "llm-openai")
    providers = resolve_config(Config, row["config"]).providers

    assert len(providers) == 2
    assert "openai-compatible" in providers
    for route in providers.values():
        dialect_of(route.compat)


def test_the_tables_name_every_switch_and_every_style() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))

    assert {field.encode_name for field in msgspec.structs.fields(Compat)} <= named
    assert set(get_args(ThinkingStyle)) <= named
