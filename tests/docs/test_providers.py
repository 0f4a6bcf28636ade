"""The page on providers: its patches make routes, and its tables tell the switches that there are."""

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from docs.generate.source import REPOSITORY
from dsh.composition.compose import compose
from dsh.kernel.schema import resolve_config
from dsh.llm.chat.dialect import Compat, ThinkingStyle, dialect_of
from dsh.plugins import llm_anthropic
from dsh.plugins.llm_openai import Config
from dsh.testing.mock_server import MockModelServer, Rules
from dsh.testing.mock_server.server import ChatSpelling
from dsh.testing.workspace import Workspace
from tests.docs.page import Block, blocks

PAGE = REPOSITORY / "docs" / "providers.md"
PATCHES = [block for block in blocks(PAGE) if block.name.endswith(".yml")]
CHAT = [block for block in PATCHES if "llm-openai" in block.text]
MESSAGES = [block for block in PATCHES if "llm-anthropic" in block.text]
REFUSES = {
    "openai.yml": ("max_tokens", "role:system", "thinking", "reasoning", "chat_template_kwargs"),
    "openrouter.yml": ("reasoning_effort", "thinking", "messages.reasoning_content"),
    "vllm.yml": ("reasoning_effort", "thinking", "messages.reasoning_content"),
    "ollama.yml": ("thinking", "reasoning", "messages.reasoning_content"),
    "lm-studio.yml": ("thinking", "reasoning", "reasoning_effort"),
}
"""What the servers of these patches cannot take."""
EFFORTS = {"vllm.yml": "on", "lm-studio.yml": None}
"""Where it is not `high` that can be asked for."""


@pytest.mark.parametrize("block", CHAT, ids=lambda block: block.name)
def test_each_patch_adds_a_route_to_the_one_there_is(block: Block, tmp_path: Path) -> None:
    file = tmp_path / block.name
    file.write_text(block.text, encoding="utf-8")
    composed = compose("headless", [file], tmp_path / "home", environ={})
    assert composed.warnings == []
    row = next(row for row in composed.rows if row.id == "llm-openai")
    providers = resolve_config(Config, row["config"]).providers

    assert len(providers) == 2
    assert "openai-compatible" in providers
    for route in providers.values():
        dialect_of(route.compat)


@pytest.mark.parametrize("block", MESSAGES, ids=lambda block: block.name)
def test_each_patch_of_the_messages_wire_makes_routes(block: Block, tmp_path: Path) -> None:
    file = tmp_path / block.name
    file.write_text(block.text, encoding="utf-8")
    composed = compose("headless", [file], tmp_path / "home", environ={})
    assert composed.warnings == []
    row = next(row for row in composed.rows if row.id == "llm-anthropic")
    providers = resolve_config(llm_anthropic.Config, row["config"]).providers

    assert providers["anthropic"].api_key_env == "ANTHROPIC_API_KEY"
    assert all(route.thinking_budgets.high < route.default_max_tokens for route in providers.values())


@pytest.mark.parametrize("block", PATCHES, ids=lambda block: block.name)
def test_each_patch_alone_does_a_task_with_its_server(block: Block, tmp_path: Path) -> None:
    """With an effort where it knows one; the server refuses what the real one refuses."""
    rules = Rules(refuses=REFUSES.get(block.name, ()))
    dialect: ChatSpelling = "deepseek" if block.name == "deepseek-elsewhere.yml" else "openai"
    script = ["tool_call_success" if block.name == "openai.yml" else "reasoning_tool_call", "success"]
    workspace = Workspace(tmp_path)
    with MockModelServer(script, dialect=dialect, rules=rules, models=[]).in_thread() as server:
        url = server.base_url if block in CHAT else server.anthropic_url
        text = re.sub(r"baseURL: \S+", f"baseURL: {url}", block.text)
        if effort := EFFORTS.get(block.name, "high"):
            text += f"- id: agent-default-model\n  merge: {{reasoningEffort: '{effort}'}}\n"
        workspace.write(block.name, text)
        keys = dict.fromkeys(re.findall(r"apiKeyEnv: (\w+)", text), "k")
        env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.anthropic_url, **keys}
        done = workspace.run("run", "--patch", block.name, "say hello", env=env)

    assert (done.code, done.stdout, done.stderr) == (0, "Hello from the mock model.\n", "")
    assert (len(server.requests), server.refused) == (2, [])
    [model] = {request.body["model"] for request in server.requests}
    assert f"model: {model}}}" in block.text


def test_no_patch_is_left_out() -> None:
    assert len(CHAT) + len(MESSAGES) == len(PATCHES)
    assert len(MESSAGES) == 2


def test_the_tables_name_every_switch_and_every_style() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))

    assert {field.encode_name for field in msgspec.structs.fields(Compat)} <= named
    assert set(get_args(ThinkingStyle)) <= named
