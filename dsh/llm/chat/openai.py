"""The adapter of OpenAI-compatible servers: any number of routes, each with its endpoint and dialect."""

from collections.abc import AsyncIterator

from dsh.capabilities.http import host_of
from dsh.capabilities.model_facts import ModelFacts
from dsh.llm.adapter import ReasoningInfo
from dsh.llm.chat.dialect import OFF
from dsh.llm.chat.route import OPENAI_HOST, ChatRoute, ModelWays
from dsh.llm.failure import LlmError
from dsh.llm.request import LlmRequest
from dsh.llm.route.adapter import Route, RouteAdapter
from dsh.session.chunk import Chunk


class OpenAiAdapter(RouteAdapter[ChatRoute]):
    """Serves the routes of one row."""

    row = "llm-openai"
    example_url = "https://…/v1"

    def _call(self, route: Route[ChatRoute], request: LlmRequest) -> AsyncIterator[Chunk]:
        ways = self._ways(route, request.config.model)
        endpoint = self._endpoint(route, "chat/completions")
        thinking, effort = _thinking(request, ways)
        from dsh.llm.chat.call import stream_chat
        from dsh.llm.chat.translator import ReplyRules

        rules = ReplyRules(
            done_optional=ways.dialect.done_optional,
            detect_leaked_calls=route.config.detect_leaked_calls,
            detect_overflow=True,
            context_window=self._facts(route, request.config.model).context_window,
        )
        return stream_chat(
            self._http,
            endpoint,
            request,
            ways.dialect,
            owner=ways,
            thinking=thinking,
            effort=effort,
            rules=rules,
        )

    def _abilities(
        self, route: Route[ChatRoute], model: str, facts: ModelFacts
    ) -> tuple[int | None, ReasoningInfo | None]:
        ways = self._ways(route, model)
        return ways.max_tokens, ways.reasoning

    def _vendor(self, route: Route[ChatRoute], model: str) -> tuple[str | None, bool]:
        own = "openai" if self._is_openai(route) else None
        vendor = route.config.vendor or own
        return vendor, vendor == own

    def _advice(self, route: Route[ChatRoute], request: LlmRequest, error: LlmError) -> LlmError | None:
        from dsh.llm.chat.advice import advised

        return advised(error, route.name, self._ways(route, request.config.model).dialect)

    def _ways(self, route: Route[ChatRoute], model: str) -> ModelWays:
        if model not in route.ways:
            route.ways[model] = route.config.ways(model, is_openai=self._is_openai(route))
        ways: ModelWays = route.ways[model]
        return ways

    def _is_openai(self, route: Route[ChatRoute]) -> bool:
        try:
            host = host_of(self.base_url(route)).partition("://")[2].partition("/")[0]
        except LlmError:
            return False
        return host == OPENAI_HOST


def _thinking(request: LlmRequest, ways: ModelWays) -> tuple[bool | None, str | None]:
    """Whether the model is to think, None for as it likes, and how hard."""
    if request.purpose == "session-title":
        return (False, None) if ways.dialect.can_switch_thinking else (None, None)
    effort = request.config.reasoning_effort or ways.reasoning_effort
    if effort is None:
        return None, None
    if effort not in ways.dialect.effort_map:
        known = ", ".join(ways.dialect.effort_map) or "none"
        raise LlmError.of(
            "UNSUPPORTED_REASONING_EFFORT",
            f"model {request.config.provider}/{request.config.model} has no reasoning effort {effort!r}; "
            f"it offers: {known} (compat.effortMap)",
        )
    return effort != OFF, effort
