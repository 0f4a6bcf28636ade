"""MCP servers in whole runs: what the model is told, what a failure costs, what is left afterwards."""

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dsh.testing.mock_server import MockModelServer
from dsh.testing.workspace import Workspace, finish, log_rows
from tests.e2e.provider import is_valid
from tests.e2e.reply import text
from tests.e2e.sound import errors_in
from tests.e2e.test_compaction import FULL, Runs, runs, work
from tests.process import is_gone, wait_until

__all__ = ["runs"]

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


def calling(name: str, call_id: str = "c1") -> list[dict[str, Any]]:
    """A model that calls the tool and is done."""
    return [{"tools": [{"id": call_id, "name": name, "args": ["{}"]}]}, {"text": ["Done."]}]


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
    """Two servers that list in any order, one of which crashes; another hash seed each time (case LS-11)."""
    space = Workspace(tmp_path)
    tools = [tool("crash"), *(tool(f"t{n}") for n in range(9))]
    quick = {"reconnect": {"initialDelayMs": 10}}
    rows = patch(space, *(row(name, more=quick, tools=tools, shuffle=True) for name in ("a", "b")))
    called = ["mcp__a__t1", "mcp__a__crash", "mcp__a__t1", "mcp__b__t8"]
    session = [calling(name, f"c{at}")[0] for at, name in enumerate(called)] + [{"text": ["Done."]}]
    with MockModelServer(session * 3).in_thread() as server:
        space.use_model(server.base_url)
        for seed in ("0", "1", "2"):
            assert space.run("run", "--patch", rows, "go", env={"PYTHONHASHSEED": seed}).code == 0

    arrays = {json.dumps(request.body["tools"]) for request in server.requests}
    assert len(server.requests) == 15
    assert len(arrays) == 1
    assert "mcp__b__t8" in arrays.pop()
    for at in range(0, 15, 5):
        asked = [json.dumps(request.body["messages"])[:-1] for request in server.requests[at : at + 5]]
        assert all(after.startswith(before) for before, after in pairwise(asked))
        results = [m["content"] for m in server.requests[at + 4].body["messages"] if m["role"] == "tool"]
        assert [result.startswith("Error") for result in results] == [False, True, False, False]


def test_tools_of_servers_are_there_before_and_after_each_summary_and_in_the_next_life(runs: Runs) -> None:
    """Case CO-01: a batch of three calls, a resume, a second summary that takes up the first."""
    space, tools = runs.space, [tool(f"t{n}") for n in range(4)]
    rows = [row(name, tools=tools, shuffle=True) for name in ("a", "b")]
    full = {"prompt_tokens": FULL, "completion_tokens": 10, "total_tokens": FULL + 10}
    batch = {
        "tools": [
            {"id": f"b{at}", "name": name, "args": ["{}"]}
            for at, name in enumerate(("mcp__a__t0", "mcp__b__t1", "mcp__a__t2"))
        ],
        "usage": full,
    }
    some = [*(work(n) for n in range(6)), batch]
    patched = ("--patch", "mcp.yml")
    space.write("mcp.yml", json.dumps([{"insert": rows}]))
    first = runs.run(*some, text("the first gist"), calling("mcp__b__t3")[0], text("ok"), flags=patched)
    assert (first.code, first.stdout) == (0, "ok\n"), first.stderr
    bodies = runs.model.bodies()

    runs.answer(*some, text("the second gist"), calling("mcp__a__t0")[0], text("ok"))
    second = runs.resume(*patched)
    assert second.code == 0, second.stderr
    bodies += runs.model.bodies()

    assert len({json.dumps(body["tools"]) for body in bodies}) == 1
    assert all(is_valid(body) for body in bodies)
    assert "the first gist" in str(runs.asked()[0]["messages"])
    last = runs.turns()[-1]["messages"]
    assert str(last).count("<compacted-summary>") == 1
    assert "the second gist" in str(last)
    assert json.loads(last[-1]["content"]) == {"tool": "t0", "arguments": {}}
    assert errors_in(space) == []


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


def test_no_secret_of_dsh_reaches_a_server_or_what_a_run_stores(space: Workspace) -> None:
    """Case SE-01, through a server; what is configured for it reaches it, and is told nowhere else."""
    names = ("GH_TOKEN", "DB_PASSWORD", "MY_SECRET", "GIVEN")
    hidden = {name: f"hidden-{at}" for at, name in enumerate(names)}
    env = {**hidden, "DSH_SESSION_ID": "stale-one", "LANG": "C.UTF-8", "MARK": "harmless"}
    rows = row("good", tools=[tool("env")], say="GIVEN\n", more={"env": {"NOTES_TOKEN": "GIVEN"}})
    text_of_rows = json.dumps([{"insert": [rows]}]).replace('"GIVEN"', "!expr env.GIVEN")
    space.write("mcp.yml", text_of_rows)
    with MockModelServer(calling("mcp__good__env")).in_thread() as server:
        space.use_model(server.base_url, "hidden-key")
        done = space.run("run", "--patch", "mcp.yml", "go", env=env)

    assert (done.code, done.stdout, done.stderr) == (0, "Done.\n", "")
    [result] = [m["content"] for m in server.requests[1].body["messages"] if m["role"] == "tool"]
    seen = dict(line.split("=", 1) for line in result.splitlines())
    assert (seen["NOTES_TOKEN"], seen["MARK"], seen["LANG"]) == (hidden["GIVEN"], "harmless", "C.UTF-8")
    assert not {"GH_TOKEN", "DB_PASSWORD", "MY_SECRET", "DEEPSEEK_API_KEY", "DSH_SESSION_ID"} & seen.keys()
    [log] = space.logs()
    stored = json.dumps(log_rows(log)) + json.dumps([request.body for request in server.requests])
    assert not [
        value for value in ("hidden-0", "hidden-1", "hidden-2", "hidden-key", "stale-one") if value in stored
    ]


def test_slow_servers_cost_one_wait(space: Workspace) -> None:
    """Each answers only once all three have started: one after the other none would come up (case MC-01)."""
    pids = [space.root / f"pid{at}" for at in range(3)]
    rows = [
        row(f"s{at}", tools=[tool("t")], pid=str(pids[at]), meets=str(pids[(at + 1) % 3])) for at in range(3)
    ]
    with MockModelServer([{"text": ["Done."]}]).in_thread() as server:
        space.use_model(server.base_url)
        done = space.run("run", "--patch", patch(space, *rows), "go")

    assert (done.code, done.stderr) == (0, "")
    offered = {entry["function"]["name"] for entry in server.requests[0].body["tools"]}
    assert {"mcp__s0__t", "mcp__s1__t", "mcp__s2__t"} <= offered


@pytest.mark.parametrize("at", ["start", "call"])
def test_a_server_dies_with_a_run_that_is_killed(space: Workspace, at: str) -> None:
    pid, heard = space.root / "pid", space.root / "heard"
    silent = ["initialize"] if at == "start" else []
    rows = row("k", tools=[tool("sleep")], pid=str(pid), heard=str(heard), silent=silent, linger=True)
    with MockModelServer(calling("mcp__k__sleep")).in_thread() as server:
        space.use_model(server.base_url)
        process = space.start("run", "--patch", patch(space, rows), "go")
        awaited = "initialize" if at == "start" else "tools/call"
        wait_until(lambda: heard.exists() and awaited in heard.read_text(), process)
        process.kill()
        finish(process)

    assert is_gone(int(pid.read_text()))


def test_a_server_that_is_slower_than_the_start_may_be_is_left_behind(space: Workspace) -> None:
    rows = row("slow", silent=["initialize"])
    with MockModelServer([{"text": ["Done."]}]).in_thread() as server:
        space.use_model(server.base_url)
        done = space.run("run", "--patch", patch(space, rows), "go", env={"DSH_START_TIMEOUT": "2"})

    assert (done.code, done.stdout) == (0, "Done.\n")
    assert done.errors == ["dsh: MCP server slow is still starting; its tools are offered when it is up"]
