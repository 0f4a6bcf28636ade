"""Row `commands`: who sees which command, what running one does, and the pair that it leaves in the log."""

import asyncio
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.capabilities.commands import (
    COMMANDS_CHANGE,
    Command,
    CommandCall,
    CommandError,
    CommandFailure,
    CommandOutcome,
    CommandSuccess,
)
from dsh.errors import DshError
from dsh.kernel import Cancelled, Context
from dsh.plugins.commands import NAME
from tests.aio import aio
from tests.plugins.command_kit import (
    RUN,
    answering,
    command,
    commands_of,
    logged,
    mounted,
)
from tests.tools.kit import agent_in

# -- registration ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "C", "1a", "-a", "a b", "a/b", "é", "a.b", "a\n", None, 7])
@aio
async def test_a_name_that_cannot_be_typed_is_refused(name: Any) -> None:
    ctx, service, _ = await mounted()

    with pytest.raises(CommandError) as caught:
        service.register(command(name))

    assert caught.value.code == "INVALID_COMMAND"
    await ctx.dispose()


@pytest.mark.parametrize("changes", [{"description": ""}, {"description": None}, {"handler": 7}])
@aio
async def test_a_command_without_description_or_handler_is_refused(changes: Any) -> None:
    ctx, service, _ = await mounted()

    with pytest.raises(CommandError, match="needs a description and a handler"):
        service.register(Command(**{"name": "c", "description": "d", "handler": answering(None), **changes}))
    with pytest.raises(CommandError, match="takes a Command"):
        service.register("c")  # type: ignore[arg-type]

    assert service.list() == ()
    await ctx.dispose()


@aio
async def test_a_name_is_free_once_in_each_layer_and_the_nearer_one_shadows() -> None:
    ctx, service, _ = await mounted()
    agent, scope = await agent_in(ctx)
    outer, inner = command("c"), command("c")
    service.register(outer)
    service.register(command("a"))

    with pytest.raises(CommandError) as caught:
        service.register(command("c"))
    assert caught.value.code == "DUPLICATE_COMMAND"
    commands_of(scope.ctx).register(inner)

    assert [one.name for one in service.list(agent)] == ["a", "c"]
    assert service.list(agent)[1] is inner
    assert service.list()[1] is outer
    await scope.fiber.dispose()
    assert service.list(agent)[1] is outer
    await ctx.dispose()


@aio
async def test_a_command_goes_with_the_plugin_that_offers_it_and_every_change_is_told() -> None:
    ctx, service, _ = await mounted()
    agent, scope = await agent_in(ctx)
    told: list[object] = []
    ctx.on(COMMANDS_CHANGE, lambda changed: told.append(changed.scope))

    def plugin(inner: Context) -> None:
        commands_of(inner).register(command())

    fiber = ctx.plugin(plugin, name="plugin")
    await fiber
    assert [one.name for one in service.list()] == ["c"]
    commands_of(scope.ctx).register(command("own"))
    await fiber.dispose()

    assert [one.name for one in service.list(agent)] == ["own"]
    assert told == [None, agent, None]
    await ctx.dispose()


# -- running ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "raw"),
    [
        ("/c", ""),
        ("/c x", " x"),
        ("/c  two  words ", "  two  words "),
        ("/c\nnext\nline", "\nnext\nline"),
        ("/c\t", "\t"),
        ("/c \ud800", " \ufffd"),
    ],
)
@aio
async def test_the_handler_gets_what_was_typed_after_the_name(line: str, raw: str) -> None:
    ctx, service, agent = await mounted()
    seen: list[CommandCall] = []

    async def handler(call: CommandCall) -> CommandOutcome:
        seen.append(call)
        assert [event.type for event in agent.session.events()] == ["command/run"]
        return CommandSuccess("done")

    service.register(command(handler=handler))

    assert await service.execute(agent, line) == CommandSuccess("done")

    assert (seen[0].raw_input, seen[0].agent) == (raw, agent)
    assert logged(agent) == [
        ("command/run", {"name": "c", "args": raw, "source": {"kind": "user"}}),
        ("command/done", {"kind": "success", "text": "done"}),
    ]
    await ctx.dispose()


@aio
async def test_ids_count_in_the_process_and_join_the_pair() -> None:
    ctx, service, agent = await mounted()
    service.register(command())

    await service.execute(agent, "/c")
    await commands_of(agent.ctx).execute(agent, "/c")

    ids = [data["commandId"] for _, data in agent.logged()]
    assert ids[0] == ids[1] and ids[2] == ids[3]
    found = [re.fullmatch(r"cmd-([0-9a-f]{8})-(\d+)", one) for one in (ids[0], ids[2])]
    assert found[0] and found[1] and found[0][1] == found[1][1]
    assert (found[0][2], found[1][2]) == ("1", "2")
    await ctx.dispose()


@aio
async def test_a_command_may_keep_its_input_out_of_the_log() -> None:
    ctx, service, agent = await mounted()
    service.register(command(records_input=False))

    await service.execute(agent, "/c my secret")

    assert logged(agent)[0] == ("command/run", {"name": "c", "source": {"kind": "user"}})
    assert "secret" not in str(agent.logged())
    await ctx.dispose()


@pytest.mark.parametrize(
    ("line", "code", "hint"),
    [
        ("hello", "NO_COMMAND", "/permission read-only"),
        ("", "NO_COMMAND", "/permission read-only"),
        ("/", "NO_COMMAND", "/permission read-only"),
        ("/ c", "NO_COMMAND", "/permission read-only"),
        (" /c", "NO_COMMAND", "/permission read-only"),
        ("/tmp/x", "UNKNOWN_COMMAND", "commands: /compact"),
        ("/COMPACT", "UNKNOWN_COMMAND", "commands: /compact"),
        ("/compat now", "UNKNOWN_COMMAND", "did you mean /compact?"),
        (f"/{'a' * 9999}", "UNKNOWN_COMMAND", "commands: /compact"),
    ],
)
@aio
async def test_what_is_no_command_here_is_told_and_not_logged(line: str, code: str, hint: str) -> None:
    ctx, service, agent = await mounted()
    service.register(command("compact"))

    with pytest.raises(CommandError) as caught:
        await service.execute(agent, line)

    assert (caught.value.code, hint in caught.value.hint) == (code, True)
    assert len(str(caught.value)) < 200
    assert agent.logged() == []
    await ctx.dispose()


@aio
async def test_a_command_of_another_scope_is_unknown() -> None:
    ctx, service, agent = await mounted()
    _, scope = await agent_in(ctx, "other")
    commands_of(scope.ctx).register(command())

    with pytest.raises(CommandError, match="no command /c"):
        await service.execute(agent, "/c")
    await ctx.dispose()


class HostileError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("told")


@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        (CommandSuccess(), "success", None),
        (CommandSuccess(""), "success", ""),
        (CommandSuccess("half \ud83d"), "success", "half \ufffd"),
        (CommandFailure("no"), "error", "no"),
        (CommandFailure(""), "error", "/c failed"),
        (DshError("no such thing", hint="try another"), "error", "no such thing; try another"),
        (ValueError("seven"), "error", "ValueError: seven"),
        (HostileError(), "error", "HostileError: its text cannot be had (RuntimeError)"),
        (Cancelled("by itself"), "error", "Cancelled: cancelled: 'by itself'"),
        (SystemExit(3), "error", "command /c raised SystemExit: 3"),
        (KeyboardInterrupt(), "error", "command /c raised KeyboardInterrupt"),
        (None, "error", "/c answered NoneType, expected CommandSuccess or CommandFailure with a text"),
        ("done", "error", "/c answered str, expected CommandSuccess or CommandFailure with a text"),
        (CommandSuccess(7), "error", "/c answered CommandSuccess, expected"),  # type: ignore[arg-type]
        (CommandFailure(None), "error", "/c answered CommandFailure, expected"),  # type: ignore[arg-type]
    ],
)
@aio
async def test_whatever_a_handler_does_the_pair_is_closed(answer: Any, kind: str, told: str | None) -> None:
    ctx, service, agent = await mounted()
    service.register(command(handler=answering(answer)))

    outcome = await service.execute(agent, "/c")

    assert isinstance(outcome, CommandSuccess if kind == "success" else CommandFailure)
    [run, (_, done)] = logged(agent)
    assert run == RUN
    assert done["kind"] == kind
    assert done.get("text") == outcome.text
    assert (outcome.text or "").startswith(told or "") and (told is None) == (outcome.text is None)
    await ctx.dispose()


@aio
async def test_a_handler_that_cancels_its_own_task_has_failed() -> None:
    ctx, service, agent = await mounted()

    async def leaking(_: CommandCall) -> CommandOutcome:
        raise asyncio.CancelledError

    service.register(command(handler=leaking))

    outcome = await service.execute(agent, "/c")

    assert isinstance(outcome, CommandFailure)
    assert logged(agent)[1][1]["kind"] == "error"
    await ctx.dispose()


@aio
async def test_a_handler_that_is_no_coroutine_function_is_taken_as_it_is() -> None:
    ctx, service, agent = await mounted()
    service.register(command(handler=lambda _: CommandSuccess("at once")))  # type: ignore[arg-type, return-value]

    assert await service.execute(agent, "/c") == CommandSuccess("at once")
    await ctx.dispose()


@pytest.mark.parametrize(
    ("seq", "kept"),
    [(0, True), (1, True), (2, False), (3, False), (99, False), (-1, False), (True, False)],
)
@aio
async def test_the_event_that_stands_for_what_was_done_is_one_of_the_log_and_none_of_a_command(
    seq: int, kept: bool
) -> None:
    ctx, service, agent = await mounted()
    for mode in ("read-only", "workspace-write"):
        agent.session.append("sandbox/mode", {"mode": mode})
    service.register(command(handler=answering(CommandSuccess("done", seq))))

    outcome = await service.execute(agent, "/c")

    assert outcome == CommandSuccess("done", seq if kept else None)
    assert logged(agent)[1][1].get("sourceEventSeq") == (seq if kept else None)
    await ctx.dispose()


@given(st.text())
def test_any_line_is_a_known_command_an_unknown_one_or_none(line: str) -> None:
    async def body() -> None:
        ctx, service, agent = await mounted()
        service.register(command())
        try:
            await service.execute(agent, line)
        except CommandError as error:
            assert error.code in ("NO_COMMAND", "UNKNOWN_COMMAND")
            assert agent.logged() == []
        else:
            assert re.fullmatch(r"/c(\s.*)?", line, re.DOTALL)
            assert [kind for kind, _ in agent.logged()] == ["command/run", "command/done"]
        await ctx.dispose()

    asyncio.run(body())


@given(st.text(alphabet="ac/ \n\t-1é\ud83d", max_size=8))
def test_lines_that_look_like_commands_too(line: str) -> None:
    test_any_line_is_a_known_command_an_unknown_one_or_none.hypothesis.inner_test("/" + line)  # type: ignore[attr-defined]


def test_a_name_is_a_whole_word() -> None:
    assert NAME.fullmatch("a-b_1") and not NAME.fullmatch("a b")


@aio
async def test_the_commands_that_there_are_are_told_in_order() -> None:
    ctx, service, agent = await mounted()
    for name in ("zoom", "add", "mend"):
        service.register(command(name))

    with pytest.raises(CommandError) as caught:
        await service.execute(agent, "/qqqqqq")

    assert caught.value.hint == "commands: /add, /mend, /zoom"
    await ctx.dispose()


@aio
async def test_where_there_are_no_commands_that_is_said() -> None:
    ctx, service, agent = await mounted()
    with pytest.raises(CommandError) as caught:
        await service.execute(agent, "/c")
    assert caught.value.hint == "none is offered here"
    await ctx.dispose()
