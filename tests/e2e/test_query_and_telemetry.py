"""The two rows in the program: what an ordinary run loads and sends, and a run whose telemetry is on."""

import sys
from pathlib import Path

from dsh.testing.workspace import Workspace
from tests.plugins.session_telemetry.receiver import receiving

LOADED = """
import atexit, sys
atexit.register(lambda: open("loaded.txt", "w").write("\\n".join(sys.modules)))
from dsh.cli.entry import main
sys.exit(main())
"""
PATCH = """
- {id: session-query-sqlite, merge: {openAt: startup}}
"""


def test_an_ordinary_run_loads_neither_sqlite_nor_the_telemetry_library(tmp_path: Path) -> None:
    space = Workspace(tmp_path, program=(sys.executable, "-c", LOADED))
    done = space.run("--profile", "demo", "hello")
    assert done.code == 0, done.stderr
    loaded = (space.work / "loaded.txt").read_text().splitlines()
    assert "dsh.plugins.session_query_sqlite" in loaded
    assert "dsh.plugins.session_telemetry_otel" in loaded
    tops = {name.partition(".")[0] for name in loaded}
    assert not tops & {"sqlite3", "opentelemetry", "google", "requests"}
    assert "dsh.plugins.session_query_sqlite.service" not in loaded
    assert not (space.home / ".anonymous-user-id").exists()


def test_a_run_whose_telemetry_is_on_sends_its_log_to_the_address_of_the_user(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    with receiving() as receiver:
        env = {"DSH_TELEMETRY_MODE": "FULL", "DSH_TELEMETRY_OTLP_URL": receiver.url}
        env["CI_TOKEN"] = "of-no-known-form"
        done = space.run("--profile", "demo", "Run: echo of-no-known-form sk-abcdefgh12345678", env=env)
        assert done.code == 0, done.stderr
        assert "telemetry" not in done.stderr
    kinds = [kind.partition("#")[0] for kind in receiver.kinds]
    for kind in ("turn/start", "user/message", "tool/call", "tool/result", "turn/end"):
        assert kind in kinds
    assert kinds[-1] == "shutdown"
    assert kinds.count("assistant/chunk") == 2
    assert "abcdefgh12345678" not in str(receiver.records)
    assert "of-no-known-form" not in str(receiver.records)
    assert receiver.resource["user.id"] == (space.home / ".anonymous-user-id").read_text().strip()


def test_telemetry_without_an_address_does_not_start(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    done = space.run("--profile", "demo", "hello", env={"DSH_TELEMETRY_MODE": "FULL"})
    assert done.code == 3
    assert "nothing says where to send it" in done.stderr
    assert "DSH_TELEMETRY_OTLP_URL" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_disabled_by_the_variable_needs_no_address(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    env = {"DSH_TELEMETRY_MODE": "FULL", "DSH_TELEMETRY_DISABLED": "true"}
    assert space.run("--profile", "demo", "hello", env=env).code == 0
    assert space.run("--profile", "demo", "hello", env={**env, "DSH_TELEMETRY_DISABLED": "false"}).code == 3


def test_a_receiver_that_is_not_there_fails_no_run(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    env = {"DSH_TELEMETRY_MODE": "FULL", "DSH_TELEMETRY_OTLP_URL": "http://127.0.0.1:9/v1/logs"}
    done = space.run("--profile", "demo", "hello", env=env)
    assert done.code == 0
    assert "could not be sent" in done.stderr
    assert "Traceback" not in done.stderr


ASKS = """
from dsh.capabilities.session_query import SESSION_QUERY, SearchRequest
inject = [SESSION_QUERY, "boot"]
provide = ()

def apply(ctx):
    ctx.spawn(ask(ctx), "ask")

async def ask(ctx):
    await ctx.boot.ready()
    page = await ctx.use(SESSION_QUERY).search_events(SearchRequest(query="needle in the log"))
    with open("hits.txt", "w") as file:
        file.writelines(hit.snippet + "\\n" for hit in page.hits if hit.session.source == "stored")
"""


def test_a_plugin_searches_the_sessions_of_earlier_runs(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    assert space.run("--profile", "demo", "a needle in the log").code == 0
    space.write("asks.py", ASKS)
    space.write("on.yml", f"- insert: [{{id: asks, name: ./asks.py}}]{PATCH}")
    done = space.run("--profile", "demo", "--patch", "on.yml", "Run: sleep 1")
    assert done.code == 0, done.stderr
    hits = (space.work / "hits.txt").read_text().splitlines()
    assert "a needle in the log" in hits
