"""The chat-completions routes as processes use them, and the bytes that a server may send on them."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from dsh.testing.mock_server import MockModelServer
from dsh.testing.workspace import Finished, Workspace, log_rows
from tests.e2e.reply import Reply

KEY = "sk-end-to-end-key"
WINDOW = 20_000
DONE = "data: [DONE]\n\n"

_POLICY = "{maxRetries: 2, backoff: {initialDelayMs: 1, maxDelayMs: 1}}"
_PRUNING = "- {id: tool-result-pruner, config: {thresholdChars: 3000, headChars: 1000, tailChars: 500}}"


class Route(NamedTuple):
    """A route, and the patch that sends a run to it."""

    name: str
    model: str
    dialect: Any
    variables: dict[str, str]
    patch: str

    def settings(self, **more: Any) -> str:
        """The patch with more keys for the route."""
        said = {"models": [{"id": self.model, "contextWindow": WINDOW, "maxTokens": 4000}], **more}
        return self.patch.replace("MORE", json.dumps(said)[1:-1].replace('"', ""))


ROUTES = [
    Route(
        "deepseek-official",
        "deepseek-v4-flash",
        "deepseek",
        {"DEEPSEEK_BASE_URL": "URL", "DEEPSEEK_API_KEY": KEY},
        f"- {{id: llm-deepseek, merge: {{retryPolicy: {_POLICY}, MORE}}}}",
    ),
    Route(
        "openai-compatible",
        "gpt-x",
        "openai",
        {"OPENAI_BASE_URL": "URL", "OPENAI_API_KEY": KEY},
        "- {id: agent-default-model, merge: {provider: openai-compatible, model: gpt-x}}\n"
        "- {id: llm-openai, merge: {providers: {openai-compatible: "
        f"{{retryPolicy: {_POLICY}, MORE}}}}}}}}",
    ),
]


class It:
    """Runs on one route, against servers of the test's own."""

    def __init__(self, space: Workspace, route: Route, stack: ExitStack) -> None:
        self.space, self.route, self._stack = space, route, stack

    def serve(self, *script: Reply | str, **options: Any) -> MockModelServer:
        """A server that the next runs ask."""
        made = MockModelServer(list(script), dialect=self.route.dialect, **options)
        server = self._stack.enter_context(made.in_thread())
        for name, value in self.route.variables.items():
            self.space.env[name] = server.base_url if value == "URL" else value
        return server

    def run(self, *more: str, **settings: Any) -> Finished:
        """A run with the route's patch, and more rows."""
        patches = [self.route.settings(**settings), _PRUNING, *more]
        self.space.write("route.yml", "\n".join(patches))
        return self.space.run("run", "--patch", "route.yml", "DO THE TASK")

    def rows(self) -> list[dict[str, Any]]:
        """The log of the one session there is."""
        [path] = self.space.logs()
        return log_rows(path)


@pytest.fixture(params=ROUTES, ids=lambda route: route.name)
def it(request: pytest.FixtureRequest, space: Workspace) -> Iterator[It]:
    """Both routes, one after the other."""
    with ExitStack() as stack:
        yield It(space, request.param, stack)


def event(**members: Any) -> str:
    """An event of a stream."""
    return f"data: {json.dumps(members)}\n\n"


def delta(**added: Any) -> str:
    """An event that adds to the reply."""
    return event(choices=[{"index": 0, "delta": added, "finish_reason": None}])


def finish(reason: str, **members: Any) -> str:
    """An event that ends the reply."""
    return event(choices=[{"index": 0, "delta": {}, "finish_reason": reason}], **members)


def fragment(arguments: str | None = None, *, name: str | None = None, **members: Any) -> dict[str, Any]:
    """A piece of a tool call; what is None is left out."""
    function = {"name": name, "arguments": arguments}
    return {**members, "function": {key: value for key, value in function.items() if value is not None}}


def calls(*deltas: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> Reply:
    """A reply of tool calls, delta by delta."""
    more = {} if usage is None else {"usage": usage}
    streamed = [delta(tool_calls=fragments) for fragments in deltas]
    return {"raw": [*streamed, finish("tool_calls", **more), DONE]}
