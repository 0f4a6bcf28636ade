"""How hooks run: what they may do with their input, how they fail, beside one another, and how they end."""

import asyncio
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dsh.agent.contract import CancelCause
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.plugins import hooks_claude_code, hooks_codex
from tests.agent.hooks.kit import (
    ROWS,
    Hooked,
    adding,
    answering,
    command,
    hooked,
    logged,
    results,
    told_the_model,
    working,
)
from tests.agent.kit import calls, data_of, ends, text, types, until
from tests.aio import aio
from tests.process import is_gone

BOTH = pytest.mark.parametrize("row", ROWS, ids=["claude-code", "codex"])
BIG = "x" * 300_000
SLOW = command("echo $$ > pid; exec sleep 300")


def pid_of(it: Hooked) -> int:
    return int((it.folder / "pid").read_text())


def has_pid(it: Hooked) -> bool:
    path = it.folder / "pid"
    return path.exists() and path.read_text().endswith("\n")


# -- a hook that ignores its input -----------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("line", "decision", "code", "stderr"),
    [
        ('printf \'{"decision":"approve"}\'', "approve", 0, None),
        ("echo 'not this one' >&2; exit 2", "block", 2, "not this one"),
        ("exec <&-; echo 'not this one' >&2; exit 2", "block", 2, "not this one"),
        ("yes | head -c 3000000; echo 'not this one' >&2; exit 2", "block", 2, "not this one"),
        ("head -c 3000000 /dev/zero; exit 1", "pass", 1, "it ended with exit code 1"),
        ("cat > /dev/null; exit 0", "pass", 0, None),
        ('INPUT=$(cat); [ "${#INPUT}" -gt 300000 ] && echo read >&2', "pass", 0, "read"),
        ("head -c 10 > /dev/null", "pass", 0, None),
        ("exit 1", "pass", 1, "it ended with exit code 1"),
        ("./plain", "pass", 126, "Permission denied"),
        ("./missing", "pass", 127, "No such file"),
        ("kill -9 $$", "pass", None, "it was killed by SIGKILL"),
    ],
)
@aio
async def test_exit_and_output_decide_and_not_whether_the_input_was_read(
    row: ModuleType, line: str, decision: str, code: int | None, stderr: str | None, tmp_path: Path
) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    async with hooked(tmp_path, {"PreToolUse": [command(line)]}, *working(BIG), row=row) as it:
        agent = await it.run()

        [result] = data_of(agent.session, "hook/result")
        assert (result["decision"], result.get("exitCode")) == (decision, code)
        assert stderr is None or stderr in result["stderrSummary"]
        assert ("stderrSummary" in result) is (stderr is not None)
        assert bool(it.ran) is (decision != "block")
        is_failure = code not in (0, 2)
        assert len(it.told) == is_failure
        assert ends(agent.session) == [{"kind": "completed"}]


# -- failures --------------------------------------------------------------------------------------

FAILURES = {
    "exit": (command("exit 1"), "it ended with exit code 1"),
    "missing": (command("./nothing-here"), "the command was not found (exit code 127)"),
    "timeout": (command("sleep 300", timeout=0.2), "it did not end within 0.2 s"),
    "json": (command("echo '{'"), "its output starts with { and is no JSON"),
    "type": (answering(decision=3), "decision is 3, expected approve or block"),
    "event": (
        answering(hookSpecificOutput={"hookEventName": "Stop", "permissionDecision": "deny"}),
        "hookSpecificOutput.hookEventName is 'Stop' and the event is PreToolUse",
    ),
    "endless": (command("yes"), "it printed more than"),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("policy", [None, "hook", "row"])
@aio
async def test_a_failure_is_told_once_and_stops_nothing_unless_it_is_an_objection(
    name: str, policy: str | None, tmp_path: Path
) -> None:
    hook, problem = FAILURES[name]
    if name == "endless":
        hook = command("yes | head -c 3000000")
    config: dict[str, Any] = {"onFailure": "deny"} if policy == "row" else {}
    if policy == "hook":
        hook = {**hook, "onFailure": "deny"}
    async with hooked(tmp_path, {"PreToolUse": [hook]}, *working("a", "b"), **config) as it:
        agent = await it.run()

        [told] = it.told
        assert told.startswith("hook PreToolUse[0].hooks[0] (")
        assert problem in told
        assert it.ran == ([] if policy else ["a", "b"])
        assert [point for point, _ in logged(agent)] == ["PreToolUse"] * 2
        if policy:
            assert all(is_error and problem in text for text, is_error in results(agent))
            assert {decision for _, decision in logged(agent)} == {"deny"}
        summaries = [data["stderrSummary"] for data in data_of(agent.session, "hook/result")]
        assert all(problem in one or "No such file" in one for one in summaries)


@aio
async def test_a_hook_of_its_own_mind_beats_the_row(tmp_path: Path) -> None:
    hooks = {"PreToolUse": [command("exit 1", onFailure="pass")]}
    async with hooked(tmp_path, hooks, *working("a"), onFailure="deny") as it:
        await it.run()

        assert it.ran == ["a"]


@aio
async def test_a_directory_that_is_gone_is_a_failure(tmp_path: Path) -> None:
    async with hooked(tmp_path, {"PreToolUse": [command("true", onFailure="deny")]}, *working("a")) as it:
        agent = await it.it.agent(cwd=str(tmp_path / "gone"))
        await it.it.prompt(agent, "go")

        [(said, is_error)] = results(agent)
        assert is_error
        assert "it could not be run" in said


@pytest.mark.parametrize("point", ["UserPromptSubmit", "PostToolUse", "Stop", "SessionStart"])
@aio
async def test_a_guard_that_breaks_blocks_at_every_point(point: str, tmp_path: Path) -> None:
    hooks = {point: [command("exit 7", onFailure="deny")]}
    async with hooked(tmp_path, hooks, *working("a"), maxStopContinuations=2) as it:
        agent = await it.run()

        problem = "it ended with exit code 7"
        match point:
            case "UserPromptSubmit":
                assert ends(agent.session) == [{"kind": "blocked"}]
            case "PostToolUse":
                assert problem in results(agent)[0][0]
            case "Stop":
                assert [point for point, _ in logged(agent)] == ["Stop"] * 3
            case "SessionStart":
                [end] = ends(agent.session)
                assert end["kind"] == "aborted"
                assert problem in end["reason"]["reason"]
                assert it.it.model.requests == []


@pytest.mark.parametrize(
    "raw", ['{"hooks": {"PreToolUse": [{"matcher": "(", "hooks": []}]}}', "{", "[]"], ids=len
)
@BOTH
@aio
async def test_a_broken_file_is_told_and_nothing_of_it_runs(
    row: ModuleType, raw: str, tmp_path: Path
) -> None:
    async with hooked(tmp_path, raw, *working("a"), row=row) as it:
        agent = await it.run()

        [told] = it.told
        assert "no hook of it runs" in told
        assert it.ran == ["a"]
        assert not [kind for kind in types(agent.session) if kind.startswith("hook")]


@pytest.mark.parametrize("path", ["~no-such-user/hooks.json", "a\0b", "x" * 5000])
@aio
async def test_a_path_that_leads_nowhere_is_told(path: str, tmp_path: Path) -> None:
    async with hooked(tmp_path, {}, *working("a"), configPath=path) as it:
        await it.run()

        [told] = it.told
        assert "cannot be read" in told
        assert it.ran == ["a"]


@aio
async def test_a_broken_file_with_a_guard_ends_the_start(tmp_path: Path) -> None:
    guard = '{"hooks": {"PreToolUse": [{"hooks": [{"command": "x", "onFailure": "deny"},]}]}}'
    deny: dict[str, Any] = {"onFailure": "deny"}
    for raw, config in ((guard, {}), ("{", deny)):
        with pytest.raises(CompositionError, match="no JSON"):
            async with hooked(tmp_path, raw, **config):
                pass


# -- side by side ----------------------------------------------------------------------------------


@aio
async def test_hooks_of_one_event_run_side_by_side_and_are_merged_in_the_order_of_the_file(
    tmp_path: Path,
) -> None:
    """Each of the two waits for what the other does."""
    first = command("touch a; until [ -e b ]; do sleep 0.01; done; echo first", timeout=60)
    second = command("touch b; until [ -e a ]; do sleep 0.01; done; echo second", timeout=60)
    async with hooked(tmp_path, {"UserPromptSubmit": [first, second]}) as it:
        agent = await it.run()

        assert told_the_model(agent) == [["first\n\n", "second"]]
        ids = [data["handlerId"] for data in data_of(agent.session, "hook/result")]
        assert ids == ["claude-code:UserPromptSubmit:1", "claude-code:UserPromptSubmit:2"]


@aio
async def test_the_row_can_run_them_one_after_the_other(tmp_path: Path) -> None:
    first = command("sleep 0.2; touch a")
    second = command("[ -e a ] && echo after")
    async with hooked(tmp_path, {"UserPromptSubmit": [first, second]}, concurrent=False) as it:
        agent = await it.run()

        assert told_the_model(agent) == [["after"]]
        kinds = [kind for kind in types(agent.session) if kind.startswith("hook")]
        assert kinds == ["hook/invoked", "hook/result"] * 2


@BOTH
@aio
async def test_the_log_pairs_each_hook_with_its_result_inside_the_turn(
    row: ModuleType, tmp_path: Path
) -> None:
    hooks: dict[str, list[Any]] = {
        "SessionStart": [command("true")],
        "UserPromptSubmit": [{"matcher": "nothing-matches", "hooks": [command("true")]}],
        "PreToolUse": [
            {"matcher": "work|edit", "hooks": [command("printf '\\303\\251\\342\\234\\223' >&2")]}
        ],
        "Stop": [command("true")],
    }
    async with hooked(tmp_path, hooks, *working("a"), row=row, stderrSummaryMaxChars=1) as it:
        agent = await it.run()

        dialect = "codex" if row is hooks_codex else "claude-code"
        invoked = data_of(agent.session, "hook/invoked")
        assert invoked == [
            {
                "turn": 1,
                "point": point,
                "dialect": dialect,
                "handlerId": f"{dialect}:{point}:{number}",
                **matcher,
            }
            for point, number, matcher in (
                ("UserPromptSubmit", 2, {}),
                ("PreToolUse", 3, {"matcher": "work|edit"}),
                ("Stop", 4, {}),
            )
        ]
        finished = data_of(agent.session, "hook/result")
        assert [one["handlerId"] for one in finished] == [one["handlerId"] for one in invoked]
        assert [one.get("stderrSummary") for one in finished] == [None, "é…", None]
        assert all(isinstance(one["durationMs"], int) and one["durationMs"] >= 0 for one in finished)


@aio
async def test_only_hooks_that_match_run(tmp_path: Path) -> None:
    hooks = {
        "PreToolUse": [
            {"matcher": "work", "hooks": [command("echo one >> ran")]},
            {"matcher": "wor", "hooks": [command("echo two >> ran")]},
            {"matcher": "w.*k", "hooks": [command("echo three >> ran")]},
        ],
        "SessionStart": [
            {"matcher": "resume", "hooks": [command("echo four >> ran")]},
            {"matcher": "startup", "hooks": [command("echo five >> ran")]},
        ],
    }
    async with hooked(tmp_path, hooks, *working("a"), concurrent=False) as it:
        await it.run()

        assert (tmp_path / "ran").read_text().split() == ["five", "one", "three"]


# -- what is long ----------------------------------------------------------------------------------


@aio
async def test_a_long_context_is_cut_on_a_character_and_says_so(tmp_path: Path) -> None:
    hooks = {"UserPromptSubmit": [adding("UserPromptSubmit", "🏷" * 3000)]}
    async with hooked(tmp_path, hooks, maxContextChars=1000) as it:
        agent = await it.run()

        [[told]] = told_the_model(agent)
        assert told == "🏷" * 1000 + "… [2000 more characters of this hook's context are left out]"


@aio
async def test_a_message_for_a_person_is_one_line(tmp_path: Path) -> None:
    async with hooked(tmp_path, {"Stop": [answering(systemMessage="lint:\n  2 warnings")]}) as it:
        await it.run()

        assert it.told == ["hooks-claude-code: lint: 2 warnings"]


# -- ends ------------------------------------------------------------------------------------------


@aio
async def test_a_timeout_ends_the_whole_group(tmp_path: Path) -> None:
    hook = command("sleep 300 & echo $! > pid; wait", timeout=0.5)
    async with hooked(tmp_path, {"PreToolUse": [hook]}, *working("a")) as it:
        agent = await it.run()

        assert is_gone(pid_of(it))
        assert it.ran == ["a"]
        assert logged(agent) == [("PreToolUse", "pass")]


@pytest.mark.parametrize("point", ["UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionStart"])
@aio
async def test_the_end_of_a_turn_ends_its_hooks(point: str, tmp_path: Path) -> None:
    cause: CancelCause = {"kind": "user"}
    async with hooked(tmp_path, {point: [SLOW]}, *working("a")) as it:
        agent = await it.agent()
        going = asyncio.ensure_future(it.it.prompt(agent, "go"))
        await until(lambda: has_pid(it))
        agent.cancel(cause)
        await going

        assert ends(agent.session) == [{"kind": "aborted", "reason": {"kind": "user"}}]
        assert it.told == []
        if point != "SessionStart":  # whose hooks belong to the session
            assert is_gone(pid_of(it))
    assert is_gone(pid_of(it))


@pytest.mark.parametrize("point", ["SessionStart", "PreToolUse"])
@aio
async def test_unloading_the_row_ends_its_hooks_and_waits_for_that(point: str, tmp_path: Path) -> None:
    fibers: list[Any] = []

    class Watched:
        Config = hooks_claude_code.Config
        inject = hooks_claude_code.inject

        @staticmethod
        def apply(ctx: Context, config: Any) -> None:
            fibers.append(ctx.fiber)
            hooks_claude_code.apply(ctx, config)

    watched: Any = Watched()
    async with hooked(tmp_path, {point: [SLOW]}, *working("a"), row=watched) as it:
        agent = await it.agent()
        going = asyncio.ensure_future(it.it.prompt(agent, "go"))
        await until(lambda: has_pid(it))
        await fibers[0].dispose()

        assert is_gone(pid_of(it), 5)
        await going
        assert it.ran == ["a"]
        assert ends(agent.session) == [{"kind": "completed"}]


@aio
async def test_the_end_of_an_agent_ends_the_hooks_of_its_start(tmp_path: Path) -> None:
    async with hooked(tmp_path, {"SessionStart": [SLOW]}) as it:
        handle = await it.it.create(cwd=str(tmp_path))
        await until(lambda: has_pid(it))
        await handle.dispose()

        await until(lambda: is_gone(pid_of(it), 0))


@aio
async def test_a_background_child_of_a_hook_delays_nothing(tmp_path: Path) -> None:
    hook = command("sleep 300 > /dev/null 2>&1 & echo $! > pid")
    begun = time.monotonic()
    async with hooked(tmp_path, {"PreToolUse": [hook]}, *working("a")) as it:
        await it.run()
        assert it.ran == ["a"]
    assert time.monotonic() - begun < 60
    assert is_gone(pid_of(it))


@aio
async def test_a_run_without_hooks_that_match_logs_nothing_and_starts_nothing(tmp_path: Path) -> None:
    hooks = {"PreToolUse": [{"matcher": "edit", "hooks": [command("touch ran")]}]}
    async with hooked(tmp_path, hooks, calls(("c1", "work", "{}")), text("done")) as it:
        agent = await it.run()

        assert not (tmp_path / "ran").exists()
        assert logged(agent) == []
