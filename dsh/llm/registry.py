"""The `llm` service: which adapter serves which route, and the calls that go through them."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from dsh.errors import DshError
from dsh.kernel import CancelToken, Context, Event, Fiber, ScopeTarget, Service, ServiceKey
from dsh.llm.adapter import Generation, LlmAdapter, ModelInfo, ProviderInfo, RetryPolicy, StreamFunction
from dsh.llm.boundary import Adapted, without_foreign_state, without_images
from dsh.llm.directory import ConfigurableProvider, DirectoryHandle, Discover, ProviderDirectory
from dsh.llm.failure import LlmError, LlmFailure
from dsh.llm.model_info import checked_catalogue, checked_model, chosen_effort
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.llm.stream import close_stream
from dsh.session.chunk import Chunk, Finish
from dsh.session.message import Message
from dsh.unicode import valid

LLM: "ServiceKey[LlmRegistry]" = ServiceKey("llm")

CHOSEN = "the route is chosen by agent-default-model, in the settings or as a row"

LLM_STREAM: Event[LlmRequest, AsyncIterator[Chunk]] = Event("llm/stream", "waterfall", scoped=True)
"""Around every model call: a listener `(request, next)` returns an iterator over chunks and closes the one
it wraps. What a listener raises is not turned into a chunk. In the scope of an agent it sees that agent's."""

LLM_ADAPTERS_UPDATED: Event[None, None] = Event("llm/adapters-updated", "emit", contained=True)
"""The set of routes, or of those that can be configured, has changed."""


class _Route(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """One provider route as it was registered."""

    adapter: LlmAdapter
    info: ProviderInfo
    retry_policy: RetryPolicy
    """As it was at registration: an attempt under way keeps it when the route goes."""
    owner: Fiber
    """Whose registration it is."""


class PreparedCall:
    """A call bound to one generation of one adapter. `stream` can be used once."""

    def __init__(
        self, registry: "LlmRegistry", route: _Route, generation: Generation, config: LlmCallConfig
    ) -> None:
        info = generation.info
        effort = chosen_effort(info, config)
        max_tokens = info.default_max_tokens if config.max_tokens is None else config.max_tokens
        self.config = msgspec.structs.replace(config, reasoning_effort=effort, max_tokens=max_tokens)
        """With the adapter's defaults filled in."""
        self.adapter_defaults: dict[str, bool] = {}
        """Which of them the adapter filled in: `{reasoningEffort?: true, maxTokens?: true}`."""
        if config.reasoning_effort is None and effort is not None:
            self.adapter_defaults["reasoningEffort"] = True
        if config.max_tokens is None and max_tokens is not None:
            self.adapter_defaults["maxTokens"] = True
        self.retry_policy = route.retry_policy
        self.context_window = info.context_window
        self.input_modalities = info.input_modalities
        self.price = info.price
        self._registry = registry
        self._route = route
        self._source = generation.stream
        self._used = False

    def stream(self, request: LlmRequest, *, subject: ScopeTarget | None = None) -> AsyncIterator[Chunk]:
        """Make the call. A failure of the adapter arrives as a terminal `Finish`, never as an exception.

        `subject` is whose call it is; without one, listeners in scopes do not see it.
        Close the iterator if it is not read to its end: that ends the attempt.

        Raises:
            LlmError: `INVALID_PREPARED_CALL`, used twice or with another config than `self.config`.
        """
        if self._used:
            raise LlmError.of("INVALID_PREPARED_CALL", "a prepared model call was used a second time")
        if request.config != self.config:
            raise LlmError.of(
                "INVALID_PREPARED_CALL", "a prepared model call was given another config than it was made for"
            )
        self._used = True
        return self._registry.dispatch(request, self.direct, subject)

    def direct(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        """The adapter's own stream, for the request as this model gets it."""
        return self._source(self._registry.at_boundary(request, self._route, self.input_modalities))


class RouteHandle:
    """A registration of routes. It ends with its owner, or by `dispose`."""

    def __init__(self, registry: "LlmRegistry", adapter: LlmAdapter, owner: Fiber) -> None:
        self._registry = registry
        self._adapter, self._owner = adapter, owner
        self._routes: tuple[str, ...] = ()
        self._disposed = False

    def replace(self, routes: Sequence[str]) -> None:
        """Serve these routes instead, at once and all or nothing; none is legal.

        Raises:
            LlmError: `DUPLICATE_ADAPTER`, `INVALID_ADAPTER`, `REGISTRATION_DISPOSED`.
        """
        if self._disposed:
            raise LlmError.of("REGISTRATION_DISPOSED", "the registration of these model routes has ended")
        self._routes = self._registry.swap(self._routes, routes, self._adapter, self._owner)

    def dispose(self) -> None:
        """Serve nothing any more. A second call changes nothing."""
        if not self._disposed:
            self._disposed = True
            self._routes = self._registry.swap(self._routes, (), self._adapter, self._owner)


class LlmRegistry(Service):
    """The routes of one composition."""

    provide = LLM

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self._routes: dict[str, _Route] = {}
        self._generation = 0
        """How often the set of routes has changed."""
        self._directory = ProviderDirectory(self._updated)

    def register_adapter(self, routes: Sequence[str], adapter: LlmAdapter) -> RouteHandle:
        """Serve these routes with this adapter until the caller's fiber goes.

        Raises:
            LlmError: `INVALID_ADAPTER` (no route, an empty name, wrong metadata), `DUPLICATE_ADAPTER`.
        """
        if not routes:
            raise LlmError.of("INVALID_ADAPTER", "a model adapter was registered for no route at all")
        handle = RouteHandle(self, adapter, self.ctx.fiber)

        def serve() -> Callable[[], None]:
            handle.replace(routes)
            return handle.dispose

        self.ctx.effect(serve, f"model routes {routes}")
        return handle

    def swap(
        self, old: Sequence[str], new: Sequence[str], adapter: LlmAdapter, owner: Fiber
    ) -> tuple[str, ...]:
        """Replace routes of one registration; used by its handle."""
        made: dict[str, _Route] = {}
        for name in new:
            if not name.strip() or name in made:
                raise LlmError.of("INVALID_ADAPTER", f"a model route is named {name!r}, or that twice")
            if name in self._routes and name not in old:
                by = self._routes[name].owner.row_chain
                raise LlmError.of("DUPLICATE_ADAPTER", f"model route {name!r} is served by {by} already")
            info: object = adapter.provider_info(name)
            policy: object = adapter.retry_policy(name)
            if not isinstance(info, ProviderInfo) or info.provider != name or not info.display_name.strip():
                raise LlmError.of("INVALID_ADAPTER", f"the adapter of route {name!r} describes {info!r}")
            if not isinstance(policy, RetryPolicy):
                raise LlmError.of("INVALID_ADAPTER", f"the retry policy of route {name!r} is {policy!r}")
            made[name] = _Route(adapter, info, policy, owner)
        for name in old:
            self._routes.pop(name, None)
        self._routes.update(made)
        self._generation += 1
        self._updated()
        return tuple(made)

    def _updated(self) -> None:
        self.owner_ctx.emit(LLM_ADAPTERS_UPDATED, None)

    def register_configurable_providers(self, entries: Sequence[ConfigurableProvider]) -> DirectoryHandle:
        """List routes that the settings can set up, until the caller's fiber goes.

        Raises:
            LlmError: `DUPLICATE_DIRECTORY`, `INVALID_DIRECTORY`.
        """
        handle = DirectoryHandle(self._directory)

        def offer() -> Callable[[], None]:
            handle.replace(entries)
            return handle.dispose

        self.ctx.effect(offer, "configurable model routes")
        return handle

    def list_configurable_providers(self) -> tuple[ConfigurableProvider, ...]:
        """Every route that can be configured, in order of registration."""
        return self._directory.entries()

    def register_model_discovery(self, settings_ns: str, discover: Discover) -> None:
        """Ask this function which models the routes of one section have, while the caller is mounted.

        Raises:
            LlmError: `DUPLICATE_DISCOVERY`, `INVALID_DISCOVERY`.
        """
        self.ctx.effect(
            lambda: self._directory.add_discovery(settings_ns, discover), f"model discovery of {settings_ns}"
        )

    async def discover_models(self, settings_ns: str, provider: str) -> tuple[ModelInfo, ...]:
        """The models that the server of a route lists; those without an id or named before are left out.

        Raises:
            LlmError: `NO_DISCOVERY`, or what kept the server from listing any.
        """
        return await self._directory.discover(settings_ns, provider)

    def owner_of(self, provider: str) -> Fiber | None:
        """The fiber that registered a route, to be held while it is used; None where nobody has."""
        route = self._routes.get(provider)
        return None if route is None else route.owner

    def list_providers(self) -> tuple[ProviderInfo, ...]:
        """Every route, in order of registration."""
        return tuple(route.info for route in self._routes.values())

    def list_models(self, provider: str) -> tuple[ModelInfo, ...]:
        """The models that the adapter advertises; others may work as well.

        Raises:
            LlmError: `NO_ADAPTER`, `INVALID_CATALOG`.
        """
        return checked_catalogue(provider, self._route(provider).adapter.list_models(provider))

    def resolve_model_info(self, provider: str, model: str) -> ModelInfo:
        """What the adapter knows of a model, listed or not.

        Raises:
            LlmError: `NO_ADAPTER`, `INVALID_MODEL_*`.
        """
        info = self._route(provider).adapter.resolve_model(provider, model)
        return checked_model(provider, model, info)

    async def prepare_call(self, config: LlmCallConfig, signal: CancelToken | None = None) -> PreparedCall:
        """Bind a call: take the adapter's generation and fill in its defaults.

        Raises:
            LlmError: `NO_ADAPTER`, `UNSUPPORTED_REASONING_EFFORT`, `INVALID_MODEL_*`.
            Cancelled: the signal was cancelled meanwhile.
        """
        route = self._route(config.provider)
        generation = await route.adapter.prepare(config.provider, config.model)
        if not isinstance(generation, Generation):
            raise LlmError.of(
                "INVALID_ADAPTER", f"the adapter of route {config.provider!r} prepared {generation!r:.200}"
            )
        if signal is not None:
            signal.raise_if_cancelled()
        checked_model(config.provider, config.model, generation.info)
        return PreparedCall(self, route, generation, config)

    def stream(self, request: LlmRequest, *, subject: ScopeTarget | None = None) -> AsyncIterator[Chunk]:
        """An unprepared call: titles, summaries, routes that a listener of `llm/stream` serves.

        No adapter, wrong metadata or an unsupported effort arrive as a terminal `Finish`.
        """

        async def prepared(given: LlmRequest) -> AsyncIterator[Chunk]:
            call = await self.prepare_call(given.config, given.signal)
            source = call.direct(msgspec.structs.replace(given, config=call.config))
            try:
                async for chunk in source:
                    yield chunk
            finally:
                await close_stream(source)

        return self.dispatch(request, prepared, subject)

    def dispatch(
        self, request: LlmRequest, source: StreamFunction, subject: ScopeTarget | None
    ) -> AsyncIterator[Chunk]:
        """Send a call through the listeners of `llm/stream` to its source."""

        def inner() -> AsyncIterator[Chunk]:
            return contained_stream(request, source)

        return self.owner_ctx.waterfall(LLM_STREAM, request, inner, subject=subject or ScopeTarget(None))

    def at_boundary(
        self, request: LlmRequest, route: _Route, modalities: tuple[str, ...] | None
    ) -> LlmRequest:
        """The request as this model may see it: foreign replay state and unreadable images are taken out."""

        def is_ours(provider: str) -> bool:
            owner = self._routes.get(provider)
            return owner is not None and owner.adapter is route.adapter

        def change(message: Message) -> Message:
            message = without_foreign_state(message, is_ours)
            return message if takes_images else without_images(message)

        takes_images = modalities is None or "image" in modalities
        adapted = Adapted() if request.memo is None else request.memo.of(route, Adapted)
        messages = adapted.of(request.messages, (self._generation, takes_images), change)
        if messages is request.messages:
            return request
        return msgspec.structs.replace(request, messages=messages)

    def _route(self, provider: str) -> _Route:
        route = self._routes.get(provider)
        if route is None:
            known = ", ".join(self._routes) or "none"
            raise LlmError.of(
                "NO_ADAPTER", f"no adapter serves model route {provider!r}; routes: {known}; {CHOSEN}"
            )
        return route


async def contained_stream(request: LlmRequest, source: StreamFunction) -> AsyncIterator[Chunk]:
    """The source's chunks up to its finish; what it raises becomes one."""
    chunks: AsyncIterator[Chunk] | None = None
    try:
        chunks = source(request)
        async for chunk in chunks:
            yield chunk
            if type(chunk) is Finish:
                return
    except Exception as error:
        yield Finish(_reason(error, request.signal))
    finally:
        if chunks is not None:
            await close_stream(chunks)


def _reason(error: Exception, signal: CancelToken | None) -> dict[str, Any]:
    failure = failure_of(error)
    aborted = failure.code == "ABORTED" or (signal is not None and signal.cancelled)
    return {"kind": "aborted" if aborted else "error", "failure": failure.to_json()}


def failure_of(error: Exception) -> LlmFailure:
    """What a finish says of an exception: an `LlmError`'s facts, another `DshError`'s code, else UNKNOWN."""
    if isinstance(error, LlmError) and error.code == error.failure.code:
        return error.failure
    message = valid(str(error)) or type(error).__name__
    code = error.code if isinstance(error, DshError) and error.code else "UNKNOWN"
    return LlmFailure(message, code)
