"""Registration, layers, restrictions, guards."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.kernel import Context, create_scope
from dsh.kernel.scope import bind_parent
from dsh.tools.definition import ToolOutput
from dsh.tools.error import JsonSchemaError, ToolRegistrationError
from dsh.tools.event import TOOLS_CHANGE
from dsh.tools.layer import Registered, Restriction, ToolLayers
from dsh.tools.registry import TOOLS, ToolRegistry
from tests.aio import aio
from tests.tools.kit import agent_in, call, code, new_registry, text, tool, tools_of, value


def names(tools: ToolRegistry, scope: object | None = None) -> list[str]:
    return [schema.name for schema in tools.schemas(scope)]


def says(word: str) -> Any:
    async def execute(_: Any, __: Any) -> str:
        return word

    return execute


@aio
async def test_a_registration_can_be_undone() -> None:
    _, tools = new_registry()

    effect = tools.register(tool("a"))
    assert names(tools) == ["a"]
    effect()

    assert names(tools) == []
    assert tools.get("a") is None


@aio
async def test_a_tool_goes_with_its_plugin() -> None:
    ctx, tools = new_registry()

    def plugin(inner: Context) -> None:
        inner.use(TOOLS).register(tool("a"))

    fiber = ctx.plugin(plugin, inject=[TOOLS])
    await fiber
    assert names(tools) == ["a"]
    await fiber.dispose()

    assert names(tools) == []


@pytest.mark.parametrize(
    ("change", "problem", "error_code"),
    [
        ({"name": "run_code"}, "reserved", "RESERVED_TOOL"),
        ({"name": ""}, "must be texts", "INVALID_TOOL"),
        ({"description": None}, "must be texts", "INVALID_TOOL"),
        ({"output": None}, "output must be", "INVALID_TOOL"),
        ({"output": ToolOutput({}, None)}, "output must be", "INVALID_TOOL"),  # type: ignore[arg-type]
        ({"execute": None}, "execute must be", "INVALID_TOOL"),
        ({"timeout_ms": 0}, "timeout_ms", "INVALID_TOOL"),
        ({"timeout_ms": -1}, "timeout_ms", "INVALID_TOOL"),
        ({"timeout_ms": float("inf")}, "timeout_ms", "INVALID_TOOL"),
        ({"timeout_ms": float("nan")}, "timeout_ms", "INVALID_TOOL"),
        ({"timeout_ms": True}, "timeout_ms", "INVALID_TOOL"),
        ({"timeout_ms": "5"}, "timeout_ms", "INVALID_TOOL"),
        ({"parameters": {"a": {1, 2}}}, "plain JSON", "INVALID_TOOL"),
        ({"parameters": []}, "JSON Schema object", "INVALID_TOOL"),
    ],
)
@aio
async def test_what_register_refuses(change: dict[str, Any], problem: str, error_code: str) -> None:
    _, tools = new_registry()

    with pytest.raises(ToolRegistrationError, match=problem) as failure:
        tools.register(msgspec.structs.replace(tool("a"), **change))

    assert failure.value.code == error_code
    assert names(tools) == []


@aio
async def test_an_output_schema_outside_the_subset_is_refused() -> None:
    _, tools = new_registry()

    with pytest.raises(JsonSchemaError, match="output of tool 'a'"):
        tools.register(tool("a", output=ToolOutput({"format": "date"}, lambda a, v: "")))


@aio
async def test_something_else_than_a_definition_is_refused() -> None:
    _, tools = new_registry()

    with pytest.raises(ToolRegistrationError, match="found dict"):
        tools.register({"name": "a"})  # type: ignore[arg-type]


@aio
async def test_parameters_nested_beyond_the_limit_are_a_named_error() -> None:
    _, tools = new_registry()
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"items": deep}

    with pytest.raises(ToolRegistrationError, match="levels of nesting"):
        tools.register(tool("a", parameters=deep))


@aio
async def test_parameters_are_frozen_at_registration() -> None:
    _, tools = new_registry()
    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    tools.register(tool("a", parameters=parameters))

    parameters["properties"]["late"] = {}
    (schema,) = tools.schemas()

    assert schema.parameters == {"type": "object", "properties": {}}
    with pytest.raises(TypeError):
        schema.parameters["x"] = 1  # type: ignore[index]


@aio
async def test_a_name_is_taken_once_a_layer_and_free_in_the_next() -> None:
    ctx, tools = new_registry()
    agent, scope = await agent_in(ctx)
    tools.register(tool("a", says("outer")))

    with pytest.raises(ToolRegistrationError) as failure:
        tools.register(tool("a"))
    inner = tools_of(scope).register(tool("a", says("inner")))

    assert failure.value.code == "DUPLICATE_TOOL"
    assert value(await tools.run(call("a"))) == "outer"
    assert value(await tools.run(call("a", agent=agent))) == "inner"
    inner()
    assert value(await tools.run(call("a", agent=agent))) == "outer"
    await ctx.dispose()


@aio
async def test_disposing_a_scope_takes_its_tools_along() -> None:
    ctx, tools = new_registry()
    agent, scope = await agent_in(ctx)
    tools.register(tool("a", says("outer")))
    tools_of(scope).register(tool("a", says("inner")))
    tools_of(scope).register(tool("own"))

    await scope.fiber.dispose()

    assert names(tools, agent) == ["a"]
    assert value(await tools.run(call("a", agent=agent))) == "outer"
    await ctx.dispose()


@aio
async def test_tools_of_one_scope_are_hidden_from_another() -> None:
    ctx, tools = new_registry()
    one, scope = await agent_in(ctx, "one")
    two, _ = await agent_in(ctx, "two")
    tools_of(scope).register(tool("a"))

    assert names(tools, one) == ["a"]
    assert names(tools, two) == names(tools) == []
    await ctx.dispose()


@aio
async def test_schemas_come_sorted_by_name() -> None:
    _, tools = new_registry()
    for name in ("write", "bash", "Grep", "read"):
        tools.register(tool(name))

    assert names(tools) == ["Grep", "bash", "read", "write"]


@aio
async def test_a_restriction_masks_what_is_inherited_and_never_the_scopes_own() -> None:
    ctx, tools = new_registry()
    agent, scope = await agent_in(ctx)
    nested = await create_scope(ctx, AnyKey(), agent)
    for name in ("a", "b", "c"):
        tools.register(tool(name))
    tools_of(scope).register(tool("own"))
    tools_of(nested).register(tool("inner"))

    effect = tools_of(scope).restrict(allow=["a", "b"])
    tools_of(scope).restrict(deny=["b"])

    assert names(tools, agent) == ["a", "own"]
    assert names(tools, nested.key) == ["a", "inner", "own"]
    assert names(tools) == ["a", "b", "c"]
    effect()
    assert names(tools, agent) == ["a", "c", "own"]
    await ctx.dispose()


class AnyKey:
    """A key for a scope that is no agent."""


@aio
async def test_an_empty_allow_list_hides_everything_inherited() -> None:
    ctx, tools = new_registry()
    agent, scope = await agent_in(ctx)
    nested = await create_scope(ctx, AnyKey(), agent)
    tools.register(tool("a"))
    tools_of(scope).register(tool("own"))

    tools_of(nested).restrict(allow=[])

    assert names(tools, nested.key) == []
    assert names(tools, agent) == ["a", "own"]
    await ctx.dispose()


@aio
async def test_a_restriction_holds_for_tools_that_come_later() -> None:
    ctx, tools = new_registry()
    agent, scope = await agent_in(ctx)
    tools.register(tool("a"))
    tools_of(scope).restrict(allow=["a"])

    tools.register(tool("later"))

    assert names(tools, agent) == ["a"]
    await ctx.dispose()


@pytest.mark.parametrize(
    ("lists", "error_code"),
    [
        ({}, "EMPTY_RESTRICTION"),
        ({"allow": ["nope"]}, "UNKNOWN_TOOL"),
        ({"deny": ["own"]}, "UNKNOWN_TOOL"),
        ({"allow": ["run_code"]}, "UNKNOWN_TOOL"),
    ],
)
@aio
async def test_what_restrict_refuses(lists: dict[str, list[str]], error_code: str) -> None:
    ctx, tools = new_registry()
    tools.register(tool("a"))
    _, scope = await agent_in(ctx)
    tools_of(scope).register(tool("own"))

    with pytest.raises(ToolRegistrationError) as failure:
        tools_of(scope).restrict(**lists)

    assert failure.value.code == error_code
    await ctx.dispose()


@aio
async def test_restrict_needs_a_scope() -> None:
    _, tools = new_registry()

    with pytest.raises(ToolRegistrationError) as failure:
        tools.restrict(allow=[])

    assert failure.value.code == "UNSCOPED"


@aio
async def test_a_masked_tool_is_unknown_to_a_call() -> None:
    ctx, tools = new_registry()
    tools.register(tool("a"))
    agent, scope = await agent_in(ctx)
    tools_of(scope).restrict(deny=["a"])

    result = await tools.run(call("a", agent=agent))

    assert text(result) == 'Error: unknown tool "a"'
    assert code(result) == "UNKNOWN_TOOL"
    await ctx.dispose()


@aio
async def test_changes_are_told_and_a_raising_listener_undoes_a_registration() -> None:
    ctx, tools = new_registry()
    told: list[object | None] = []
    ctx.on(TOOLS_CHANGE, lambda change: told.append(change.scope))
    agent, scope = await agent_in(ctx)
    effect = tools.register(tool("a"))
    tools_of(scope).restrict(deny=["a"])
    effect()
    assert told == [None, agent, None]

    def veto(_: object) -> None:
        raise RuntimeError("no")

    objection = ctx.on(TOOLS_CHANGE, veto)
    with pytest.raises(RuntimeError, match="no"):
        tools.register(tool("b"))
    objection()

    assert names(tools) == []
    tools.register(tool("b"))
    assert names(tools) == ["b"]
    await ctx.dispose()


@aio
async def test_guards_run_outermost_first_and_the_first_reason_denies() -> None:
    ctx, tools = new_registry()
    agent, scope = await agent_in(ctx)
    nested_key = AnyKey()
    nested = await create_scope(ctx, nested_key, agent)
    order: list[str] = []

    def guard(name: str, reason: str | None = None) -> Any:
        def check(_: object) -> str | None:
            order.append(name)
            return reason

        return check

    tools.register(tool("a"))
    tools_of(nested).guard(guard("nested", "never asked"))
    tools_of(scope).guard(guard("agent", "agent says no"))
    removed = tools.guard(guard("removed"))
    tools.guard(guard("global"))
    removed()

    result = await tools.run(call("a", agent=nested_key))

    assert order == ["global", "agent"]
    assert text(result) == "Error: agent says no"
    assert value(await tools.run(call("a"))) == "done"
    await ctx.dispose()


@aio
async def test_unclear_calls_run_alone() -> None:
    _, tools = new_registry()

    def broken(_: object) -> bool:
        raise RuntimeError

    tools.register(tool("undeclared"))
    tools.register(tool("raising", is_concurrency_safe=broken))
    tools.register(tool("truthy", is_concurrency_safe=lambda _: 1))
    tools.register(tool("safe", is_concurrency_safe=lambda _: True))
    tools.register(tool("odd", resources=lambda a, c: {"reads": []}))

    modes = {n: tools.execution_mode(call(n)) for n in ("undeclared", "raising", "truthy", "odd", "unknown")}

    assert set(modes.values()) == {"exclusive"}
    assert tools.execution_mode(call("safe")) == "parallel"


@aio
async def test_layers_are_forgotten_once_they_are_empty() -> None:
    ctx, tools = new_registry()
    _, scope = await agent_in(ctx)
    view = tools_of(scope)
    effects = [view.register(tool("a")), view.guard(lambda _: None)]
    assert len(tools._layers) == 2

    for effect in effects:
        effect()

    assert len(tools._layers) == 0
    await ctx.dispose()


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["register", "allow", "deny"]),
        st.integers(0, 2),
        st.sampled_from(["a", "b", "c"]),
    ),
    max_size=12,
)


@given(OPERATIONS)
def test_what_a_scope_sees_is_what_its_layers_say(operations: list[tuple[str, int, str]]) -> None:
    """The law, stated plainly: the nearest registration counts, if no layer further in hides the name."""
    layers, owner = ToolLayers(), Context()
    keys: list[object | None] = [None, AnyKey(), AnyKey()]
    bind_parent(keys[2], keys[1])
    for kind, depth, name in operations:
        if kind == "register":
            if name not in layers.tools.own(keys[depth]):
                registered = Registered(**msgspec.structs.asdict(tool(name)), owner=owner)
                layers.tools.insert(keys[depth], name, registered)
        elif kind == "allow":
            layers.restrictions.add(keys[depth], Restriction(frozenset({name}), frozenset()))
        else:
            layers.restrictions.add(keys[depth], Restriction(None, frozenset({name})))

    for depth, key in enumerate(keys):
        visible = layers.visible(key)
        for name in ("a", "b", "c"):
            inward_first = list(reversed(keys[: depth + 1]))
            at = next((i for i, k in enumerate(inward_first) if name in layers.tools.own(k)), None)
            hidden = at is None or any(
                not r.permits(name) for k in inward_first[:at] for r in layers.restrictions.own(k)
            )
            expected = None if hidden or at is None else layers.tools.own(inward_first[at])[name]
            assert layers.find(name, key) is visible.get(name) is expected


@aio
async def test_who_brought_a_tool_is_held_while_bodies_of_it_run() -> None:
    ctx, tools = new_registry()
    go = asyncio.Event()
    seen: list[str] = []

    async def body(_: Any, __: Any) -> str:
        await go.wait()
        return "done"

    def plugin(ctx: Context) -> None:
        ctx.use(TOOLS).register(tool("a", body))

    fiber = await ctx.plugin(plugin, inject=[TOOLS])
    calls = [asyncio.ensure_future(tools.run(call("a"))) for _ in range(2)]
    await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    seen.append(fiber.held)
    go.set()
    await asyncio.gather(*calls)
    seen.append(fiber.held)

    assert seen == ["tool a is running", ""]
