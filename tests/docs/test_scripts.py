"""The page on testing names every key of a scripted reply, and every code of a script that does not fit."""

import re

import msgspec

import dsh.llm.script.error as codes
from docs.generate.source import REPOSITORY
from dsh.llm.script.reply import Reply, ReplyError, ToolCall, Usage

PAGE = REPOSITORY / "docs" / "testing.md"


def test_every_key_and_every_code_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    said = set(re.findall(r"`(\w+)`", text))

    def keys(struct: type[msgspec.Struct]) -> set[str]:
        return {field.encode_name for field in msgspec.structs.fields(struct)}

    assert keys(Reply) <= rows
    assert keys(ToolCall) | keys(ReplyError) | keys(Usage) <= said
    made = {value for name, value in vars(codes).items() if name.isupper()}
    assert rows - keys(Reply) == made
