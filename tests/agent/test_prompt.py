"""The assembly of the prompt: hostile contributions, the complete section, and an order of tools by scope."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.agent.contract import Agent
from dsh.agent.failure import PromptError
from dsh.agent.prompt import (
    SYSTEM_PROMPT,
    SYSTEM_PROMPT_ASSEMBLE,
    PromptAssembly,
    PromptContext,
    PromptSection,
)
from dsh.session.message import ToolSchema
from dsh.tools.definition import TEXT_OUTPUT
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool
from tests.agent.kit import Loop, ends, loop, text
from tests.aio import aio


async def assembled(it: Loop, agent: Agent | None = None) -> PromptAssembly:
    return await it.ctx.use(SYSTEM_PROMPT).assemble(PromptContext(agent=agent))


async def later(at: PromptContext) -> str:
    return "later"


def fail(at: PromptContext) -> str:
    raise ValueError("broken")


def leave(at: PromptContext) -> str:
    raise SystemExit(3)


HOSTILE: list[tuple[Any, str]] = [
    (fail, "could not be told"),
    (leave, "could not be told"),
    (later, "of type coroutine"),
    (lambda at: 3, "of type int"),
    (lambda at: b"bytes", "of type bytes"),
]


@pytest.mark.parametrize(("function", "problem"), HOSTILE)
@pytest.mark.parametrize("kind", ["section", "variable", "context"])
@aio
async def test_a_contribution_that_does_anything_else_ends_one_turn_and_is_named(
    kind: str, function: Any, problem: str
) -> None:
    async with loop(text("done")) as it:
        prompt, uses = it.ctx.use(SYSTEM_PROMPT), None
        match kind:
            case "section":
                effect = prompt.section("mine", 1, function)
            case "variable":
                effect = prompt.variable("mine", function)
                uses = prompt.section("all", 1, "{{mine}}")
            case _:
                effect = prompt.context("mine", 1, function)
        agent = await it.agent()
        await it.prompt(agent, "go")
        error = ends(agent.session)[0]["error"]
        assert "'mine'" in error["message"]
        assert problem in error["message"]
        assert error["code"] == "PROMPT_CONTRIBUTION"
        assert it.model.requests == []
        effect()
        if uses is not None:
            uses()
        await it.prompt(agent, "go on")
        assert ends(agent.session)[1] == {"kind": "completed"}


@pytest.mark.parametrize(
    "register",
    [
        lambda prompt: prompt.section("", 1, "x"),
        lambda prompt: prompt.section(3, 1, "x"),
        lambda prompt: prompt.section("a", "first", "x"),
        lambda prompt: prompt.section("a", True, "x"),
        lambda prompt: prompt.section("a", float("nan"), "x"),
        lambda prompt: prompt.section("a", 1, None),
        lambda prompt: prompt.context("a", float("inf"), lambda at: "x"),
        lambda prompt: prompt.variable("Upper", lambda at: "x"),
        lambda prompt: prompt.variable("", lambda at: "x"),
        lambda prompt: prompt.variable("a", "x"),
    ],
)
@aio
async def test_what_can_never_be_right_is_refused_where_it_is_registered(
    register: Callable[[Any], object],
) -> None:
    async with loop() as it:
        before = len(it.ctx.fiber.effects)
        with pytest.raises(PromptError):
            register(it.ctx.use(SYSTEM_PROMPT))
        assert len(it.ctx.fiber.effects) == before


@aio
async def test_a_variable_that_nothing_refers_to_is_not_asked() -> None:
    async with loop(text("done"), prompt={"persona": "{{plain}}"}) as it:
        prompt = it.ctx.use(SYSTEM_PROMPT)
        prompt.variable("plain", lambda at: "as it is")
        prompt.variable("broken", fail)
        agent = await it.agent()
        await it.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "completed"}]
        assert it.model.requests[0].system == "as it is"


@pytest.mark.parametrize(
    ("value", "problem"), [(3, "of type int"), (None, "has no value"), (fail, "be told")]
)
@aio
async def test_what_a_listener_makes_of_a_variable_is_judged_like_what_was_registered(
    value: Any, problem: str
) -> None:
    async with loop(prompt={"persona": "{{mine}}"}) as it:
        it.ctx.use(SYSTEM_PROMPT).variable("mine", lambda at: "registered")

        async def on_assemble(request: Any, following: Any) -> PromptAssembly:
            request.variables["mine"] = value
            found: PromptAssembly = await following()
            return found

        it.ctx.on(SYSTEM_PROMPT_ASSEMBLE, on_assemble)
        with pytest.raises(PromptError, match=problem) as caught:
            await assembled(it)
        assert "'mine'" in caught.value.message


@aio
async def test_texts_are_valid_unicode_whoever_wrote_them() -> None:
    async with loop() as it:
        prompt = it.ctx.use(SYSTEM_PROMPT)
        prompt.variable("x", lambda at: "\ud800")
        prompt.section("a", 1, "{{x}} and \udfff")
        prompt.context("b", 1, lambda at: "\udc80")
        found = await assembled(it)
        assert found.system == "\ufffd and \ufffd"
        assert found.context[0].text == "\ufffd"


@given(st.text(alphabet="ab{}_ \n", max_size=20))
def test_a_text_is_either_put_out_or_refused_and_never_scanned_twice(words: str) -> None:
    from dsh.agent.assembly import _substitute

    values = {"a": "{{b}}", "b": "{{a}}", "ab": "}}"}
    try:
        out = _substitute(words, values, "here", PromptContext())
    except PromptError as error:
        assert "here" in error.message
        assert error.hint
        return
    if "{{" not in words or "}}" not in words[words.index("{{") :]:
        assert out == words


# -- the complete section ------------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["drops", "empties", "replaces", "never asks"])
@aio
async def test_no_listener_takes_the_complete_section_away(listener: str) -> None:
    async with loop(prompt={"persona": "persona"}) as it:
        it.ctx.use(SYSTEM_PROMPT).section("whole", 50, "all there is", complete=True)

        async def on_assemble(request: Any, following: Any) -> PromptAssembly:
            if listener == "never asks":
                return PromptAssembly((PromptSection("other", "other"),), ())
            found: PromptAssembly = await following()
            sections = {
                "drops": tuple(s for s in found.sections if s.name != "whole"),
                "empties": (PromptSection("whole", "", complete=True),),
                "replaces": (PromptSection("whole", "something else"),),
            }[listener]
            return PromptAssembly(sections, found.tools)

        it.ctx.on(SYSTEM_PROMPT_ASSEMBLE, on_assemble)
        found = await assembled(it)
        assert found.system == "all there is"
        assert [section.name for section in found.sections] == ["whole"]


@aio
async def test_a_complete_section_counts_for_its_scope_and_an_empty_one_does_not() -> None:
    async with loop(prompt={"persona": "persona"}) as it:
        mine, other = await it.agent(), await it.agent()
        mine.ctx.use(SYSTEM_PROMPT).section("deployment:persona", 0, "only me", complete=True)
        other.ctx.use(SYSTEM_PROMPT).section("nothing", 0, "", complete=True)
        assert (await assembled(it, mine)).system == "only me"
        assert (await assembled(it, other)).system == "persona"


@aio
async def test_two_complete_sections_are_an_error_also_when_a_listener_brought_one() -> None:
    async with loop() as it:
        it.ctx.use(SYSTEM_PROMPT).section("whole", 50, "all there is", complete=True)

        async def on_assemble(request: Any, following: Any) -> PromptAssembly:
            found: PromptAssembly = await following()
            brought = PromptSection("brought", words, complete=True)
            return PromptAssembly((*found.sections, brought), found.tools)

        words = ""
        it.ctx.on(SYSTEM_PROMPT_ASSEMBLE, on_assemble)
        assert (await assembled(it)).system == "all there is", "one without text claims nothing"
        words = "no, this"
        with pytest.raises(PromptError, match="brought, whole") as caught:
            await assembled(it)
        assert caught.value.code == "SEVERAL_COMPLETE_SECTIONS"


@aio
async def test_suppressed_runtime_context_stays_suppressed_whatever_a_listener_adds() -> None:
    async with loop() as it:
        quiet = await it.agent()
        undo = quiet.ctx.use(SYSTEM_PROMPT).suppress_runtime_context()
        quiet.ctx.use(SYSTEM_PROMPT).suppress_runtime_context()

        async def on_assemble(request: Any, following: Any) -> PromptAssembly:
            found: PromptAssembly = await following()
            return PromptAssembly(found.sections, found.tools, (PromptSection("a", "fact"),))

        it.ctx.on(SYSTEM_PROMPT_ASSEMBLE, on_assemble)
        assert (await assembled(it, quiet)).context == ()
        assert len((await assembled(it)).context) == 1
        undo()
        assert (await assembled(it, quiet)).context == (), "the other one still stands"


SCHEMA = ToolSchema("t", "", {})


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "answered NoneType"),
        ("text", "answered str"),
        ((), "answered tuple"),
        (PromptAssembly(3, ()), "not all tuples"),  # type: ignore[arg-type]
        (PromptAssembly((), (), None), "not all tuples"),  # type: ignore[arg-type]
        (PromptAssembly(("words",), ()), "'words' in the place of a section"),  # type: ignore[arg-type]
        (PromptAssembly((PromptSection("a", None),), ()), "of a section"),  # type: ignore[arg-type]
        (PromptAssembly((), (), (3,)), "3 in the place of a section"),  # type: ignore[arg-type]
        (PromptAssembly((), ({"name": "t"},)), "of a tool's schema"),  # type: ignore[arg-type]
        (PromptAssembly((), (SCHEMA, SCHEMA)), "a tool twice"),
    ],
)
@aio
async def test_a_listener_that_answers_what_cannot_go_out_is_told_what_to_return(
    answer: Any, problem: str
) -> None:
    async with loop(text("done")) as it:

        async def later(request: Any, following: Any) -> Any:
            return answer

        it.ctx.on(SYSTEM_PROMPT_ASSEMBLE, later)
        with pytest.raises(PromptError) as caught:
            await assembled(it)
        assert problem in caught.value.message
        assert "PromptAssembly" in caught.value.hint
        agent = await it.agent()
        await it.prompt(agent, "go")
        assert ends(agent.session)[0]["error"]["code"] == "PROMPT_CONTRIBUTION"
        assert it.model.requests == []


@aio
async def test_what_a_listener_answers_may_be_lists_and_becomes_valid_unicode() -> None:
    async with loop() as it:
        sections, context = [PromptSection("a", "\ud800")], [PromptSection("b", "\udc00")]
        answer: Any = PromptAssembly(sections, [SCHEMA], context)  # type: ignore[arg-type]

        async def lists(request: Any, following: Any) -> PromptAssembly:
            return answer  # type: ignore[no-any-return]

        it.ctx.on(SYSTEM_PROMPT_ASSEMBLE, lists)
        found = await assembled(it)
        assert (found.system, found.context[0].text, found.tools) == ("\ufffd", "\ufffd", (SCHEMA,))


# -- tools ---------------------------------------------------------------------------------------


@aio
async def test_an_order_may_name_a_tool_that_only_another_scope_has() -> None:
    async def nothing(args: Any, exec: Any) -> str:  # noqa: A002
        return ""

    async with loop(prompt={"toolOrder": ["special", "<unlisted-tools>"]}) as it:
        it.tool("plain", nothing)
        one, two = await it.agent(), await it.agent()
        with pytest.raises(PromptError, match="special") as caught:
            await assembled(it, two)
        assert caught.value.hint

        one.ctx.use(TOOLS).register(
            typed_tool(name="special", description="", parameters={}, output=TEXT_OUTPUT, execute=nothing)
        )
        assert [tool.name for tool in (await assembled(it, one)).tools] == ["special", "plain"]
        assert [tool.name for tool in (await assembled(it, two)).tools] == ["plain"]


@aio
async def test_two_agents_assemble_at_the_same_time_without_seeing_each_other() -> None:
    async with loop(prompt={"persona": "{{who}}"}) as it:

        async def on_assemble(request: Any, following: Any) -> PromptAssembly:
            request.variables["who"] = request.context.agent.id
            await asyncio.sleep(0)
            found: PromptAssembly = await following()
            return found

        it.ctx.on(SYSTEM_PROMPT_ASSEMBLE, on_assemble)
        agents = [await it.agent() for _ in range(3)]
        found = await asyncio.gather(*(assembled(it, agent) for agent in agents))
        assert [one.system for one in found] == [agent.id for agent in agents]
