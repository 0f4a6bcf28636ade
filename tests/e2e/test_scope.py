"""Plugins that bend what an agent stands on: its prompt, its scope, its rows. The run ends and says why."""

from collections.abc import Callable

import pytest

from dsh.testing.workspace import Finished, Workspace
from tests.e2e.bounds import bounded
from tests.e2e.model import Model
from tests.e2e.reply import text
from tests.e2e.sound import errors_in

HEAD = """
from dsh.agent.contract import AGENT_CREATED, AGENT_STATUS, StatusChanged
from dsh.agent.prompt import SYSTEM_PROMPT, SYSTEM_PROMPT_ASSEMBLE
from dsh.agent.registry import AGENTS
from dsh.tools.definition import TEXT_OUTPUT
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool

inject = [SYSTEM_PROMPT, AGENTS, TOOLS]


async def empty(request, following):
    return None


def forge(ctx, agent):
    ctx.emit(AGENT_STATUS, StatusChanged(agent, "running"))


def give(ctx, body):
    tool = typed_tool(name="t", description="t", parameters={}, output=TEXT_OUTPUT, execute=body)
    ctx.use(TOOLS).register(tool)


async def unload(args, execution):
    await execution.agent.ctx.fiber.parent.fiber.dispose()
    return "gone"


def apply(ctx):
"""
CALL = {"tools": [{"id": "c1", "name": "t", "args": ["{}"]}]}


def run(space: Workspace, code: str, patch: str = "") -> Finished:
    space.write("bent.py", f"{HEAD}    {code}\n")
    space.write("bent.yml", f"- insert: [{{id: bent, name: ./bent.py}}]\n{patch}")
    return space.run("run", "--patch", "bent.yml", "go")


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (
            "ctx.use(SYSTEM_PROMPT).section('mine', 1, lambda at: 1 / 0)",
            "dsh: PROMPT_CONTRIBUTION: section 'mine' could not be told: division by zero",
        ),
        (
            "ctx.use(SYSTEM_PROMPT).section('mine', 1, 'in {{nope}}')",
            "dsh: PROMPT_VARIABLE: section 'mine': variable 'nope' is not defined; "
            "defined here: cwd, model, provider",
        ),
        (
            "ctx.on(SYSTEM_PROMPT_ASSEMBLE, empty)",
            "dsh: PROMPT_CONTRIBUTION: a listener of system-prompt/assemble answered NoneType, expected a "
            "PromptAssembly; it returns what `await next()` gave it, or a PromptAssembly of its own",
        ),
        (
            "ctx.on(AGENT_CREATED, lambda made: forge(ctx, made.agent))",
            "dsh: INVARIANT: event 'agent/status' is scoped and is dispatched about nobody",
        ),
    ],
)
def test_the_run_fails_in_one_line_that_names_the_part(
    space: Workspace, answering: Callable[..., Model], code: str, line: str
) -> None:
    model = answering(text("done"))
    done = run(space, code)
    assert (done.code, done.errors[0]) == (1, line)
    assert model.bodies() == []
    assert errors_in(space) == []


def test_what_nothing_refers_to_fails_nothing(space: Workspace, answering: Callable[..., Model]) -> None:
    answering(text("done"))
    done = run(space, "ctx.use(SYSTEM_PROMPT).variable('broken', lambda at: 1 / 0)")
    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")


def test_an_agent_without_a_tool_is_not_shown_it_and_cannot_call_it(
    space: Workspace, answering: Callable[..., Model]
) -> None:
    call = {"tools": [{"id": "c1", "name": "bash", "args": ['{"command": "touch made"}']}]}
    model = answering(call, text("done"))
    done = run(
        space, "ctx.on(AGENT_CREATED, lambda made: made.agent.ctx.use(TOOLS).restrict(allow=['read']))"
    )
    assert done.code == 0
    first, second = model.bodies()
    assert [tool["function"]["name"] for tool in first["tools"]] == ["read"]
    assert "bash" in second["messages"][-1]["content"]
    assert not (space.work / "made").exists()


def test_a_tool_that_takes_the_loop_away_ends_the_run(
    space: Workspace, answering: Callable[..., Model]
) -> None:
    answering(CALL, text("done"))
    space.program = bounded(grace_s=0.3)
    done = run(space, "give(ctx, unload)")
    assert done.code == 1
    assert done.errors[-1] == "dsh: the task was cut off: a service went that row headless-runner stands on"
    assert errors_in(space) == []
