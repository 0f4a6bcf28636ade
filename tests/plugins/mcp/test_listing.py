"""Lists of tools: names, pages, entries that cannot be used, changes (cases MC-03, LS-11)."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.errors import CompositionError
from dsh.plugins import mcp_client
from dsh.plugins.mcp_client.listed import MAX_SCHEMA_BYTES, Listed, problem_of
from dsh.plugins.mcp_client.names import public_name
from dsh.plugins.mcp_client.server import RESYNC_GAP_S
from tests.aio import aio
from tests.plugins.mcp.kit import call, names, plain, registry, serving, text, tool, tree
from tests.plugins.mcp.test_start import told

PUBLIC = re.compile(r"[A-Za-z0-9_-]{1,64}")
SERVERS = st.from_regex(r"\A[A-Za-z0-9_-]{1,32}\Z")
TOOLS = st.text(min_size=1, max_size=90)


@given(server=SERVERS, tool_name=TOOLS)
def test_public_names_are_what_model_apis_take(server: str, tool_name: str) -> None:
    name = public_name(server, tool_name)

    assert PUBLIC.fullmatch(name)
    assert name == public_name(server, tool_name)


@given(server=SERVERS, one=TOOLS, other=TOOLS)
def test_two_tools_of_a_server_never_share_a_public_name(server: str, one: str, other: str) -> None:
    assert (public_name(server, one) == public_name(server, other)) == (one == other)


def test_public_names_are_the_specified_ones() -> None:
    # printf 's\0files.read' | sha256sum and so on
    assert public_name("s", "read") == "mcp__s__read"
    assert public_name("s", "x" * 56) == "mcp__s__" + "x" * 56
    assert public_name("s", "x" * 57) == "mcp__s__" + "x" * 43 + "_" + "065b956fb9c7"
    assert public_name("s", "files.read") == "mcp__s__files_read_" + "b42e01345fe9"


@aio
async def test_each_raw_name_goes_on_the_wire_and_its_public_one_to_the_model() -> None:
    raw = ["files.read", "読む", "x" * 80, "a b", "a-b", "a_b"]
    async with serving(plain(tools=[tool(name) for name in raw])) as ctx:
        public = {name: public_name("plain", name) for name in raw}

        assert names(ctx) == sorted(public.values())
        assert len(set(public.values())) == len(raw)
        for name in raw:
            assert f'"tool": "{name}"' in text(await call(ctx, public[name])).encode().decode(
                "unicode_escape"
            )


@aio
async def test_two_servers_may_have_tools_of_the_same_name() -> None:
    async with serving(plain("a", tools=[tool("search")]), plain("b", tools=[tool("search")])) as ctx:
        assert names(ctx) == ["mcp__a__search", "mcp__b__search"]


@pytest.mark.parametrize("order", [("a", "a__b"), ("a__b", "a")])
@aio
async def test_a_name_that_two_servers_could_have_belongs_to_the_longer_server_name(
    order: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    plans = {"a": plain("a", tools=[tool("b__c"), tool("d")]), "a__b": plain("a__b", tools=[tool("c")])}
    async with serving(*(plans[name] for name in order)) as ctx:
        assert names(ctx) == ["mcp__a__b__c", "mcp__a__d"]
        assert '"tool": "c"' in text(await call(ctx, "mcp__a__b__c"))
    assert "belongs to server 'a__b'" in told(caplog, "a ")[0]


@aio
async def test_a_server_name_that_another_row_has_fails_the_row() -> None:
    async with serving(plain("same", tools=[tool("x")])) as ctx:
        with pytest.raises(CompositionError, match="serverName 'same' is taken"):
            await ctx.plugin(mcp_client, plain("same"))

        assert names(ctx) == ["mcp__same__x"]


@aio
async def test_a_server_name_is_free_again_when_its_row_is_gone() -> None:
    async with tree() as ctx:
        for _ in range(2):
            fiber = await ctx.plugin(mcp_client, plain("same", tools=[tool("x")]))
            assert names(ctx) == ["mcp__same__x"]
            await fiber.dispose()
            assert names(ctx) == []


@aio
async def test_all_pages_are_read() -> None:
    pages = [[tool("a"), tool("b")], [tool("c")], [tool("d")]]
    async with serving(plain(tools=pages)) as ctx:
        assert names(ctx) == ["mcp__plain__a", "mcp__plain__b", "mcp__plain__c", "mcp__plain__d"]


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ({"tools": [tool("dup"), tool("x"), tool("dup")]}, "it lists the tool 'dup' twice"),
        ({"tools": [[tool("dup")], [tool("dup")]]}, "it lists the tool 'dup' twice"),
        ({"tools": [], "cursor": "page-0"}, "its list of tools has no end: a cursor came twice"),
        ({"tools": [[tool(f"t{n}")] for n in range(201)]}, "more than 200 pages"),
        ({"tools": [tool(f"t{n}") for n in range(1_001)]}, "more than 1000 tools"),
    ],
)
@aio
async def test_a_list_that_is_wrong_costs_that_server_only(
    plan: dict[str, Any], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    row = {"reconnect": {"enabled": False}}
    async with serving(plain("wrong", row=row, **plan), plain("right", tools=[tool("x")])) as ctx:
        assert names(ctx) == ["mcp__right__x"]
    assert problem in told(caplog, "wrong")[0]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"name": "bad", "inputSchema": {"type": "string"}}, "type"),
        ({"name": "bad", "inputSchema": [1]}, "inputSchema"),
        ({"name": "bad", "inputSchema": {"type": "object", "x": "y" * 70_000}}, "at most 65536 are taken"),
        ({"name": 3, "inputSchema": {"type": "object"}}, "name"),
        ({"name": " ", "inputSchema": {"type": "object"}}, "it has no name"),
        ({"inputSchema": {"type": "object"}}, "name"),
        ({"name": "bad", "inputSchema": {"type": "object", "maximum": 1e400}}, "finite number"),
        ({"name": "bad", "inputSchema": {"type": "object", "maximum": 10**30}}, "safe integer"),
        (tool("bad", execution={"taskSupport": "required"}), "only be called as a task"),
        ("bad", ""),
        (None, ""),
    ],
)
@aio
async def test_an_entry_that_cannot_be_used_is_left_out_alone(
    entry: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(plain(tools=[tool("a"), entry, tool("z")])) as ctx:
        assert names(ctx) == ["mcp__plain__a", "mcp__plain__z"]
    [line] = told(caplog, "plain")
    assert "is left out" in line
    assert reason in line


def test_a_schema_may_have_so_many_bytes_and_no_endless_depth() -> None:
    def entry(size: int) -> dict[str, Any]:
        return tool("a", inputSchema={"type": "object", "x": "y" * (size - len(b'{"type":"object","x":""}'))})

    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"not": deep}
    assert problem_of(entry(MAX_SCHEMA_BYTES)) is None
    assert "has 65537 bytes" in str(problem_of(entry(MAX_SCHEMA_BYTES + 1)))
    assert problem_of(tool("a", inputSchema=deep)) == "its inputSchema is no JSON"


def test_a_tool_is_the_same_whatever_the_order_of_its_keys() -> None:
    def listed(schema: dict[str, Any], description: str = "d") -> bytes:
        return Listed(
            name="a", description=description, parameters=schema, output_schema=None, is_read_only=False
        ).print

    assert listed({"a": 1, "b": {"c": 2, "d": 3}}) == listed({"b": {"d": 3, "c": 2}, "a": 1})
    assert listed({"a": 1}) != listed({"a": 2})
    assert listed({"a": 1}) != listed({"a": 1}, "e")


@pytest.mark.parametrize(
    "more",
    [
        {"annotations": "none"},
        {"outputSchema": {"type": "array"}},
        {"icons": 3},
        {"execution": None},
        {"execution": {"taskSupport": "optional"}},
        {"_meta": []},
        {"title": 7},
    ],
)
@aio
async def test_what_only_decorates_a_tool_costs_no_tool(more: dict[str, Any]) -> None:
    async with serving(plain(tools=[tool("a", **more)])) as ctx:
        assert names(ctx) == ["mcp__plain__a"]


@aio
async def test_schemas_reach_the_model_as_they_are() -> None:
    schema = {
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/P"}},
        "$defs": {"P": {"type": "integer"}},
    }
    entries = [
        tool("ref", inputSchema=schema),
        tool("bare", inputSchema={"properties": {}}),
        {"name": "none"},
    ]
    async with serving(plain(tools=entries)) as ctx:
        found = {schema.name: schema.parameters for schema in registry(ctx).schemas()}

        assert found["mcp__plain__ref"] == schema
        assert found["mcp__plain__bare"] == {"type": "object", "properties": {}}
        assert found["mcp__plain__none"] == {"type": "object"}
        assert (await call(ctx, "mcp__plain__ref", p="x")).is_error
        assert not (await call(ctx, "mcp__plain__ref", p=1)).is_error


@aio
async def test_a_tool_without_a_description_is_told_with_its_title() -> None:
    entries = [{"name": "a", "title": "Looks"}, tool("b", title="Looks"), {"name": "c"}]
    async with serving(plain(tools=entries)) as ctx:
        assert [schema.description for schema in registry(ctx).schemas()] == ["Looks", "does b", ""]


@aio
async def test_a_description_is_cut_at_a_whole_character_and_says_so() -> None:
    async with serving(plain(tools=[tool("a", description="🏷" * 9_000)])) as ctx:
        [schema] = registry(ctx).schemas()
        assert schema.description == "🏷" * 8_000 + "\n[cut: 9000 characters]"


@aio
async def test_the_tools_array_is_the_same_whatever_the_order_of_the_server() -> None:
    tools = [tool(f"t{n}") for n in range(12)]
    seen = []
    for _ in range(3):
        async with serving(
            plain("a", tools=tools, shuffle=True), plain("b", tools=tools, shuffle=True)
        ) as ctx:
            seen.append([schema.to_json() for schema in registry(ctx).schemas()])
    assert seen[0] == seen[1] == seen[2]


@aio
async def test_a_change_touches_only_what_has_changed_and_is_asked_for_once(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    before = [tool("change"), tool("stays"), tool("goes"), tool("differs")]
    after = [tool("stays"), tool("change"), tool("differs", description="now otherwise"), tool("new")]
    async with serving(plain(tools=before, changed=after, heard=str(heard))) as ctx:
        held = {name: registry(ctx).get(f"mcp__plain__{name}") for name in ("stays", "differs")}
        await call(ctx, "mcp__plain__change")
        async with asyncio.timeout(20):
            while "mcp__plain__new" not in names(ctx):
                await asyncio.sleep(0.01)

        assert names(ctx) == [f"mcp__plain__{name}" for name in ("change", "differs", "new", "stays")]
        assert registry(ctx).get("mcp__plain__stays") is held["stays"]
        assert registry(ctx).get("mcp__plain__differs") is not held["differs"]
        await asyncio.sleep(3 * RESYNC_GAP_S)
        assert heard.read_text().count("tools/list") == 2


@aio
async def test_a_server_that_never_stops_changing_is_not_asked_without_pause(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    async with serving(plain(tools=[tool("x")], restless=True, heard=str(heard))):
        await asyncio.sleep(3 * RESYNC_GAP_S)
    assert 2 <= heard.read_text().count("tools/list") < 20


@aio
async def test_a_changed_list_that_is_wrong_leaves_the_tools_as_they_were(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    before, after = [tool("change"), tool("x")], [tool("dup"), tool("dup")]
    async with serving(plain(tools=before, changed=after)) as ctx:
        await call(ctx, "mcp__plain__change")
        async with asyncio.timeout(20):
            while not told(caplog, "plain"):
                await asyncio.sleep(0.01)

        assert names(ctx) == ["mcp__plain__change", "mcp__plain__x"]
        assert not (await call(ctx, "mcp__plain__x")).is_error
    assert "its tools stay as they were: it lists the tool 'dup' twice" in told(caplog, "plain")[0]
