"""A model that is switched while its agent runs: prompt and request of one step always name the same."""

from typing import Any

import pytest

from dsh.agent.contract import AGENT_PRE_STEP, AGENT_REQUEST, AGENT_REQUEST_ERROR, AgentOptions, EnterStep
from dsh.agent.default_model import ModelSelection
from dsh.agent.model_selection import SelectedModel
from dsh.llm.request import LlmCallConfig
from dsh.session.message import user_message
from tests.agent.kit import calls, data_of, ends, failed, loop, text
from tests.aio import aio

ONE, TWO = ModelSelection("p", "one"), ModelSelection("p", "two")
PERSONA = {"persona": "{{provider}}/{{model}}"}


def heads(requests: Any) -> list[tuple[str | None, str]]:
    return [(request.system, request.config.model) for request in requests]


@aio
async def test_it_stands_above_the_agents_own_options_which_never_change() -> None:
    async with loop(text("done"), prompt=PERSONA) as it:
        selected = SelectedModel(ONE)
        agent = await it.agent(options=AgentOptions(provider="x", model="y"), setup=selected.install)
        await it.prompt(agent, "go")
        selected.select(TWO)
        await it.prompt(agent, "go on")
        assert heads(it.model.requests) == [("p/one", "one"), ("p/two", "two")]
        assert [d["reason"] for d in data_of(agent.session, "request/header")] == ["initial", "change"]
        assert (agent.options.provider, agent.options.model) == ("x", "y")


@pytest.mark.parametrize("when", ["pre-step", "request", "first chunk", "failure", "tool"])
@aio
async def test_a_switch_at_any_moment_of_a_step_counts_from_the_next_step_on(when: str) -> None:
    selected = SelectedModel(ONE)
    script = [calls(("c1", "switch", "{}")), text("done")]
    if when == "first chunk":
        script[0] = [lambda: selected.select(TWO), *script[0]]
    if when == "failure":
        script.insert(0, failed("SERVER"))
    async with loop(*script, prompt=PERSONA) as it:
        is_first = True

        def switch() -> None:
            nonlocal is_first
            if is_first:
                is_first = False
                selected.select(TWO)

        async def on(payload: Any, following: Any) -> Any:
            switch()
            return await following()

        async def again(payload: Any, following: Any) -> Any:
            switch()
            return {"kind": "retry"}

        async def tool(args: Any, exec: Any) -> str:  # noqa: A002
            if when == "tool":
                selected.select(TWO)
            return ""

        it.tool("switch", tool)
        agent = await it.agent(setup=selected.install)
        match when:
            case "pre-step":
                agent.ctx.on(AGENT_PRE_STEP, on)
            case "request":
                agent.ctx.on(AGENT_REQUEST, on, prepend=True)
            case "failure":
                agent.ctx.on(AGENT_REQUEST_ERROR, again)
        await it.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "completed"}]
        *first_step, second_step = heads(it.model.requests)
        assert set(first_step) == {("p/one", "one")}
        assert second_step == ("p/two", "two")


@pytest.mark.parametrize(("effort", "expected"), [(None, None), ("high", "high")])
@aio
async def test_an_absent_effort_removes_an_inherited_one(effort: str | None, expected: str | None) -> None:
    selected = SelectedModel(ModelSelection("p", "one", effort))

    async def inherit(payload: Any, following: Any) -> LlmCallConfig:
        await following()
        return LlmCallConfig("p", "m", reasoning_effort="low", temperature=0.5)

    async with loop(text("done")) as it:
        agent = await it.agent(setup=selected.install)
        agent.ctx.on(AGENT_REQUEST, inherit)
        try:
            await it.prompt(agent, "go")
        finally:
            end = ends(agent.session)[0]
        if expected is None:
            assert it.model.requests[0].config.reasoning_effort is None
            assert it.model.requests[0].config.temperature == 0.5, "what is not selected is left alone"
        else:
            assert end["error"]["code"] == "UNSUPPORTED_REASONING_EFFORT"


@aio
async def test_a_selection_is_the_agents_own() -> None:
    async with loop(text("done"), prompt=PERSONA) as it:
        mine = await it.agent(setup=SelectedModel(TWO).install)
        other = await it.agent()
        await it.prompt(mine, "go")
        await it.prompt(other, "go")
        assert heads(it.model.requests) == [("p/two", "two"), ("p/m", "m")]


@aio
async def test_a_step_that_was_rejected_takes_no_selection_along() -> None:
    """What was selected for the prompt of a step that never was is read anew for the next."""
    selected = SelectedModel(ONE)
    async with loop(text("done"), prompt=PERSONA) as it:

        async def empty(payload: Any, following: Any) -> EnterStep:
            selected.select(TWO)
            undo()
            return EnterStep(())

        agent = await it.agent(setup=selected.install)
        undo = agent.ctx.on(AGENT_PRE_STEP, empty)
        await it.prompt(agent, "dropped")
        assert it.model.requests == []
        agent.followup(user_message("go"))
        await agent.when_idle()
        assert heads(it.model.requests) == [("p/two", "two")]
