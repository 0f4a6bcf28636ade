"""The tools `write` and `edit`: what they answer, what they keep for display, and when they refuse."""

import json
from pathlib import Path
from typing import Any

import pytest

from dsh.agent.prompt import SYSTEM_PROMPT, PromptContext
from dsh.capabilities.fs import FS_EDIT_INTENT, FS_OBSERVED, FsError, FsObserved, Present
from dsh.plugins import system_prompt
from tests.aio import aio
from tests.corpus import CORPUS, needs_corpus
from tests.plugins.files import PLAIN, mounted


@needs_corpus
@pytest.mark.parametrize("name", ["write-read-edit", "edit-ambiguous"])
@aio
async def test_results_are_those_that_the_original_gave(tmp_path: Path, name: str) -> None:
    scenario = json.loads((CORPUS / "scenarios" / f"{name}.json").read_text())
    for file, text in scenario["options"].get("files", {}).items():
        (tmp_path / file).write_text(text)
    calls = [call for reply in scenario["model_script"] for call in reply.get("tools", [])]
    answers = [m["content"] for m in scenario["requests"][-1]["body"]["messages"] if m["role"] == "tool"]
    async with mounted(tmp_path) as kit:
        for call, answer in zip(calls, answers, strict=True):
            if call["name"] in ("read", "write", "edit"):
                arguments = json.loads(call["raw"].replace("$CWD", str(tmp_path)))
                assert await kit.text(call["name"], **arguments) == answer

    for file, text in scenario["files_after"].items():
        assert (tmp_path / file).read_text() == text


@aio
async def test_write_tells_create_from_update(tmp_path: Path) -> None:
    frame = "<path>/ws/f</path>\n<type>file</type>\n<content>\n{}\n</content>"
    async with mounted(tmp_path) as kit:
        assert await kit.text("write", file_path="f", content="") == frame.format("Created file")
        assert await kit.text("write", file_path="f", content="x") == frame.format("Updated file")


@aio
async def test_write_keeps_hunks_for_display_under_the_path_as_sent(tmp_path: Path) -> None:
    async with mounted(tmp_path) as kit:
        assert await kit.meta("write", file_path="./f", content="a\nb\n") == {"diffs": ()}
        assert await kit.meta("write", file_path="./f", content="a\nB\n") == {
            "diffs": ({"path": "./f", "oldText": "a\nb", "newText": "a\nB"},)
        }


@aio
async def test_edit_keeps_one_hunk_for_each_place(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"{n} here\n" if n % 20 == 10 else f"{n}\n" for n in range(60)))
    async with mounted(tmp_path) as kit:
        await kit.run("read", file_path="f")
        meta = await kit.meta("edit", file_path="f", old_string="here", new_string="there", replace_all=True)

    assert len(meta["diffs"]) == 3


@aio
async def test_replacing_all_says_so(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x x")
    async with mounted(tmp_path) as kit:
        await kit.run("read", file_path="f")
        text = await kit.text("edit", file_path="f", old_string="x", new_string="y", replace_all=True)

    assert text == "The file /ws/f has been updated; every occurrence of old_string was replaced."


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write", {"file_path": "\t", "content": "x"}),
        ("edit", {"file_path": "", "old_string": "a", "new_string": "b"}),
        ("edit", {"file_path": "f", "old_string": "", "new_string": "b"}),
        ("edit", {"file_path": "f", "old_string": "a", "new_string": "a"}),
    ],
)
@aio
async def test_rules_about_values_have_no_code(tmp_path: Path, tool: str, arguments: dict[str, Any]) -> None:
    async with mounted(tmp_path) as kit:
        assert await kit.code(tool, **arguments) is None


@aio
async def test_white_space_can_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\tb")
    async with mounted(tmp_path) as kit:
        await kit.run("read", file_path="f")
        assert not (await kit.run("edit", file_path="f", old_string="\t", new_string="")).is_error

    assert (tmp_path / "f").read_text() == "ab"


@aio
async def test_a_directory_is_no_regular_file_for_write_and_unread_for_edit(tmp_path: Path) -> None:
    async with mounted(tmp_path) as kit:
        assert await kit.code("write", file_path=".", content="x") == "FS_NOT_REGULAR_FILE"
        assert await kit.code("edit", file_path=".", old_string="a", new_string="b") == "FS_NOT_OBSERVED"


@aio
async def test_escalation_is_not_offered_where_nothing_confines(tmp_path: Path) -> None:
    async with mounted(tmp_path) as kit:
        text = await kit.text(
            "write", file_path="f", content="x", sandbox_permissions="workspace-write", justification="y"
        )

    assert "not offered" in text
    assert not (tmp_path / "f").exists()


@aio
async def test_the_first_listener_that_answers_decides_and_may_refuse(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")

    async def refuse(*_: object) -> None:
        raise FsError("FS_PERMISSION_DENIED", "hands off")

    async with mounted(tmp_path) as kit:
        await kit.run("read", file_path="f")
        kit.ctx.on(FS_EDIT_INTENT, refuse, prepend=True)

        assert await kit.code("edit", file_path="f", old_string="x", new_string="y") == "FS_PERMISSION_DENIED"


@aio
async def test_a_listener_that_fails_to_record_fails_the_call(tmp_path: Path) -> None:
    seen: list[FsObserved] = []

    def record(observed: FsObserved) -> None:
        seen.append(observed)
        raise RuntimeError("cannot record")

    async with mounted(tmp_path) as kit:
        kit.ctx.on(FS_OBSERVED, record)
        text = await kit.text("write", file_path="f", content="x")

    assert text == "Error: cannot record"
    assert isinstance(seen[0].observation, Present)


@aio
async def test_the_prompt_explains_the_tools_in_order(tmp_path: Path) -> None:
    async with mounted(tmp_path, ((system_prompt, {}), *PLAIN)) as kit:
        await kit.ctx.fiber.quiet()
        for child in kit.ctx.kernel.runtimes.values():
            for fiber in child.fibers:
                await fiber.quiet()
        prompt = kit.ctx.get(SYSTEM_PROMPT)
        assert prompt is not None
        assembly = await prompt.assemble(PromptContext())

    names = [section.name for section in assembly.sections if section.name.startswith("tool:")]
    assert names == ["tool:read", "tool:write", "tool:edit"]
