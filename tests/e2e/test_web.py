"""The web tools in whole runs: searches are logged, counted and replayed; one's own machine is not read."""

import json
from collections.abc import Callable
from typing import Any

from dsh.testing.workspace import Finished, Workspace, log_rows, log_text
from tests.e2e.model import Model
from tests.e2e.raw_server import RawServer, response, saying, serving
from tests.e2e.reply import text

Answering = Callable[..., Model]
KEY = "mock-key-0123456789"
FOUND = {
    "content": [
        {
            "type": "web_search_tool_result",
            "content": [{"type": "web_search_result", "url": "https://found.example/", "title": "Found it"}],
        }
    ],
    "usage": {"input_tokens": 700, "output_tokens": 30},
}
FETCH = """
- id: tool-web
  merge: {{fetch: true}}
- insert: [{{id: web-fetch-http, name: web-fetch-http, config: {{allowedPorts: [{port}]}}}}]
"""


def searching(answering: Answering, queries: list[str]) -> Model:
    call = {"id": "c1", "name": "web_search", "args": [json.dumps({"queries": queries})]}
    return answering({"tools": [call]}, text("done"))


def answer(value: Any, status: str = "200 OK") -> bytes:
    return response(status, json.dumps(value).encode(), content_type="application/json")


def run(space: Workspace, server: RawServer, *words: str) -> tuple[Finished, list[dict[str, Any]]]:
    """A run whose searches go to this server, and its log."""
    done = space.run(
        "run",
        *words,
        "x",
        env={"DEEPSEEK_SEARCH_BASE_URL": f"http://127.0.0.1:{server.port}/v1", "DEEPSEEK_API_KEY": KEY},
    )
    [log] = space.logs()
    return done, log_rows(log)


def result_of(rows: list[dict[str, Any]]) -> tuple[str, str | None]:
    """Text and code of the only tool result."""
    [data] = [row["data"] for row in rows if row["type"] == "tool/result"]
    [block] = data["message"]["content"]
    return "".join(part["text"] for part in block["content"]), data.get("error", {}).get("code")


def test_a_search_is_answered_logged_counted_verified_and_replayed(
    space: Workspace, answering: Answering
) -> None:
    model = searching(answering, ["one", "two"])
    with serving(saying(answer(FOUND))) as server:
        done, rows = run(space, server)

    assert done.code == 0 and done.errors == [], done.stderr
    told, code = result_of(rows)
    assert (code, "- [Found it](https://found.example/)" in told) == (None, True)
    assert "web_search" in [tool["function"]["name"] for tool in model.bodies()[0]["tools"]]

    kinds = [row["type"] for row in rows]
    assert kinds.count("web/deepseek-search-llm-request") == 2
    counted = [
        row["data"]["usage"]
        for row in rows
        if row["type"] == "request/usage" and row["data"].get("purpose") == "web-search"
    ]
    assert counted == [{"inputTokens": 700, "outputTokens": 30}] * 2

    [log] = space.logs()
    assert KEY.encode() not in log_text(log)
    assert space.run("sessions", "verify", str(log)).code == 0
    replayed = space.run("replay", str(log), env={"DEEPSEEK_API_KEY": None})
    assert replayed.code == 0, replayed.stdout + replayed.stderr


def test_a_search_that_fails_is_one_result_that_the_model_can_read(
    space: Workspace, answering: Answering
) -> None:
    searching(answering, ["one"])
    with serving(saying(answer({"error": {"message": f"no such key: {KEY}"}}, "401 Unauthorized"))) as server:
        done, rows = run(space, server)

    assert done.code == 0
    told, code = result_of(rows)
    assert code == "WEB_PROVIDER_ERROR"
    assert "HTTP 401: no such key: ***" in told
    [log] = space.logs()
    assert KEY.encode() not in log_text(log)


def test_where_the_models_are_anothers_the_key_is_not_sent_to_a_search(
    space: Workspace, answering: Answering
) -> None:
    model = searching(answering, ["one"])
    space.run("run", "x")

    assert "web_search" not in [tool["function"]["name"] for tool in model.bodies()[0]["tools"]]
    [log] = space.logs()
    assert result_of(log_rows(log))[1] == "UNKNOWN_TOOL"


def test_a_page_of_ones_own_machine_is_out_of_reach(space: Workspace, answering: Answering) -> None:
    with serving(saying(response("200 OK", b"secret", content_type="text/plain"))) as server:
        space.write("fetch.yml", FETCH.format(port=server.port))
        call = {
            "id": "c1",
            "name": "web_fetch",
            "args": [json.dumps({"url": f"http://127.0.0.1:{server.port}/"})],
        }
        answering({"tools": [call]}, text("done"))
        done = space.run("run", "--patch", "fetch.yml", "x")
        [log] = space.logs()

        assert done.code == 0, done.stderr
        told, code = result_of(log_rows(log))
        assert (code, "127.0.0.1 is not on the public Internet" in told) == ("WEB_BLOCKED_URL", True)
        assert server.requests == []
