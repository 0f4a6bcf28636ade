"""What hooks decide about prompts, calls, results and the end of a turn, alone and against others."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dsh.capabilities.approval import APPROVAL_REQUEST
from dsh.plugins import approval, hooks_codex
from dsh.session.message import user_message
from dsh.tools.event import TOOLS_PRE_EXECUTE, Ask, Deny, PreDecision
from tests.agent.hooks.kit import (
    ROWS,
    Hooked,
    adding,
    answering,
    command,
    file_of,
    hooked,
    logged,
    permission,
    results,
    told_the_model,
    working,
)
from tests.agent.kit import calls, data_of, ends, text, texts_of, types, until
from tests.aio import aio

BOTH = pytest.mark.parametrize("row", ROWS, ids=["claude-code", "codex"])
GIVEN = "approval for this call was rejected"


def listening(it: Hooked, decision: PreDecision) -> None:
    """Another policy, behind or before the hooks: where it stands makes no difference."""

    async def decide(execution: Any, following: Callable[[], Awaitable[PreDecision]]) -> PreDecision:
        await following()
        return decision

    it.it.ctx.on(TOOLS_PRE_EXECUTE, decide)


def answered(it: Hooked, outcome: str) -> list[str | None]:
    """Somebody answers all approvals so; the list is of the reasons that were given."""
    asked: list[str | None] = []

    async def answer(request: Any, following: Any) -> str:
        asked.append(request.reason)
        return outcome

    it.it.ctx.on(APPROVAL_REQUEST, answer)
    return asked


# -- calls -----------------------------------------------------------------------------------------


@BOTH
@aio
async def test_a_denied_call_does_not_run_and_the_model_reads_why(row: ModuleType, tmp_path: Path) -> None:
    hooks = {"PreToolUse": [permission("deny", "not on a Friday")]}
    async with hooked(tmp_path, hooks, *working("a"), row=row) as it:
        agent = await it.run()

        assert results(agent) == [("Error: not on a Friday", True)]
        assert (it.ran, logged(agent)) == ([], [("PreToolUse", "deny")])
        kinds = [kind for kind in types(agent.session) if kind.startswith(("tool", "hook"))]
        assert kinds == ["tool/call", "hook/invoked", "hook/result", "tool/result"]


@pytest.mark.parametrize("denying", [command("exit 2"), answering(decision="block"), permission("deny")])
@aio
async def test_a_denial_without_a_reason_has_words(denying: dict[str, Any], tmp_path: Path) -> None:
    async with hooked(tmp_path, {"PreToolUse": [denying]}, *working("a")) as it:
        agent = await it.run()

        assert results(agent) == [("Error: a hook refused this call without a reason", True)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@aio
async def test_one_that_denies_beats_one_that_allows(order: tuple[int, int], tmp_path: Path) -> None:
    both = [permission("allow", "fine"), permission("deny", "no")]
    async with hooked(tmp_path, {"PreToolUse": [both[at] for at in order]}, *working("a")) as it:
        agent = await it.run()

        assert results(agent) == [("Error: no", True)]


@aio
async def test_reasons_of_all_that_deny_are_read(tmp_path: Path) -> None:
    hooks = {"PreToolUse": [permission("deny", "one"), permission("ask", "q"), permission("deny", "two")]}
    async with hooked(tmp_path, hooks, *working("a")) as it:
        agent = await it.run()

        assert results(agent) == [("Error: one\n\ntwo", True)]


@pytest.mark.parametrize(("outcome", "runs"), [("allowed-once", True), ("rejected", False)])
@BOTH
@aio
async def test_a_question_is_put_to_a_person(
    row: ModuleType, outcome: str, runs: bool, tmp_path: Path
) -> None:
    hooks = {"PreToolUse": [permission("ask", "sure?"), permission("allow")]}
    async with hooked(tmp_path, hooks, *working("a"), row=row, rows=[(approval, {})]) as it:
        asked = answered(it, outcome)
        agent = await it.run()

        assert asked == ["sure?"]
        assert bool(it.ran) is runs
        assert runs or results(agent) == [(f"Error: {GIVEN}", True)]


@aio
async def test_an_allowed_call_needs_no_approval_that_another_policy_asks_for(tmp_path: Path) -> None:
    async with hooked(
        tmp_path, {"PreToolUse": [permission("allow")]}, *working("a"), rows=[(approval, {"policy": "never"})]
    ) as it:
        listening(it, Ask("deletes"))
        agent = await it.run()

        assert it.ran == ["a"]
        assert data_of(agent.session, "approval/asked") == []


@aio
async def test_allow_answers_no_denial_and_no_guard(tmp_path: Path) -> None:
    async with hooked(tmp_path, {"PreToolUse": [permission("allow")]}, *working("a", "b")) as it:
        it.it.tools.guard(lambda execution: "guarded" if execution.arguments["command"] == "a" else None)
        listening(it, Deny("denied"))
        agent = await it.run()

        assert it.ran == []
        assert [said for said, _ in results(agent)] == ["Error: denied"] * 2

    async with hooked(tmp_path, {"PreToolUse": [permission("allow")]}, *working("a")) as it:
        it.it.tools.guard(lambda execution: "guarded")
        assert results(await it.run()) == [("Error: guarded", True)]


@pytest.mark.parametrize("asking", [0, 1])
@aio
async def test_the_allow_of_one_row_does_not_answer_the_question_of_the_other(
    asking: int, tmp_path: Path
) -> None:
    (tmp_path / "codex.json").write_text(
        file_of({"PreToolUse": [permission("ask" if asking else "allow", "sure?")]})
    )
    other = (hooks_codex, {"configPath": str(tmp_path / "codex.json")})
    hooks = {"PreToolUse": [permission("allow" if asking else "ask", "sure?")]}
    async with hooked(tmp_path, hooks, *working("a"), rows=[(approval, {}), other]) as it:
        asked = answered(it, "rejected")
        await it.run()

        assert (asked, it.ran) == (["sure?"], [])


@aio
async def test_both_questions_are_put_as_one(tmp_path: Path) -> None:
    async with hooked(
        tmp_path, {"PreToolUse": [permission("ask", "hook")]}, *working("a"), rows=[(approval, {})]
    ) as it:
        listening(it, Ask("policy"))
        asked = answered(it, "allowed-once")
        await it.run()

        assert asked == ["hook\n\npolicy"]


@aio
async def test_context_before_a_call_reaches_the_model_after_its_result(tmp_path: Path) -> None:
    async with hooked(tmp_path, {"PreToolUse": [adding("PreToolUse", "mind the gap")]}, *working("a")) as it:
        agent = await it.run()

        assert told_the_model(agent) == [["mind the gap"]]
        assert texts_of(it.it.model.requests[1])[-2:] == ["user: result c0: did a", "user: mind the gap"]


@aio
async def test_context_of_a_denied_call_stands_in_the_reason(tmp_path: Path) -> None:
    hooks = {"PreToolUse": [permission("deny", "no"), adding("PreToolUse", "use make")]}
    async with hooked(tmp_path, hooks, *working("a")) as it:
        agent = await it.run()

        assert results(agent) == [("Error: no\n\nuse make", True)]
        assert told_the_model(agent) == []


# -- other arguments -------------------------------------------------------------------------------


@aio
async def test_a_hook_that_wants_other_arguments_gets_them_from_the_model(tmp_path: Path) -> None:
    """What was called stays as it was logged, and is not run; the call that the hook asked for is."""
    wanted = {"command": "safe a"}
    hooks = {"PreToolUse": [permission("allow", updatedInput=wanted)]}
    async with hooked(tmp_path, hooks, *working("a", "safe a")) as it:
        agent = await it.run()

        [(refusal, is_error), ran] = results(agent)
        assert is_error
        assert refusal.endswith('make it again with exactly these: {"command":"safe a"}')
        assert ran == ("did safe a", False)
        assert it.ran == ["safe a"]
        assert [json.loads(data["arguments"]) for data in data_of(agent.session, "tool/call")] == [
            {"command": "a"},
            wanted,
        ]


@aio
async def test_a_hook_that_always_wants_more_is_not_asked_for_ever(tmp_path: Path) -> None:
    script = (
        "import json, sys; i = json.load(sys.stdin)['tool_input']; i['command'] = 'nice ' + i['command'];"
        "print(json.dumps({'hookSpecificOutput': {'hookEventName': 'PreToolUse', 'updatedInput': i}}))"
    )
    hooks = {"PreToolUse": [command(f'python3 -c "{script}"')]}
    async with hooked(tmp_path, hooks, *working("a", "nice a")) as it:
        await it.run()

        assert it.ran == ["nice a"]


@aio
async def test_the_same_arguments_in_another_order_are_the_same(tmp_path: Path) -> None:
    hooks = {"PreToolUse": [permission("allow", updatedInput={"note": "n", "command": "a"})]}
    raw = '{"command": "a", "note": "n"}'
    async with hooked(tmp_path, hooks, calls(("c1", "work", raw)), text("done")) as it:
        await it.run()

        assert it.ran == ["a"]


@aio
async def test_the_call_that_was_asked_for_runs_however_its_arguments_are_ordered(tmp_path: Path) -> None:
    script = (
        "import json, sys; i = json.load(sys.stdin)['tool_input']; i['note'] += '!';"
        "print(json.dumps({'hookSpecificOutput': {'hookEventName': 'PreToolUse', 'updatedInput': i}}))"
    )
    asked = [
        calls(("c1", "work", '{"command": "a", "note": "n"}')),
        calls(("c2", "work", '{"note": "n!", "command": "a"}')),
    ]
    async with hooked(
        tmp_path, {"PreToolUse": [command(f'python3 -c "{script}"')]}, *asked, text("done")
    ) as it:
        await it.run()

        assert it.ran == ["a"]


@pytest.mark.parametrize("encoding", ["gbk", "utf-16"])
@aio
async def test_a_decision_in_another_encoding_is_read_or_is_a_failure(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "said").write_bytes(
        json.dumps({"decision": "block", "reason": "禁止删除文件" * 12}, ensure_ascii=False).encode(encoding)
    )
    async with hooked(tmp_path, {"PreToolUse": [command("cat said", onFailure="deny")]}, *working("a")) as it:
        agent = await it.run()

        assert it.ran == []
        [(said, _)] = results(agent)
        assert ("what it printed is no text" in said) is (encoding == "utf-16")


@pytest.mark.parametrize("point", ["PreToolUse", "PostToolUse"])
@aio
async def test_the_deepest_call_there_is_reaches_a_hook(point: str, tmp_path: Path) -> None:
    raw = '{"command": "a", "x": ' + "[" * 511 + "]" * 511 + "}"
    async with hooked(
        tmp_path, {point: [command("cat > seen")]}, calls(("c1", "work", raw)), text("done")
    ) as it:
        agent = await it.run()

        assert results(agent) == [("did a", False)]
        assert it.payload("seen")["tool_name"] == "work"


# -- results ---------------------------------------------------------------------------------------


@BOTH
@aio
async def test_a_blocked_result_is_replaced_by_the_feedback(row: ModuleType, tmp_path: Path) -> None:
    hooks = {"PostToolUse": [answering(decision="block", reason="the tests fail now")]}
    async with hooked(tmp_path, hooks, *working("a"), row=row) as it:
        agent = await it.run()

        assert (it.ran, results(agent)) == (["a"], [("the tests fail now", True)])
        kinds = [kind for kind in types(agent.session) if kind.startswith(("tool", "hook"))]
        assert kinds == ["tool/call", "hook/invoked", "hook/result", "tool/result"]


@aio
async def test_context_after_a_call_leaves_the_result_alone(tmp_path: Path) -> None:
    hooks = {"PostToolUse": [adding("PostToolUse", "formatted"), adding("PostToolUse", "checked")]}
    async with hooked(tmp_path, hooks, *working("a")) as it:
        agent = await it.run()

        assert results(agent) == [("did a", False)]
        assert told_the_model(agent) == [["formatted\n\n", "checked"]]


@aio
async def test_no_hook_looks_at_a_call_that_was_not_made(tmp_path: Path) -> None:
    hooks = {"PreToolUse": [permission("deny", "no")], "PostToolUse": [command("touch looked")]}
    async with hooked(tmp_path, hooks, *working("a")) as it:
        await it.run()

        assert not (tmp_path / "looked").exists()


@aio
async def test_a_hook_looks_at_failures_too(tmp_path: Path) -> None:
    async with hooked(
        tmp_path, {"PostToolUse": [command("cat > seen")]}, calls(("c1", "fail", "{}")), text("done")
    ) as it:

        async def fail(_: Any, __: Any) -> str:
            raise ValueError("it broke")

        it.it.tool("fail", fail)
        await it.run()

        assert it.payload("seen")["tool_response"] == "Error: it broke"


# -- prompts ---------------------------------------------------------------------------------------


@BOTH
@aio
async def test_a_refused_prompt_is_told_and_no_request_is_made(row: ModuleType, tmp_path: Path) -> None:
    async with hooked(
        tmp_path, {"UserPromptSubmit": [command("echo 'no secrets' >&2; exit 2")]}, row=row
    ) as it:
        agent = await it.run("my password is x")

        assert ends(agent.session) == [{"kind": "blocked"}]
        assert it.it.model.requests == []
        assert it.told == ["dsh: a UserPromptSubmit hook refused the task: no secrets"]


@aio
async def test_only_what_a_person_says_is_submitted(tmp_path: Path) -> None:
    hooks = {"UserPromptSubmit": [command("echo asked >> asked")], "Stop": [command("exit 0")]}
    async with hooked(tmp_path, hooks, *working("a")) as it:
        agent = await it.run()
        agent.followup(user_message("notice", {"kind": "plugin", "plugin": "x"}))
        await agent.when_idle()
        assert (tmp_path / "asked").read_text() == "asked\n"

        await it.it.prompt(agent, "again")
        assert (tmp_path / "asked").read_text() == "asked\n" * 2


@aio
async def test_contexts_follow_the_prompt_start_first(tmp_path: Path) -> None:
    hooks = {
        "UserPromptSubmit": [adding("UserPromptSubmit", "prompt one"), command("echo prompt two")],
        "SessionStart": [command("echo start")],
    }
    async with hooked(tmp_path, hooks) as it:
        agent = await it.run("the task")
        await it.it.prompt(agent, "next")

        assert texts_of(it.it.model.requests[0]) == [
            "user: the task",
            "user: start",
            "user: prompt one\n\n | prompt two",
        ]
        assert [message[0] for message in told_the_model(agent)] == [
            "start",
            "prompt one\n\n",
            "prompt one\n\n",
        ]


# -- the start of a session ------------------------------------------------------------------------


@aio
async def test_a_start_that_takes_too_long_delays_the_first_step_only_so_long(tmp_path: Path) -> None:
    hooks = {"SessionStart": [command("until [ -e go ]; do sleep 0.01; done; echo late")]}
    async with hooked(tmp_path, hooks, sessionStartWaitMs=50) as it:
        agent = await it.run()
        [told] = it.told
        assert "hooks of the session's start still run after 0.05 s" in told
        assert told_the_model(agent) == []

        (tmp_path / "go").touch()
        async with asyncio.timeout(60):
            while not told_the_model(agent):
                await it.it.prompt(agent, "next")
        await it.it.prompt(agent, "next")

        assert told_the_model(agent) == [["late"]]
        assert it.told == [told]


@aio
async def test_a_late_start_stops_the_agent_all_the_same(tmp_path: Path) -> None:
    line = f"until [ -e go ]; do sleep 0.01; done; echo '{json.dumps(HALT)}'"
    async with hooked(tmp_path, {"SessionStart": [command(line)]}, sessionStartWaitMs=50) as it:
        agent = await it.run()
        (tmp_path / "go").touch()
        async with asyncio.timeout(60):
            while ends(agent.session)[-1]["kind"] == "completed":
                await it.it.prompt(agent, "next")

        why = "SessionStart hook: out of budget"
        assert ends(agent.session)[-1] == {"kind": "aborted", "reason": {"kind": "hook", "reason": why}}


@aio
async def test_a_turn_that_was_cancelled_takes_nothing_of_the_start_away(tmp_path: Path) -> None:
    async with hooked(
        tmp_path, {"SessionStart": [command("until [ -e go ]; do sleep 0.01; done; echo on")]}
    ) as it:
        agent = await it.agent()
        going = asyncio.ensure_future(it.it.prompt(agent, "go"))
        await until(lambda: agent.session.open_turn is not None)
        agent.cancel({"kind": "user"})
        await going
        going = asyncio.ensure_future(it.it.prompt(agent, "again"))
        await until(lambda: agent.session.open_turn is not None)
        (tmp_path / "go").touch()
        await going

        assert it.told == []
        assert told_the_model(agent) == [["on"]]


@aio
async def test_a_start_that_blocks_with_a_mistake_is_no_guard(tmp_path: Path) -> None:
    hook = answering(decision="block", reason="no venv", hookSpecificOutput=3)
    async with hooked(tmp_path, {"SessionStart": [hook]}) as it:
        agent = await it.run()

        assert ends(agent.session) == [{"kind": "completed"}]
        assert "hooks-claude-code: no venv" in it.told


@aio
async def test_a_start_that_blocks_blocks_nothing_but_is_heard(tmp_path: Path) -> None:
    async with hooked(tmp_path, {"SessionStart": [command("echo 'no venv' >&2; exit 2")]}) as it:
        agent = await it.run()

        assert ends(agent.session) == [{"kind": "completed"}]
        assert it.told == ["hooks-claude-code: no venv"]


@aio
async def test_a_start_that_was_stopped_stays_stopped(tmp_path: Path) -> None:
    stop = command("""echo '{"continue": false, "stopReason": "frozen"}'""")
    async with hooked(tmp_path, {"SessionStart": [stop]}) as it:
        agent = await it.run()
        await it.it.prompt(agent, "again")

        cause = {"kind": "hook", "reason": "SessionStart hook: frozen"}
        assert ends(agent.session) == [{"kind": "aborted", "reason": cause}] * 2
        assert it.it.model.requests == []


# -- the end of a turn -----------------------------------------------------------------------------


@BOTH
@aio
async def test_a_stop_hook_that_blocks_keeps_the_turn_going_and_knows_it(
    row: ModuleType, tmp_path: Path
) -> None:
    line = (
        'IN=$(cat); case "$IN" in *\'"stop_hook_active":true\'*) exit 0;; esac;'
        ' echo "tests first" >&2; exit 2'
    )
    async with hooked(tmp_path, {"Stop": [command(line)]}, text("one"), text("two"), row=row) as it:
        agent = await it.run()
        owner = "hooks-codex" if row is hooks_codex else "hooks-claude-code"

        assert told_the_model(agent, owner) == [["tests first"]]
        assert logged(agent) == [("Stop", "block"), ("Stop", "pass")]
        assert ends(agent.session) == [{"kind": "completed"}]
        assert len(it.it.model.requests) == 2

        await it.it.prompt(agent, "next")
        assert logged(agent)[2:] == [("Stop", "block"), ("Stop", "pass")]


@aio
async def test_a_stop_hook_that_never_lets_go_is_let_go_of(tmp_path: Path) -> None:
    hooks = {"Stop": [answering(decision="block", reason="more")]}
    async with hooked(tmp_path, hooks, maxStopContinuations=3) as it:
        agent = await it.run()

        assert logged(agent) == [("Stop", "block")] * 4
        assert len(it.it.model.requests) == 4
        assert ends(agent.session) == [{"kind": "completed"}]
        [told] = it.told
        assert "kept turn 1 going 3 times in a row" in told


# -- continue: false -------------------------------------------------------------------------------

HALT = {"continue": False, "stopReason": "out of budget"}


@pytest.mark.parametrize("point", ["SessionStart", "PreToolUse", "PostToolUse"])
@aio
async def test_a_hook_can_end_the_turn_and_the_log_says_which(point: str, tmp_path: Path) -> None:
    asked = calls(("c1", "work", '{"command": "a"}'), ("c2", "work", '{"command": "b"}'))
    async with hooked(tmp_path, {point: [answering(**HALT)]}, asked, text("never")) as it:
        agent = await it.run()

        why = f"{point} hook: out of budget"
        assert ends(agent.session) == [{"kind": "aborted", "reason": {"kind": "hook", "reason": why}}]
        assert len(it.it.model.requests) == (0 if point == "SessionStart" else 1)
        refused = (f"Error: {why}", True)
        assert (
            results(agent)
            == {
                "SessionStart": [],
                "PreToolUse": [refused, refused],
                "PostToolUse": [("did a", False), refused],
            }[point]
        )
        assert logged(agent) == ([] if point == "SessionStart" else [(point, "stop")])


@aio
async def test_the_next_turn_is_a_new_one(tmp_path: Path) -> None:
    line = f"[ -e once ] || {{ touch once; echo '{json.dumps(HALT)}'; }}"
    async with hooked(tmp_path, {"PostToolUse": [command(line)]}, *working("a", "b")) as it:
        agent = await it.run()
        await it.it.prompt(agent, "go on")

        assert [end["kind"] for end in ends(agent.session)] == ["aborted", "completed"]
        assert it.ran == ["a", "b"]


@aio
async def test_a_prompt_can_be_stopped_too(tmp_path: Path) -> None:
    async with hooked(tmp_path, {"UserPromptSubmit": [answering(**HALT)]}) as it:
        agent = await it.run()

        assert ends(agent.session) == [{"kind": "blocked"}]
        assert it.told == ["dsh: a UserPromptSubmit hook refused the task: out of budget"]


@aio
async def test_at_the_end_of_a_turn_stopping_beats_going_on(tmp_path: Path) -> None:
    async with hooked(tmp_path, {"Stop": [answering(decision="block", reason="more", **HALT)]}) as it:
        agent = await it.run()

        assert logged(agent) == [("Stop", "block")]
        assert ends(agent.session) == [{"kind": "completed"}]
        assert len(it.it.model.requests) == 1


@aio
async def test_a_reason_that_looks_like_a_limit_is_none(tmp_path: Path) -> None:
    halt = {"continue": False, "stopReason": "limit:steps"}
    async with hooked(tmp_path, {"PreToolUse": [answering(**halt)]}, *working("a")) as it:
        [end] = ends((await it.run()).session)

        assert end["reason"]["reason"] == "PreToolUse hook: limit:steps"
