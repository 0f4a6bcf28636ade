"""The documents can be followed: commands print what they say, links lead somewhere, code is code."""

import ast
import json
import re
from pathlib import Path

import pytest

from docs.generate.page import pages
from docs.generate.source import REPOSITORY
from dsh.composition.grammar import read_patches
from dsh.composition.text.yaml import parse_yaml
from tests.docs.page import Reader, blocks, matches

FOLLOWED = [path for path in pages() if any(block.language == "console" for block in blocks(path))]
LANGUAGES = {"console", "json", "python", "yaml", "toml", "sh", "text"}


@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: page.name)
def test_a_reader_who_does_what_the_page_says_sees_what_it_says(page: Path, tmp_path: Path) -> None:
    assert Reader(tmp_path / "家 目录").follow(page) == []  # a home in another script, with a blank in it


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_blocks_are_what_they_say(page: Path) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{page.name}:{block.line}"
        if block.language == "python":
            ast.parse(block.text)
        if block.language == "json":
            json.loads(block.text)
        if block.language == "yaml" and block.text.lstrip("# ").startswith("- "):
            said: list[str] = []
            read_patches(parse_yaml(block.text.encode(), page.name), page.name, said.append)
            assert said == [], f"{page.name}:{block.line}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_and_named_paths_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    named = re.findall(
        r"`((?:dsh|docs|tests|bundles|profiles|benchmarks|examples)/[\w./*-]*)`", text.replace("…", "")
    )
    anchors = re.findall(r"\]\(#([^)]+)\)", text)

    assert [link for link in links if not (page.parent / link).exists()] == []
    assert [path for path in named if not any(REPOSITORY.glob(path.rstrip("/")))] == []
    assert [anchor for anchor in anchors if not re.search(rf"^#+ {re.escape(anchor)}$", text, re.M)] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_page_but_the_generated_ones_is_of_a_length_to_read(page: Path) -> None:
    text = re.sub(r"<!-- generated: .*?<!-- end of generated", "", page.read_text("utf-8"), flags=re.S)

    assert len(text.splitlines()) < 500
    lines = [line for line in text.splitlines() if not line.startswith("|")]
    assert [line for line in lines if len(line) > 130] == []


@pytest.mark.parametrize(
    ("expected", "printed", "is_right"),
    [
        ("one\ntwo", "one\ntwo\n", True),
        ("one", "two", False),
        ("one…", "one and more", True),
        ("one\n…\nfour", "one\ntwo\nthree\nfour", True),
        ("one\n…", "one", True),
        ("one…", "one\ntwo", False),
        ("", "", True),
        ("", "something", False),
    ],
)
def test_a_page_is_held_to_its_word(expected: str, printed: str, is_right: bool) -> None:
    assert matches(expected, printed) is is_right
