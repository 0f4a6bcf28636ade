"""Which events concern a scope, and who hears and sees what along a chain of scopes."""

from typing import Any

import pytest

from docs.generate.declared import events
from dsh.agent.contract import AGENT_STATUS, StatusChanged
from dsh.agent.prompt import SYSTEM_PROMPT, PromptContext
from dsh.errors import KernelError
from dsh.kernel import ScopeTarget, create_scope
from dsh.kernel.scope import bind_parent
from dsh.llm.auxiliary import ask
from dsh.llm.registry import LLM_STREAM
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.session.message import user_message
from dsh.tools.definition import TEXT_OUTPUT
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool
from tests.agent.kit import loop, text
from tests.aio import aio

KEYED = {
    "agent/created", "agent/disposed", "agent/status", "agent/inbox/inserted", "agent/inbox/discarded",
    "agent/inbox/claimed", "agent/session-start", "agent/pre-step", "agent/request", "agent/request-error",
    "agent/turn-stopping", "agent/error", "system-prompt/assemble", "tools/pre-execute", "tools/execute",
    "tools/post-execute", "tools/result", "approval/request", "fs/write-intent", "fs/edit-intent",
    "fs/observed",
}  # fmt: skip
PRESENT = {
    "session/created", "session/disposed", "session/event", "session/delta", "session/flush", "llm/stream",
}  # fmt: skip


def test_every_event_about_an_agent_or_a_session_is_declared_to_be() -> None:
    declared = {found.event.name: found.event.scoped for found in events()}

    assert {name for name, scoped in declared.items() if callable(scoped)} >= KEYED
    assert {name for name, scoped in declared.items() if scoped is True} >= PRESENT
    unscoped = {name for name in declared if name.startswith(("agent/", "session/", "fs/"))}
    assert {name for name in unscoped if declared[name] is False} == set()


@aio
async def test_an_event_of_an_agent_sent_for_another_or_for_nobody_is_refused() -> None:
    async with loop() as it:
        one, two = await it.agent(), await it.agent()

        with pytest.raises(KernelError) as caught:
            it.ctx.emit(AGENT_STATUS, StatusChanged(one, "running"), subject=ScopeTarget(two))
        assert caught.value.code == "INVARIANT"
        assert one.id in caught.value.message
        with pytest.raises(KernelError, match="about nobody"):
            it.ctx.emit(AGENT_STATUS, StatusChanged(one, "running"))
        assert it.statuses == []


@aio
async def test_registrations_are_inherited_down_the_chain_and_events_flow_up_it() -> None:
    """A group's scope above two agents, and a third agent beside them."""

    class Group:
        pass

    async with loop() as it:
        group = Group()
        above = await create_scope(it.ctx, group)
        inside = [await it.agent(setup=lambda ctx: _below(ctx.scope, group)) for _ in range(2)]
        beside = await it.agent()
        heard: list[str] = []
        shared = above.ctx.reading_from(inside[0].ctx)
        shared.use(SYSTEM_PROMPT).section("a", 1, "of the group")
        shared.use(TOOLS).register(named("shared"))
        above.ctx.on(AGENT_STATUS, lambda changed: heard.append(changed.agent.id))
        inside[0].ctx.use(SYSTEM_PROMPT).section("a", 1, "my own")

        prompts = [
            await it.ctx.use(SYSTEM_PROMPT).assemble(PromptContext(agent=a)) for a in (*inside, beside)
        ]
        for agent in (*inside, beside):
            await it.prompt(agent, "go")

        assert [found.system for found in prompts] == ["my own", "of the group", ""]
        assert [[tool.name for tool in found.tools] for found in prompts] == [["shared"], ["shared"], []]
        assert it.tools.get("shared", inside[0]) is it.tools.get("shared", inside[1])
        assert set(heard) == {inside[0].id, inside[1].id}
        await above.fiber.dispose()
        assert (await it.ctx.use(SYSTEM_PROMPT).assemble(PromptContext(agent=inside[1]))).system == ""


@aio
async def test_a_listener_of_model_calls_sees_those_of_its_own_agent_alone() -> None:
    async with loop(text("done")) as it:
        one, two = await it.agent(), await it.agent()
        seen: list[tuple[str, str | None]] = []

        def note(who: str) -> Any:
            def listener(request: LlmRequest, following: Any) -> Any:
                seen.append((who, request.session_id))
                return following()

            return listener

        one.ctx.on(LLM_STREAM, note("own"))
        it.ctx.on(LLM_STREAM, note("all"))
        await it.prompt(two, "go")
        await it.prompt(one, "go")
        config = LlmCallConfig("p", "m")
        await ask(it.llm, LlmRequest(config=config, messages=(user_message("nobody's"),)))

        assert seen == [("all", two.id), ("own", one.id), ("all", one.id), ("all", None)]


def _below(key: Any, group: object) -> None:
    bind_parent(key, group)


def named(name: str) -> Any:
    async def body(args: Any, exec: Any) -> str:  # noqa: A002
        return ""

    return typed_tool(name=name, description=name, parameters={}, output=TEXT_OUTPUT, execute=body)
