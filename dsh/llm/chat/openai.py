"""The adapter of OpenAI-compatible servers: any number of routes, each with its endpoint and dialect.

Light: what makes requests and reads replies is loaded with the first call.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dsh import __version__
from dsh.capabilities.http import HttpClient, host_of
from dsh.capabilities.model_catalogue import ModelCatalogue, known_of
from dsh.capabilities.model_facts import NO_FACTS, ModelFacts
from dsh.llm.adapter import Generation, LlmAdapter, ModelInfo, ProviderInfo, RetryPolicy
from dsh.llm.chat.dialect import OFF
from dsh.llm.chat.route import OPENAI_HOST, ModelWays, RouteSettings
from dsh.llm.failure import LlmError
from dsh.llm.request import LlmRequest
from dsh.llm.stream import close_stream
from dsh.llm.transport.credential import KeySources, ProviderKey, find_key
from dsh.llm.transport.endpoint import Endpoint, base_url_problem, joined
from dsh.session.chunk import Chunk

if TYPE_CHECKING:
    from dsh.llm.transport.discovery import Discovery

USER_AGENT = f"dsh/{__version__}"
"""Attribution on every request."""
NO_KEY = ProviderKey("", "no key")


class OpenAiAdapter(LlmAdapter):
    """Serves the routes of one row. State: their current settings, and what their servers list."""

    def __init__(
        self,
        routes: Mapping[str, RouteSettings],
        http: HttpClient,
        keys: KeySources,
        *,
        catalogue: Callable[[], ModelCatalogue | None] = lambda: None,
    ) -> None:
        self.routes = dict(routes)
        self._http = http
        self._keys = keys
        self._catalogue = catalogue
        self._discovery: Discovery | None = None

    def provider_info(self, provider: str) -> ProviderInfo:
        return ProviderInfo(provider, self._settings(provider).display_name)

    def retry_policy(self, provider: str) -> RetryPolicy:
        return self._settings(provider).policy

    def list_models(self, provider: str) -> tuple[ModelInfo, ...]:
        settings = self._settings(provider)
        return tuple(self._info(settings, model.id) for model in settings.route.models)

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        return self._info(self._settings(provider), model)

    async def prepare(self, provider: str, model: str) -> Generation:
        settings = self._settings(provider)
        _check_model(settings, model)
        with contextlib.suppress(LlmError):  # the call itself reports it
            self._http.warm(self._base_url(settings))

        def stream(request: LlmRequest) -> AsyncIterator[Chunk]:
            return self._stream(settings, request)

        return Generation(self._info(settings, model), stream)

    def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        return self._stream(self._settings(request.config.provider), request)

    async def list_served_models(self, provider: str) -> tuple[ModelInfo, ...]:
        """The models that the server itself lists; remembered for a while.

        Raises:
            LlmError: it lists none, or does not answer.
        """
        settings = self._settings(provider)
        if self._discovery is None:
            from dsh.llm.transport.discovery import Discovery

            self._discovery = Discovery(self._http)
        served = await self._discovery.of(self._endpoint(settings, "models", "application/json"))
        return tuple(self._info(settings, model.id, model.facts()) for model in served)

    async def _stream(self, settings: RouteSettings, request: LlmRequest) -> AsyncIterator[Chunk]:
        model = request.config.model
        _check_model(settings, model)
        ways = settings.ways(model, is_openai=self._vendor(settings) == "openai")
        endpoint = self._endpoint(settings, "chat/completions", "text/event-stream")
        thinking, effort = _thinking(request, ways)
        from dsh.llm.chat.call import stream_chat
        from dsh.llm.chat.translator import ReplyRules

        async def known_models() -> Sequence[str]:
            ids = [entry.id for entry in settings.route.models]
            with contextlib.suppress(LlmError):
                ids += [found.id for found in await self.list_served_models(settings.name)]
            return ids

        chunks = stream_chat(
            self._http,
            endpoint,
            request,
            ways.dialect,
            owner=ways,
            thinking=thinking,
            effort=effort,
            known_models=known_models,
            rules=ReplyRules(
                done_optional=ways.dialect.done_optional,
                detect_leaked_calls=settings.route.detect_leaked_calls,
                detect_overflow=True,
                context_window=self._known(settings, model).context_window,
            ),
        )
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await close_stream(chunks)

    def _endpoint(self, settings: RouteSettings, path: str, accept: str) -> Endpoint:
        base_url = self._base_url(settings)
        route, key = settings.route, NO_KEY
        if not route.keyless:
            key = find_key(self._keys, route.api_key_env or "", settings.display_name)
        headers = {
            **{name.lower(): value for name, value in route.headers.items()},
            "content-type": "application/json",
            "accept": accept,
            "accept-encoding": "identity",
            "user-agent": USER_AGENT,
        }
        if key.value:
            headers["authorization"] = f"Bearer {key.value}"
        policy = settings.policy
        return Endpoint(
            url=joined(base_url, path),
            headers=headers,
            provider=settings.display_name,
            shown_url=host_of(base_url).rstrip("/"),
            secret=key.value,
            limits=settings.limits,
            longest_wait_ms=policy.max_provider_delay_ms if policy.mode == "normal" else None,
            key_origin=key.where,
        )

    def _base_url(self, settings: RouteSettings) -> str:
        """The base URL: configured, else from the process' environment."""
        route, where = settings.route, f"llm-openai.providers.{settings.name}.baseURL"
        url = (route.base_url or "").strip()
        if not url and route.base_url_env and self._keys.environment is not None:
            where = route.base_url_env
            variable = self._keys.environment.get_from(where, ("process",))
            url = variable.value.strip() if variable is not None else ""
        if not url:
            key = f"llm-openai.providers.{settings.name}.baseURL"
            name = route.base_url_env
            by_env = f"set it with: export {name}=https://…/v1, or " if name else ""
            raise LlmError.of(
                "MISSING_BASE_URL",
                f"route {settings.name} has no endpoint: {by_env}set {key} in the settings or a patch",
            )
        if (problem := base_url_problem(url)) is not None:
            raise LlmError.of("INVALID_BASE_URL", f"{where} {problem}; set it to one such as https://…/v1")
        return url

    def _settings(self, provider: str) -> RouteSettings:
        found = self.routes.get(provider)
        if found is None:
            raise LlmError.of("NO_ADAPTER", f"row llm-openai has no route {provider!r} any more")
        return found

    def _info(self, settings: RouteSettings, model: str, served: ModelFacts = NO_FACTS) -> ModelInfo:
        """What is known of a model; a window that nobody knows is the route's guess."""
        ways, known = settings.ways(model), self._known(settings, model, served)
        return ModelInfo(
            provider=settings.name,
            id=model,
            name=known.name or model,
            description=ways.entry.description,
            input_modalities=("text",),  # images have no way onto this wire yet
            context_window=known.context_window or settings.route.default_context_window,
            default_max_tokens=ways.max_tokens,
            reasoning=ways.reasoning,
            price=known.price,
        )

    def _known(self, settings: RouteSettings, model: str, served: ModelFacts = NO_FACTS) -> ModelFacts:
        """What the settings, the route, the server and the shipped catalogue say, in this order."""
        entry = settings.ways(model).entry
        row = ModelFacts(
            name=entry.name or served.name,
            context_window=entry.context_window or served.context_window,
            price=entry.price,
        )
        own = self._vendor(settings)
        vendor = settings.route.vendor or own
        return known_of(
            self._catalogue(),
            settings.name,
            model,
            row=row,
            vendor=vendor,
            is_vendor_endpoint=vendor == own,
        )

    def _vendor(self, settings: RouteSettings) -> str | None:
        """Whose endpoint the route goes to, where it is one whose catalogue ships."""
        try:
            host = host_of(self._base_url(settings)).partition("://")[2].partition("/")[0]
        except LlmError:
            return None
        return "openai" if host == OPENAI_HOST else None


def _check_model(settings: RouteSettings, model: str) -> None:
    if settings.route.strict_models and not settings.knows(model):
        from dsh.llm.unknown_model import unknown_model

        raise unknown_model(settings.name, model, [entry.id for entry in settings.route.models])


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
