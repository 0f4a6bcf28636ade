"""The model routes that base offers, each as a way to send a run to a server of the test's own."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from dsh.testing.mock_server import MockModelServer
from dsh.testing.workspace import Finished, Workspace, log_text

KEY = "odd~key~0123456789"
"""Of no form that gives a key away."""
MODEL = "some-model"


class Route(NamedTuple):
    """One route and its wire."""

    name: str
    row: str
    key_variable: str
    url_variable: str
    path: str
    """Below the base URL."""
    key_header: str
    """With `{key}` in the place of the key."""
    stream: bytes
    """A whole reply that says `fine`."""

    def config(self, options: dict[str, Any]) -> dict[str, Any]:
        """Options of the route as config of its row."""
        return options if self.name == "deepseek-official" else {"providers": {self.name: options}}

    def ask(
        self,
        space: Workspace,
        url: str,
        *,
        key: str | None = KEY,
        env: Mapping[str, str | None] | None = None,
        task: str = "say it",
        budget: int = 0,
        **options: Any,
    ) -> Finished:
        """One task through this route; the key is looked for in all that the run leaves."""
        if self.name == "anthropic":
            options["baseURLEnv"] = self.url_variable
        options.setdefault("streamIdleTimeoutMs", 20_000)
        options["retryPolicy"] = {"maxRetries": budget, "backoff": {"initialDelayMs": 1, "maxDelayMs": 2}}
        rows = [
            {"id": self.row, "merge": self.config(options)},
            {"id": "agent-default-model", "merge": {"provider": self.name, "model": MODEL}},
        ]
        space.write("route.yml", json.dumps(rows))
        variables: dict[str, str | None] = {self.url_variable: url, self.key_variable: key}
        done = space.run("run", "--patch", "route.yml", task, env={**variables, **(env or {})})
        assert "Traceback" not in done.stderr
        if key:
            assert key not in done.stderr + done.stdout
            assert all(key.encode() not in log_text(log) for log in space.logs())
        return done

    def base_of(self, server: MockModelServer) -> str:
        """The mock server as this route's base URL."""
        return server.anthropic_url if self.name == "anthropic" else server.base_url


def _events(*events: tuple[str, dict[str, Any]]) -> bytes:
    return b"".join(
        f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode() for name, data in events
    )


CHAT_STREAM = (
    b'data: {"choices":[{"index":0,"delta":{"content":"fine"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
MESSAGES_STREAM = _events(
    (
        "message_start",
        {"message": {"id": "m", "role": "assistant", "content": [], "usage": {"input_tokens": 1}}},
    ),
    ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
    ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "fine"}}),
    ("content_block_stop", {"index": 0}),
    ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}),
    ("message_stop", {}),
)
BEARER = "authorization: bearer {key}"
DEEPSEEK = Route(
    "deepseek-official", "llm-deepseek", "DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL", "/chat/completions", BEARER,
    CHAT_STREAM,
)  # fmt: skip
OPENAI = Route(
    "openai-compatible", "llm-openai", "OPENAI_API_KEY", "OPENAI_BASE_URL", "/chat/completions", BEARER,
    CHAT_STREAM,
)  # fmt: skip
ANTHROPIC = Route(
    "anthropic", "llm-anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "/v1/messages",
    "x-api-key: {key}", MESSAGES_STREAM,
)  # fmt: skip
ROUTES = (DEEPSEEK, OPENAI, ANTHROPIC)
