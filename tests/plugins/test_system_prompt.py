"""The system prompt: sections, strict variables, tools in order, and bytes that never change by chance."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsh.agent.assembly import IDENTITY
from dsh.agent.failure import PromptError
from dsh.agent.prompt import (
    SYSTEM_PROMPT,
    SYSTEM_PROMPT_ASSEMBLE,
    PromptAssembly,
    PromptContext,
    PromptSection,
)
from dsh.kernel import Context, ValidationError
from dsh.plugins import system_prompt, tools
from tests.agent.kit import Loop, loop, settled, text
from tests.aio import aio


async def nothing(args: Any, exec: Any) -> str:  # noqa: A002
    return ""


async def assembled(it: Loop, agent: Any = None) -> PromptAssembly:
    return await it.ctx.use(SYSTEM_PROMPT).assemble(PromptContext(agent=agent))


@aio
async def test_identity_then_persona_then_guidance_joined_by_blank_lines() -> None:
    config = {"includeHarnessIdentity": True, "persona": "You use {{model}} in {{cwd}}."}
    async with loop(prompt=config) as it:
        it.ctx.use(SYSTEM_PROMPT).section("tool:b", 110, "about b")
        it.ctx.use(SYSTEM_PROMPT).section("tool:a", 105, lambda at: "about a")
        it.ctx.use(SYSTEM_PROMPT).section("silent", 107, lambda at: None)
        agent = await it.agent(cwd="/work")
        found = await assembled(it, agent)
        assert found.system == f"{IDENTITY}\n\nYou use m in /work.\n\nabout a\n\nabout b"


@aio
async def test_sections_of_one_order_stand_by_name_whatever_was_registered_first() -> None:
    async with loop() as it:
        for name in ("c", "a", "b"):
            it.ctx.use(SYSTEM_PROMPT).section(name, 100, name)
        assert (await assembled(it)).system == "a\n\nb\n\nc"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("{{nothing}}", "not defined"),
        ("{{cwd}}", "no value"),
        ("{{ model }}", "no variable reference"),
        ("{{Model}}", "no variable reference"),
        ("{{}}", "no variable reference"),
    ],
)
@aio
async def test_a_reference_that_says_nothing_is_an_error_naming_its_section(words: str, problem: str) -> None:
    async with loop() as it:
        it.ctx.use(SYSTEM_PROMPT).section("guide", 1, words)
        with pytest.raises(PromptError, match=problem) as caught:
            await assembled(it)
        assert "'guide'" in caught.value.message


@aio
async def test_an_unclosed_reference_is_text_and_values_are_not_looked_at_again() -> None:
    async with loop() as it:
        prompt = it.ctx.use(SYSTEM_PROMPT)
        prompt.variable("x", lambda at: "{{y}}")
        prompt.section("a", 1, "{{x}} and {{ open")
        assert (await assembled(it)).system == "{{y}} and {{ open"


@aio
async def test_a_name_is_free_once_per_layer_and_a_scope_shadows() -> None:
    async with loop() as it:
        prompt = it.ctx.use(SYSTEM_PROMPT)
        prompt.section("a", 1, "for all")
        with pytest.raises(PromptError, match="already"):
            prompt.section("a", 1, "again")
        mine, other = await it.agent(), await it.agent()
        scoped = mine.ctx.use(SYSTEM_PROMPT)
        effect = scoped.section("a", 1, "for me")
        assert (await assembled(it, mine)).system == "for me"
        assert (await assembled(it, other)).system == "for all"
        await effect()
        assert (await assembled(it, mine)).system == "for all"


@aio
async def test_what_a_row_registered_goes_with_the_row() -> None:
    async with loop() as it:

        def contribute(ctx: Context) -> None:
            ctx.use(SYSTEM_PROMPT).section("a", 1, "x")

        row = it.ctx.inject([SYSTEM_PROMPT], contribute)
        await settled(row)
        assert (await assembled(it)).system == "x"
        await row.dispose()
        assert (await assembled(it)).system == ""


@aio
async def test_one_complete_section_is_the_whole_prompt_and_two_are_an_error() -> None:
    async with loop(prompt={"persona": "persona"}) as it:
        prompt = it.ctx.use(SYSTEM_PROMPT)
        prompt.section("whole", 50, "all there is", complete=True)
        assert (await assembled(it)).system == "all there is"
        prompt.section("other", 60, "no, this", complete=True)
        with pytest.raises(PromptError, match="whole"):
            await assembled(it)


@aio
async def test_a_listener_of_the_assembly_has_the_last_word() -> None:
    async with loop(prompt={"persona": "by {{who}}"}) as it:

        async def add(request: Any, following: Any) -> PromptAssembly:
            request.variables["who"] = "me"
            found: PromptAssembly = await following()
            return PromptAssembly(
                (*found.sections, PromptSection("end", "the end")), found.tools, found.context
            )

        it.ctx.on(SYSTEM_PROMPT_ASSEMBLE, add)
        assert (await assembled(it)).system == "by me\n\nthe end"


@aio
async def test_tools_are_sorted_by_name_or_by_the_configured_order() -> None:
    names = ("write", "Read", "bash", "grep")
    async with loop() as it:
        for name in names:
            it.tool(name, nothing)
        assert [tool.name for tool in (await assembled(it)).tools] == sorted(names)
    async with loop(prompt={"toolOrder": ["grep", "<unlisted-tools>", "bash"]}) as it:
        for name in names:
            it.tool(name, nothing)
        agent = await it.agent()
        assert [t.name for t in (await assembled(it, agent)).tools] == ["grep", "Read", "write", "bash"]
        agent.ctx.tools.restrict(deny=["grep"])
        assert [t.name for t in (await assembled(it, agent)).tools] == ["Read", "write", "bash"]


@aio
async def test_an_order_that_names_a_tool_nobody_has_fails_at_assembly() -> None:
    async with loop(prompt={"toolOrder": ["nobody", "<unlisted-tools>"]}) as it:
        with pytest.raises(PromptError, match="nobody"):
            await assembled(it)


@pytest.mark.parametrize(
    "order", [[], ["bash"], ["<unlisted-tools>", "<unlisted-tools>"], ["a", "a", "<unlisted-tools>"]]
)
@aio
async def test_an_order_that_makes_no_sense_fails_at_load(order: list[str]) -> None:
    ctx = Context()
    await ctx.plugin(tools, {})
    with pytest.raises(PromptError, match="toolOrder"):
        await settled(ctx.plugin(system_prompt, {"toolOrder": order}))
    await ctx.dispose()


@aio
async def test_unknown_options_are_refused() -> None:
    with pytest.raises(ValidationError, match="personna"):
        async with loop(prompt={"personna": "x"}):
            raise AssertionError("never")


@aio
async def test_an_agent_that_asks_for_nothing_gets_no_system_text() -> None:
    async with loop(text("done")) as it:
        await it.prompt(await it.agent(), "go")
        assert it.model.requests[0].system is None


HEAD = """
import asyncio, sys
from dsh.agent.prompt import SYSTEM_PROMPT
from dsh.session.value import encode
from tests.agent.kit import loop, text

SCHEMA = {"b": {"type": "string"}, "a": {"type": "number", "required": True}}
CONFIG = {"includeHarnessIdentity": True, "persona": "{{model}} {{cwd}}"}

async def nothing(args, exec):
    return ""

async def main():
    async with loop(text("done"), prompt=CONFIG) as it:
        prompt = it.ctx.use(SYSTEM_PROMPT)
        for name in sys.argv[1:]:
            it.tool(name, nothing, parameters=SCHEMA)
            prompt.section(f"tool:{name}", 100, f"about {name}")
            prompt.context(f"fact:{name}", 100, lambda at, name=name: f"fact {name}")
        await it.prompt(await it.agent(), "go")
        request = it.model.requests[0]
        said = [message["content"] for message in request.messages]
        sys.stdout.buffer.write(encode([request.system, request.tools, said]))

asyncio.run(main())
"""


def test_the_head_of_a_request_is_the_same_in_every_process_and_for_every_order_of_rows() -> None:
    root = Path(__file__).resolve().parents[2]

    def head(seed: str, *names: str) -> bytes:
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        run = subprocess.run(
            [sys.executable, "-c", HEAD, *names],
            cwd=root,
            env=env,
            capture_output=True,
            check=True,
            timeout=60,
        )
        return run.stdout

    heads = {head("0", "x", "y", "z"), head("1", "z", "x", "y"), head("2", "y", "z", "x")}
    assert len(heads) == 1
    assert b"about x" in heads.pop()
