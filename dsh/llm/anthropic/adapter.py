"""The adapter of servers that speak Anthropic's Messages format: any number of routes."""

from collections.abc import AsyncIterator
from typing import ClassVar
from urllib.parse import urlsplit

from dsh.capabilities.http import host_of
from dsh.capabilities.model_facts import ModelFacts
from dsh.llm.adapter import ReasoningInfo
from dsh.llm.anthropic.route import DEFAULT_BASE_URL, EFFORTS, AnthropicRoute
from dsh.llm.failure import LlmError
from dsh.llm.request import LlmRequest
from dsh.llm.route.adapter import Route, RouteAdapter
from dsh.llm.transport.endpoint import joined
from dsh.session.chunk import Chunk


class AnthropicAdapter(RouteAdapter[AnthropicRoute]):
    """Serves the routes of one row."""

    row = "llm-anthropic"
    wire_headers: ClassVar = {"anthropic-version": "2023-06-01"}

    def _call(self, route: Route[AnthropicRoute], request: LlmRequest) -> AsyncIterator[Chunk]:
        endpoint = self._endpoint(route, "messages")
        from dsh.llm.anthropic.call import stream_messages

        return stream_messages(
            self._http,
            endpoint,
            request,
            route.config,
            owner=self,
            context_window=self._facts(route, request.config.model).context_window,
        )

    def _abilities(
        self, route: Route[AnthropicRoute], model: str, facts: ModelFacts
    ) -> tuple[int, ReasoningInfo]:
        config, entry = route.config, route.config.model(model)
        longest = config.max_tokens(model)
        if entry.max_tokens is None and facts.max_output_tokens is not None:
            longest = min(longest, facts.max_output_tokens)
        efforts = tuple(EFFORTS[name] for name in config.ways(model).efforts)
        return longest, ReasoningInfo(efforts, config.effort(model))

    def _vendor(self, route: Route[AnthropicRoute], model: str) -> tuple[str, bool]:
        try:
            return "anthropic", host_of(self.base_url(route)).rstrip("/") == DEFAULT_BASE_URL
        except LlmError:
            return "anthropic", False

    def _key_header(self, route: Route[AnthropicRoute], key: str) -> tuple[str, str]:
        is_bearer = route.config.key_header == "authorization"
        return super()._key_header(route, key) if is_bearer else ("x-api-key", key)

    def _url(self, base_url: str, path: str) -> str:
        has_version = urlsplit(base_url).path.rstrip("/").endswith("/v1")
        query = "limit=1000" if path == "models" else ""
        return joined(base_url, path if has_version else f"v1/{path}", query)
