"""The adapter of servers that speak Anthropic's Messages format: any number of routes.

Light: what makes requests and reads replies is loaded with the first call.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dsh import __version__
from dsh.capabilities.http import HttpClient, host_of
from dsh.capabilities.model_catalogue import ModelCatalogue, known_of
from dsh.capabilities.model_facts import NO_FACTS, ModelFacts
from dsh.llm.adapter import Generation, LlmAdapter, ModelInfo, ProviderInfo, ReasoningInfo, RetryPolicy
from dsh.llm.anthropic.route import EFFORTS, AnthropicRoute
from dsh.llm.failure import LlmError
from dsh.llm.request import LlmRequest
from dsh.llm.stream import close_stream
from dsh.llm.transport.credential import KeySources, ProviderKey, find_key
from dsh.llm.transport.endpoint import Endpoint, base_url_problem, joined
from dsh.session.chunk import Chunk

if TYPE_CHECKING:
    from dsh.llm.transport.discovery import Discovery

DEFAULT_BASE_URL = "https://api.anthropic.com"
PUBLIC_KEY = "ANTHROPIC_API_KEY"
API_VERSION = "2023-06-01"
USER_AGENT = f"dsh/{__version__}"
"""Attribution on every request."""

_NO_KEY = ProviderKey("", "no key")


class AnthropicAdapter(LlmAdapter):
    """Serves the routes of one row. State: their current settings, and what their servers list."""

    def __init__(
        self,
        routes: Mapping[str, AnthropicRoute],
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
        return ProviderInfo(provider, self._route(provider).shown_name(provider))

    def retry_policy(self, provider: str) -> RetryPolicy:
        return self._route(provider).policy

    def list_models(self, provider: str) -> tuple[ModelInfo, ...]:
        route = self._route(provider)
        return tuple(self._info(route, provider, model.id) for model in route.models)

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        return self._info(self._route(provider), provider, model)

    async def prepare(self, provider: str, model: str) -> Generation:
        route = self._route(provider)
        _check_model(route, provider, model)
        with contextlib.suppress(LlmError):  # the call itself reports it
            self._http.warm(self.base_url(route, provider))

        def stream(request: LlmRequest) -> AsyncIterator[Chunk]:
            return self._stream(route, request)

        return Generation(self._info(route, provider, model), stream)

    def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        return self._stream(self._route(request.config.provider), request)

    async def list_served_models(self, provider: str) -> tuple[ModelInfo, ...]:
        """The models that the server itself lists; remembered for a while.

        Raises:
            LlmError: it lists none, or does not answer.
        """
        route = self._route(provider)
        endpoint = self._endpoint(route, provider, "models", "application/json", query="limit=1000")
        if self._discovery is None:
            from dsh.llm.transport.discovery import Discovery

            self._discovery = Discovery(self._http)
        served = await self._discovery.of(endpoint)
        return tuple(self._info(route, provider, model.id, model.facts()) for model in served)

    async def _stream(self, route: AnthropicRoute, request: LlmRequest) -> AsyncIterator[Chunk]:
        provider, model = request.config.provider, request.config.model
        _check_model(route, provider, model)
        endpoint = self._endpoint(route, provider, "messages", "text/event-stream")

        async def known_models() -> Sequence[str]:
            ids = [entry.id for entry in route.models]
            with contextlib.suppress(LlmError):
                ids += [found.id for found in await self.list_served_models(provider)]
            return ids

        from dsh.llm.anthropic.call import stream_messages

        chunks = stream_messages(
            self._http,
            endpoint,
            request,
            route,
            owner=self,
            context_window=self._facts(route, provider, model).context_window,
            known_models=known_models,
        )
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await close_stream(chunks)

    def _endpoint(
        self, route: AnthropicRoute, provider: str, path: str, accept: str, *, query: str = ""
    ) -> Endpoint:
        base_url, name = self.base_url(route, provider), route.shown_name(provider)
        key = _NO_KEY if route.keyless else find_key(self._keys, route.api_key_env or "", name)
        headers = {header.lower(): value for header, value in route.headers.items()}
        if key.value:
            is_bearer = route.key_header == "authorization"
            headers[route.key_header] = f"Bearer {key.value}" if is_bearer else key.value
        policy = route.policy
        return Endpoint(
            url=joined(base_url, path if _ends_with_version(base_url) else f"v1/{path}", query),
            headers={
                **headers,
                "anthropic-version": API_VERSION,
                "content-type": "application/json",
                "accept": accept,
                "accept-encoding": "identity",
                "user-agent": USER_AGENT,
            },
            provider=name,
            shown_url=host_of(base_url).rstrip("/"),
            secret=key.value,
            limits=route.limits,
            longest_wait_ms=policy.max_provider_delay_ms if policy.mode == "normal" else None,
            key_origin=key.where,
        )

    def base_url(self, route: AnthropicRoute, provider: str) -> str:
        """The base URL: configured, else from the process's environment, else the public one. Where the route
        names a variable that is not set, only Anthropic's own key goes to the public one."""
        where = f"llm-anthropic.providers.{provider}.baseURL"
        url = (route.base_url or "").strip()
        if not url and route.base_url_env is not None:
            key, where = where, route.base_url_env
            environment = self._keys.environment
            variable = environment.get_from(where, ("process",)) if environment is not None else None
            url = variable.value.strip() if variable is not None else ""
            if not url and route.api_key_env != PUBLIC_KEY:
                raise LlmError.of(
                    "MISSING_BASE_URL",
                    f"route {provider} has no endpoint: set it with: export {where}=https://…, or set {key} "
                    "in the settings or a patch",
                )
        url = url or DEFAULT_BASE_URL
        if (problem := base_url_problem(url)) is not None:
            raise LlmError.of(
                "INVALID_BASE_URL", f"{where} {problem}; set it to one such as {DEFAULT_BASE_URL}"
            )
        return url

    def _route(self, provider: str) -> AnthropicRoute:
        found = self.routes.get(provider)
        if found is None:
            raise LlmError.of("NO_ADAPTER", f"row llm-anthropic has no route {provider!r} any more")
        return found

    def _facts(
        self, route: AnthropicRoute, provider: str, model: str, served: ModelFacts = NO_FACTS
    ) -> ModelFacts:
        """What is known of a model: by the settings, the route, the server, the shipped catalogue."""
        entry = route.model(model)
        row = ModelFacts(
            name=entry.name or served.name,
            context_window=entry.context_window or served.context_window,
            price=entry.price,
        )
        return known_of(
            self._catalogue(),
            provider,
            model,
            row=row,
            vendor="anthropic",
            is_vendor_endpoint=self._is_public(route, provider),
        )

    def _is_public(self, route: AnthropicRoute, provider: str) -> bool:
        try:
            return host_of(self.base_url(route, provider)).rstrip("/") == DEFAULT_BASE_URL
        except LlmError:
            return False

    def _info(
        self, route: AnthropicRoute, provider: str, model: str, served: ModelFacts = NO_FACTS
    ) -> ModelInfo:
        entry, facts = route.model(model), self._facts(route, provider, model, served)
        longest = route.max_tokens(model)
        if entry.max_tokens is None and facts.max_output_tokens is not None:
            longest = min(longest, facts.max_output_tokens)
        efforts = tuple(EFFORTS[name] for name in route.ways(model).efforts)
        return ModelInfo(
            provider=provider,
            id=model,
            name=facts.name or model,
            description=entry.description,
            input_modalities=("text",),  # images have no way onto this wire yet
            context_window=facts.context_window or route.default_context_window,
            default_max_tokens=longest,
            reasoning=ReasoningInfo(efforts, route.effort(model)),
            price=facts.price,
        )


def _check_model(route: AnthropicRoute, provider: str, model: str) -> None:
    if route.strict_models and not any(entry.id == model for entry in route.models):
        from dsh.llm.unknown_model import unknown_model

        raise unknown_model(provider, model, [entry.id for entry in route.models])


def _ends_with_version(base_url: str) -> bool:
    """Whether the base has the `/v1` already that the format's own paths begin with."""
    return urlsplit(base_url).path.rstrip("/").endswith("/v1")
