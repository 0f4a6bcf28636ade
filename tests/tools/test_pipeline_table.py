"""Every way a call can go × every moment it can be cancelled: who hears of it, and what comes out.

The expectations are worked out by `expected` from the rules in `spec/tools.md` §3, one after the other.
"""

from typing import Any, NamedTuple

import pytest

from dsh.kernel import CancelToken, Context
from dsh.tools.error import ToolError
from dsh.tools.event import (
    TOOLS_EXECUTE,
    TOOLS_POST_EXECUTE,
    TOOLS_PRE_EXECUTE,
    TOOLS_RESULT,
    Accept,
    Ask,
    Block,
    Deny,
    Settled,
)
from dsh.tools.execution import ToolExecution, ToolFailure, ToolResult
from dsh.tools.registry import ToolRegistry
from tests.aio import aio
from tests.tools.kit import call, new_registry, text, tool

BAD_ARGUMENTS, UNKNOWN = "bad arguments", "unknown tool"
DENIED, ASKED, GUARDED, PRE_RAISES, PRE_ODD = "denied", "asked", "guarded", "pre raises", "pre odd"
WRAPPER_RAISES, WRAPPER_FAILS, WRAPPER_ODD = "wrapper raises", "wrapper fails", "wrapper odd"
DONE, RAISES, CODED, BAD_OUTPUT = "done", "raises", "coded", "bad output"
BLOCKED, SHOWN, POST_RAISES, POST_ODD = "blocked", "shown", "post raises", "post odd"
LAST_WORD, LAST_WORD_RAISES = "last word", "last word raises"
WAYS = (
    *(BAD_ARGUMENTS, UNKNOWN, DENIED, ASKED, GUARDED, PRE_RAISES, PRE_ODD),
    *(WRAPPER_RAISES, WRAPPER_FAILS, WRAPPER_ODD, DONE, RAISES, CODED, BAD_OUTPUT),
    *(BLOCKED, SHOWN, POST_RAISES, POST_ODD, LAST_WORD, LAST_WORD_RAISES),
)
NEVER, BEFORE, IN_PRE, IN_GUARD, IN_WRAPPER, IN_BODY, AFTER_BODY, IN_POST, AT_THE_END = (
    *("never", "before", "in pre", "in guard", "in wrapper", "in body", "after body"),
    *("in post", "at the end"),
)
MOMENTS = (NEVER, BEFORE, IN_PRE, IN_GUARD, IN_WRAPPER, IN_BODY, AFTER_BODY, IN_POST, AT_THE_END)


class Story(NamedTuple):
    """What listeners heard, whether the body ran, and what the call came to."""

    stages: str
    has_run: bool
    outcome: str
    """The code, else the text."""


class Coded(ToolError):
    """A tool's own error with a code."""


class Run:
    """One call, played."""

    def __init__(self, way: str, moment: str) -> None:
        self.way, self.moment = way, moment
        self.token = CancelToken()
        self.stages: list[str] = []
        self.has_run = False

    def at(self, moment: str) -> None:
        if moment == self.moment:
            self.token.cancel("user")

    async def play(self) -> Story:
        ctx, tools = new_registry()
        self._install(ctx, tools)
        self.at(BEFORE)
        arguments = {"x": float("nan")} if self.way == BAD_ARGUMENTS else {}
        result = await tools.run(call(arguments=arguments, signal=self.token))
        code = result.code if isinstance(result, ToolFailure) else None
        await ctx.dispose()
        return Story(" ".join(self.stages), self.has_run, code or text(result))

    def _install(self, ctx: Context, tools: ToolRegistry) -> None:
        if self.way != UNKNOWN:
            finalizer = self._last_word if self.way in (LAST_WORD, LAST_WORD_RAISES) else None
            tools.register(tool("t", self._body, finalize_content=finalizer))
        ctx.on(TOOLS_PRE_EXECUTE, self._pre)
        tools.guard(self._guard)
        ctx.on(TOOLS_EXECUTE, self._wrapper)
        ctx.on(TOOLS_POST_EXECUTE, self._post)
        ctx.on(TOOLS_RESULT, self._end)

    async def _pre(self, execution: ToolExecution, following: Any) -> Any:
        self.stages.append("pre")
        self.at(IN_PRE)
        if self.way == PRE_RAISES:
            raise ValueError("pre broke")
        odd = {DENIED: Deny("denied"), ASKED: Ask("who knows"), PRE_ODD: "yes"}
        return odd.get(self.way) or await following()

    def _guard(self, execution: ToolExecution) -> str | None:
        self.at(IN_GUARD)
        return "guarded" if self.way == GUARDED else None

    async def _wrapper(self, execution: ToolExecution, following: Any) -> Any:
        self.stages.append("execute")
        self.at(IN_WRAPPER)
        result = await following()
        self.at(AFTER_BODY)
        if self.way == WRAPPER_RAISES:
            raise ValueError("wrapper broke")
        return {WRAPPER_FAILS: ToolFailure.of("wrapped"), WRAPPER_ODD: None}.get(self.way, result)

    async def _body(self, arguments: Any, execution: ToolExecution) -> Any:
        self.has_run = True
        self.at(IN_BODY)
        if self.way == RAISES:
            raise ValueError("body broke")
        if self.way == CODED:
            raise Coded("coded", code="OWN")
        return object() if self.way == BAD_OUTPUT else "done"

    async def _post(self, seen: Settled, following: Any) -> Any:
        self.stages.append("post")
        self.at(IN_POST)
        if self.way == POST_RAISES:
            raise ValueError("post broke")
        if self.way == BLOCKED:
            return Block(feedback=[{"type": "text", "text": "blocked"}])
        if self.way == SHOWN:
            return Accept(content=[{"type": "text", "text": "shown"}])
        return "fine" if self.way == POST_ODD else await following()

    def _last_word(self, execution: ToolExecution, result: ToolResult) -> Any:
        if self.way == LAST_WORD_RAISES:
            raise ValueError("last word broke")
        return [{"type": "text", "text": "last word"}]

    def _end(self, seen: Settled) -> None:
        self.stages.append("result")
        self.at(AT_THE_END)


BEFORE_DISPATCH, ABORTED = "ABORTED_BEFORE_DISPATCH", "ABORTED"


def expected(way: str, moment: str) -> Story:
    """The story by the rules."""
    at = MOMENTS.index(moment)

    def is_cancelled(by: str) -> bool:
        return 0 < at <= MOMENTS.index(by)

    def final(stages: str, has_run: bool, outcome: str) -> Story:
        if way == LAST_WORD_RAISES:
            outcome = "Error: last word broke"
        elif way == LAST_WORD and outcome in ("done",):
            outcome = "last word"
        return Story(f"{stages} result".strip(), has_run, outcome)

    def reviewed(stages: str, has_run: bool, outcome: str, *, is_error: bool) -> Story:
        stages += " post"
        if way == POST_RAISES:
            return final(stages, has_run, "Error: post broke")
        if way == POST_ODD:
            said = "answered str, expected Accept or Block"
            return final(stages, has_run, f"Error: a listener of tools/post-execute {said}")
        if way == BLOCKED:
            return final(stages, has_run, "blocked")
        if is_cancelled(IN_POST) and not is_error:
            return final(stages, has_run, ABORTED if has_run else BEFORE_DISPATCH)
        shows = way == SHOWN and outcome not in (ABORTED, BEFORE_DISPATCH)
        return final(stages, has_run, "shown" if shows else outcome)

    if way == BAD_ARGUMENTS:
        return final("", False, "Error: arguments.x: found the number nan, expected a finite number")
    if is_cancelled(BEFORE):
        return final("", False, BEFORE_DISPATCH)
    if way == PRE_RAISES:
        return final("pre", False, "Error: pre broke")
    if way == PRE_ODD:
        said = "answered str, expected Allow, Deny or Ask"
        return final("pre", False, f"Error: a listener of tools/pre-execute {said}")
    if way in (DENIED, ASKED, GUARDED):
        reason = {DENIED: "denied", ASKED: "who knows", GUARDED: "guarded"}[way]
        return reviewed("pre", False, f"Error: {reason}", is_error=True)
    if is_cancelled(IN_GUARD):
        return reviewed("pre", False, BEFORE_DISPATCH, is_error=True)
    has_run = way != UNKNOWN and not is_cancelled(IN_WRAPPER)
    stages = "pre execute"
    if way == WRAPPER_RAISES:
        return final(stages, has_run, "Error: wrapper broke")
    if way == WRAPPER_ODD:
        said = "answered NoneType, expected ToolSuccess or ToolFailure"
        return final(stages, has_run, f"Error: a listener of tools/execute {said}")
    if way == WRAPPER_FAILS:
        return reviewed(stages, has_run, "Error: wrapped", is_error=True)
    if is_cancelled(IN_WRAPPER):
        return reviewed(stages, has_run, BEFORE_DISPATCH, is_error=True)
    failures = {
        UNKNOWN: "UNKNOWN_TOOL",
        RAISES: "Error: body broke",
        CODED: "OWN",
        BAD_OUTPUT: "INVALID_TOOL_OUTPUT",
    }
    if way in failures:
        return reviewed(stages, has_run, failures[way], is_error=True)
    if is_cancelled(AFTER_BODY):
        return reviewed(stages, has_run, ABORTED, is_error=True)
    return reviewed(stages, has_run, "done", is_error=False)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("way", WAYS)
@aio
async def test_each_way_of_a_call_at_each_moment_of_cancellation(way: str, moment: str) -> None:
    assert await Run(way, moment).play() == expected(way, moment)
