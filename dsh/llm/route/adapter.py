"""What the adapters of every wire do alike: their routes, models, keys and endpoints.

Light: what makes requests and reads replies is loaded with the first call.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from dsh import __version__
from dsh.capabilities.http import HttpClient, host_of
from dsh.capabilities.model_catalogue import ModelCatalogue, known_of
from dsh.capabilities.model_facts import NO_FACTS, ModelFacts
from dsh.llm.adapter import Generation, LlmAdapter, ModelInfo, ProviderInfo, ReasoningInfo, RetryPolicy
from dsh.llm.failure import LlmError
from dsh.llm.request import LlmRequest
from dsh.llm.route.config import RouteConfig
from dsh.llm.stream import close_stream
from dsh.llm.transport.credential import KeySources, ProviderKey, find_key
from dsh.llm.transport.endpoint import Endpoint, base_url_problem, joined
from dsh.session.chunk import Chunk

if TYPE_CHECKING:
    from dsh.llm.transport.discovery import Discovery

USER_AGENT = f"dsh/{__version__}"
"""Attribution on every request."""

_NO_KEY = ProviderKey("", "no key")
_NONE: Mapping[str, str] = {}

C = TypeVar("C", bound=RouteConfig)


class Route(Generic[C]):
    """One valid state of one route: a call uses the same one from start to end. Compared by identity."""

    def __init__(self, name: str, config: C) -> None:
        self.name = name
        self.config = config
        self.display_name = config.shown_name(name)
        self.policy = config.policy
        self.ways: dict[str, Any] = {}
        """What a wire keeps of each model, as long as nothing about the route changes."""


class RouteAdapter(LlmAdapter, ABC, Generic[C]):
    """Serves the routes of one row. State: their current settings, and what their servers list."""

    row: ClassVar[str]
    """The row, for messages."""
    example_url: ClassVar[str] = "https://…"
    """What an endpoint looks like on this wire."""
    wire_headers: ClassVar[Mapping[str, str]] = {}
    """What every request of this wire carries beside the usual."""

    def __init__(
        self,
        http: HttpClient,
        keys: KeySources,
        *,
        catalogue: Callable[[], ModelCatalogue | None] = lambda: None,
    ) -> None:
        self.routes: dict[str, Route[C]] = {}
        self._http = http
        self._keys = keys
        self._catalogue = catalogue
        self._discovery: Discovery | None = None

    def serve(self, configs: Mapping[str, C]) -> None:
        """Serve these from now on. A route of which nothing has changed keeps what is remembered of it."""
        before, self.routes = self.routes, {}
        for name, config in configs.items():
            known = before.get(name)
            is_same = known is not None and known.config == config
            self.routes[name] = known if known is not None and is_same else Route(name, config)

    def provider_info(self, provider: str) -> ProviderInfo:
        return ProviderInfo(provider, self._route(provider).display_name)

    def retry_policy(self, provider: str) -> RetryPolicy:
        return self._route(provider).policy

    def list_models(self, provider: str) -> tuple[ModelInfo, ...]:
        route = self._route(provider)
        return tuple(self._info(route, model.id) for model in route.config.models)

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        return self._info(self._route(provider), model)

    async def prepare(self, provider: str, model: str) -> Generation:
        route = self._route(provider)
        _check_model(route, model)
        with contextlib.suppress(LlmError):  # the call itself reports it
            self._http.warm(self.base_url(route))
        return Generation(self._info(route, model), lambda request: self._stream(route, request))

    def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        return self._stream(self._route(request.config.provider), request)

    async def list_served_models(self, provider: str) -> tuple[ModelInfo, ...]:
        """The models that the server itself lists; remembered for a while.

        Raises:
            LlmError: it lists none, or does not answer.
        """
        route = self._route(provider)
        endpoint = self._endpoint(route, "models", accept="application/json")
        if self._discovery is None:
            from dsh.llm.transport.discovery import Discovery

            self._discovery = Discovery(self._http)
        served = await self._discovery.of(endpoint)
        return tuple(self._info(route, model.id, model.facts()) for model in served)

    def base_url(self, route: Route[C]) -> str:
        """The base URL: configured, else from the process's environment, else the public one.

        Raises:
            LlmError: `MISSING_BASE_URL`, `INVALID_BASE_URL`. The message says where it is set.
        """
        config, key = route.config, f"{self._place(route)}.baseURL"
        url, where, variable = (config.base_url or "").strip(), key, config.url_variable
        if not url and variable is not None and self._keys.environment is not None:
            found = self._keys.environment.get_from(variable, ("process",))
            url, where = found.value.strip() if found is not None else "", variable
        url = url or config.public_url or ""
        if not url:
            by_env = f"set it with: export {variable}={self.example_url}, or " if variable else ""
            raise LlmError.of(
                "MISSING_BASE_URL",
                f"route {route.name} has no endpoint: {by_env}set {key} in the settings or a patch",
            )
        if (problem := base_url_problem(url)) is not None:
            public = config.public_url
            right = self.example_url if public is None else f"{public}, or unset it"
            raise LlmError.of("INVALID_BASE_URL", f"{where} {problem}; set it to one such as {right}")
        return url

    @abstractmethod
    def _call(self, route: Route[C], request: LlmRequest) -> AsyncIterator[Chunk]:
        """One attempt: the body out, the reply in."""

    @abstractmethod
    def _abilities(
        self, route: Route[C], model: str, facts: ModelFacts
    ) -> tuple[int | None, ReasoningInfo | None]:
        """The longest reply of a model in tokens, and its efforts."""

    def _vendor(self, route: Route[C], model: str) -> tuple[str | None, bool]:
        """Whose model this is in the shipped catalogue, and whether the route goes to the vendor itself."""
        return None, False

    def _advice(self, route: Route[C], request: LlmRequest, error: LlmError) -> LlmError | None:
        """A refusal in better words, where this wire has some."""
        return None

    def _key_header(self, route: Route[C], key: str) -> tuple[str, str]:
        """How a request carries the key."""
        return "authorization", f"Bearer {key}"

    def _url(self, base_url: str, path: str) -> str:
        """The URL of a path of this wire."""
        return joined(base_url, path)

    def _place(self, route: Route[C]) -> str:
        """Where the route is configured, for messages."""
        return f"{self.row}.providers.{route.name}"

    async def _stream(self, route: Route[C], request: LlmRequest) -> AsyncIterator[Chunk]:
        model = request.config.model
        _check_model(route, model)
        chunks = self._call(route, request)
        try:
            async for chunk in chunks:
                yield chunk
        except LlmError as error:
            if error.failure.status not in (400, 404, 422):
                raise
            from dsh.llm.unknown_model import is_unknown_model, told

            if (better := self._advice(route, request, error)) is not None:
                raise better from error
            if not is_unknown_model(error.failure, model):
                raise
            raise told(error, route.name, model, await self._known_models(route)) from error
        finally:
            await close_stream(chunks)

    async def _known_models(self, route: Route[C]) -> list[str]:
        ids = [model.id for model in route.config.models]
        with contextlib.suppress(LlmError):
            ids += [found.id for found in await self.list_served_models(route.name)]
        return ids

    def _endpoint(
        self,
        route: Route[C],
        path: str,
        *,
        accept: str = "text/event-stream",
        headers: Mapping[str, str] = _NONE,
    ) -> Endpoint:
        """Where and how to ask now, with these headers beside the route's own."""
        config, base_url, key = route.config, self.base_url(route), _NO_KEY
        sent = dict(config.more_headers)
        if config.sends_key:
            key = find_key(self._keys, config.api_key_env or "", route.display_name)
            name, value = self._key_header(route, key.value)
            sent[name] = value
        return Endpoint(
            url=self._url(base_url, path),
            headers={
                **sent,
                "content-type": "application/json",
                "accept": accept,
                "accept-encoding": "identity",
                "user-agent": USER_AGENT,
                **self.wire_headers,
                **headers,
            },
            provider=route.display_name,
            shown_url=host_of(base_url).rstrip("/"),
            secret=key.value,
            limits=config.limits,
            longest_wait_ms=route.policy.max_provider_delay_ms if route.policy.mode == "normal" else None,
            key_origin=key.where,
        )

    def _route(self, provider: str) -> Route[C]:
        found = self.routes.get(provider)
        if found is None:
            raise LlmError.of("NO_ADAPTER", f"row {self.row} has no route {provider!r} any more")
        return found

    def _facts(self, route: Route[C], model: str, served: ModelFacts = NO_FACTS) -> ModelFacts:
        """What the settings, the route, the server and the shipped catalogue say, in this order."""
        facts = served
        if (entry := route.config.listed(model)) is not None:
            facts = ModelFacts(
                name=entry.name or served.name,
                context_window=entry.context_window or served.context_window,
                price=entry.price,
            )
        vendor, is_own = self._vendor(route, model)
        return known_of(
            self._catalogue(), route.name, model, row=facts, vendor=vendor, is_vendor_endpoint=is_own
        )

    def _info(self, route: Route[C], model: str, served: ModelFacts = NO_FACTS) -> ModelInfo:
        """What is known of a model; a window that nobody knows is the route's guess."""
        entry, facts = route.config.listed(model), self._facts(route, model, served)
        longest, reasoning = self._abilities(route, model, facts)
        return ModelInfo(
            provider=route.name,
            id=model,
            name=facts.name or model,
            description=None if entry is None else entry.description,
            input_modalities=("text",),  # images have no way onto a wire yet
            context_window=facts.context_window or route.config.default_context_window,
            default_max_tokens=longest,
            reasoning=reasoning,
            price=facts.price,
        )


def _check_model(route: Route[C], model: str) -> None:
    if not route.config.allows(model):
        from dsh.llm.unknown_model import unknown_model

        raise unknown_model(route.name, model, [entry.id for entry in route.config.models])
