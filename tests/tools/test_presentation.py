"""Cards: pure, softly checked, the same from a log as from the live call."""

from typing import Any

import msgspec
import pytest

from dsh.tools.definition import TEXT_OUTPUT
from dsh.tools.error import ToolRegistrationError
from dsh.tools.presentation import (
    CallCard,
    Diff,
    DiffCall,
    DiffResult,
    GenericCall,
    GenericResult,
    Location,
    Outcome,
    ReadResult,
    SearchResult,
    TerminalCall,
    TerminalResult,
    WebResult,
    card_json,
    from_meta,
    outcome_in_log,
    outcome_of,
)
from dsh.tools.typed import typed_tool
from tests.aio import aio
from tests.tools.kit import agent_in, call, new_registry, tool, tools_of

DONE = Outcome(content=({"type": "text", "text": "done"},))


def titled(args: Any) -> GenericCall:
    return GenericCall(title=args["what"])


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        (GenericCall(title="t"), {"card": "generic", "title": "t"}),
        (
            GenericCall(title="t", kind="read", raw_input={"a": 1}, locations=(Location(path="p", line=2),)),
            {
                "card": "generic",
                "title": "t",
                "kind": "read",
                "rawInput": {"a": 1},
                "locations": ({"path": "p", "line": 2},),
            },
        ),
        (TerminalCall(title="ls", cwd="/ws"), {"card": "terminal", "title": "ls", "cwd": "/ws"}),
        (
            DiffCall(title="t", diffs=(Diff(path="p", old_text=None, new_text="n"),)),
            {"card": "diff", "title": "t", "diffs": ({"path": "p", "oldText": None, "newText": "n"},)},
        ),
        (TerminalResult(output="x", exit_code=0), {"card": "terminal", "output": "x", "exitCode": 0}),
        (
            ReadResult(path="p", offset=1, lines=(), total_lines=0, lang="py"),
            {"card": "read", "path": "p", "offset": 1, "lines": (), "totalLines": 0, "lang": "py"},
        ),
        (
            SearchResult(shape="paths", truncated=False, total=1, paths=("a",)),
            {"card": "search", "shape": "paths", "truncated": False, "total": 1, "paths": ("a",)},
        ),
        (GenericResult(), {"card": "generic"}),
        (WebResult(kind="fetch", url="u"), {"card": "web", "kind": "fetch", "url": "u"}),
    ],
)
def test_the_json_of_a_card_names_its_kind_and_leaves_out_what_is_absent(
    card: Any, expected: dict[str, Any]
) -> None:
    assert card_json(card) == expected


def test_cards_are_frozen() -> None:
    with pytest.raises(AttributeError):
        GenericCall(title="t").title = "u"  # type: ignore[misc]


@aio
async def test_a_tool_without_presenters_and_an_unknown_one_have_no_card() -> None:
    ctx, tools = new_registry()
    tools.register(tool("t"))

    assert tools.present_call(call("t")) is None
    assert tools.present_result(call("t"), DONE) is None
    assert tools.present_call(call("nobody")) is None
    assert tools.present_result(call("nobody"), DONE) is None
    await ctx.dispose()


def raising(*_: Any) -> Any:
    raise ValueError("no")


def deep() -> Any:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "answer",
    [
        raising,
        lambda *_: None,
        lambda *_: "a title",
        lambda *_: {"card": "generic", "title": "t"},
        lambda *_: GenericCall(title=3),  # type: ignore[arg-type]
        lambda *_: DiffCall(title="t", diffs=({"path": "p"},)),  # type: ignore[arg-type]
        lambda *_: GenericCall(title="t", raw_input=deep()),
        lambda *_: GenericCall(title="t", raw_input=object()),
        lambda *_: ToolRegistrationError("no"),
    ],
)
@aio
async def test_a_presenter_that_answers_anything_else_gives_no_card(answer: Any) -> None:
    ctx, tools = new_registry()
    tools.register(tool("t", present_call=answer, present_result=answer))

    assert tools.present_call(call("t")) is None
    assert tools.present_result(call("t"), DONE) is None
    await ctx.dispose()


@aio
async def test_a_call_has_a_card_of_calls_and_a_result_one_of_results() -> None:
    ctx, tools = new_registry()
    tools.register(
        tool(
            "t",
            present_call=lambda args: TerminalResult(),
            present_result=lambda args, outcome: TerminalCall(title="x"),
        )
    )

    assert tools.present_call(call("t")) is None
    assert tools.present_result(call("t"), DONE) is None
    await ctx.dispose()


@pytest.mark.parametrize("arguments", [{}, {"what": 1}, "{not json", [1], None])
@aio
async def test_arguments_of_another_version_have_no_card(arguments: Any) -> None:
    ctx, tools = new_registry()
    seen: list[Any] = []

    def result(args: Any, outcome: Outcome) -> GenericResult:
        seen.append(args)
        return GenericResult()

    async def body(args: Any, execution: Any) -> str:
        return ""

    tools.register(
        typed_tool(
            name="t",
            description="t",
            parameters={"what": {"type": "string", "required": True}},
            output=TEXT_OUTPUT,
            execute=body,
            present_call=titled,
            present_result=result,
        )
    )

    assert tools.present_call(call("t", {"what": "this"})) == GenericCall(title="this")
    assert tools.present_call(msgspec.structs.replace(call("t"), arguments=arguments)) is None
    assert tools.present_result(msgspec.structs.replace(call("t"), arguments=arguments), DONE) is None
    assert seen == []
    await ctx.dispose()


@aio
async def test_each_caller_sees_the_cards_of_the_tool_that_it_sees() -> None:
    ctx, tools = new_registry()
    agent, scope = await agent_in(ctx)
    tools.register(tool("t", present_call=lambda args: GenericCall(title="global")))
    tools_of(scope).register(tool("t", present_call=lambda args: GenericCall(title="own")))

    def title(card: CallCard | None) -> str:
        assert card is not None
        return card.title

    assert title(tools.present_call(call("t"))) == "global"
    assert title(tools.present_call(call("t", agent=agent))) == "own"
    await ctx.dispose()


@pytest.mark.parametrize("field", ["present_call", "present_result"])
@aio
async def test_presenters_are_functions(field: str) -> None:
    ctx, tools = new_registry()

    changes: dict[str, Any] = {field: "a title"}
    with pytest.raises(ToolRegistrationError, match="must be functions"):
        tools.register(tool("t", **changes))
    await ctx.dispose()


@aio
async def test_an_outcome_is_the_same_live_and_from_the_log() -> None:
    ctx, tools = new_registry()
    tools.register(tool("t"))
    result = await tools.run(call("t"))
    data: dict[str, Any] = {
        "message": {"content": [{"type": "tool-result", "toolCallId": "c1", "content": result.content}]},
    }

    assert outcome_in_log(data) == outcome_of(result)
    assert outcome_of(result).text == "done"
    data["message"]["content"][0]["isError"] = True
    data["meta"] = {"diffs": []}
    assert outcome_in_log(data).is_error and outcome_in_log(data).meta == {"diffs": []}
    await ctx.dispose()


@pytest.mark.parametrize("meta", [msgspec.UNSET, None, 3, [], {"diffs": 1}, {"other": []}, {1: 2}])
def test_metadata_that_is_no_card_gives_none(meta: Any) -> None:
    assert from_meta(DiffResult, meta) is None


def test_metadata_of_a_later_version_may_say_more() -> None:
    assert from_meta(DiffResult, {"diffs": [], "more": 1}) == DiffResult(diffs=())
