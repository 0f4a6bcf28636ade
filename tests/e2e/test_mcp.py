"""MCP servers in whole runs: what the model is told, what a failure costs, what is left afterwards."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsh.testing.mock_server import MockModelServer
from dsh.testing.workspace import Workspace
from tests.process import is_gone

SERVER = Path(__file__).resolve().parents[1] / "plugins" / "mcp" / "plain_server.py"


def row(name: str, *, more: dict[str, Any] | None = None, **plan: Any) -> dict[str, Any]:
    config = {
        "transport": "stdio",
        "serverName": name,
        "command": sys.executable,
        "args": ["-I", "-S", str(SERVER), json.dumps(plan)],
        **(more or {}),
    }
    return {"id": f"mcp-{name}", "name": "mcp-client", "config": config}


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"does {name}", "inputSchema": {"type": "object"}}


def calling(name: str) -> list[Mapping[str, Any]]:
    """A model that calls the tool and is done."""
    return [{"tools": [{"id": "c1", "name": name, "args": ["{}"]}]}, {"text": ["Done."]}]


def patch(space: Workspace, *rows: dict[str, Any]) -> str:
    return str(space.write("mcp.yml", json.dumps([{"insert": list(rows)}])))


def test_a_run_uses_the_healthy_server_and_says_what_is_wrong_with_the_other(tmp_path: Path) -> None:
    space, pid = Workspace(tmp_path), tmp_path / "pid"
    rows = patch(
        space,
        row("good", pid=str(pid), tools=[tool("pid")]),
        row("bad", more={"reconnect": {"enabled": False}}, exit=3, say="no key\nline two\n"),
    )
    with MockModelServer(calling("mcp__good__pid")).in_thread() as server:
        space.use_model(server.base_url)
        done = space.run("run", "--patch", rows, "go")

    assert (done.code, done.stdout) == (0, "Done.\n")
    [line] = [line for line in done.errors if "MCP server bad" in line]
    assert line.endswith(
        "did not start: it ended before it answered; exited with code 3; stderr: no key | line two"
    )
    assert "Traceback" not in done.stderr
    [result] = [m["content"] for m in server.requests[1].body["messages"] if m["role"] == "tool"]
    assert result == pid.read_text().strip()
    assert is_gone(int(result))


def test_a_server_that_is_needed_ends_the_run_before_any_request(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    rows = patch(space, row("needed", more={"failOnStartupError": True}, exit=3, say="no key\n"))
    with MockModelServer([{"text": ["never"]}]).in_thread() as server:
        space.use_model(server.base_url)
        done = space.run("run", "--patch", rows, "go")

    assert done.code != 0
    assert done.stdout == ""
    assert "MCP server 'needed' did not start" in done.stderr
    assert "Traceback" not in done.stderr
    assert server.requests == []


def test_the_tools_array_is_the_same_in_every_session_and_step(tmp_path: Path) -> None:
    """Two servers that list in any order, another hash seed each time (case LS-11)."""
    space = Workspace(tmp_path)
    tools = [tool(f"t{n}") for n in range(9)]
    rows = patch(space, row("a", tools=tools, shuffle=True), row("b", tools=tools, shuffle=True))
    with MockModelServer(calling("mcp__a__t1") * 3).in_thread() as server:
        space.use_model(server.base_url)
        for seed in ("0", "1", "2"):
            assert space.run("run", "--patch", rows, "go", env={"PYTHONHASHSEED": seed}).code == 0

    arrays = {json.dumps(request.body["tools"]) for request in server.requests}
    assert len(server.requests) == 6
    assert len(arrays) == 1
    assert "mcp__b__t8" in arrays.pop()


def test_a_replay_with_recorded_tools_starts_no_server(tmp_path: Path) -> None:
    space, pid = Workspace(tmp_path), tmp_path / "pid"
    rows = patch(space, row("good", pid=str(pid), tools=[tool("pid")]))
    with MockModelServer(calling("mcp__good__pid")).in_thread() as server:
        space.use_model(server.base_url)
        assert space.run("run", "--patch", rows, "go").code == 0
    started = pid.read_text()

    [log] = space.logs()
    replayed = space.run("replay", "--patch", rows, log.parent.name)

    assert replayed.code == 0, replayed.stderr
    assert pid.read_text() == started
