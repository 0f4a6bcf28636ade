"""Builds the request of a step and logs what it is made of: header and route when they change, the digest.

A request is a function of the log: its head is the folded `request/header`, its messages are what the
surface derives, mended and cleaned (`spec/agent-loop.md` §7.1).
"""

from typing import Any, NamedTuple

import msgspec

from dsh.agent.contract import AGENT_REQUEST, AgentOptions, RequestSeed
from dsh.agent.failure import AgentError
from dsh.agent.invariant import mark
from dsh.agent.prompt import PromptAssembly
from dsh.agent.step_scope import StepScope
from dsh.agent.transcript import Transcript
from dsh.llm.failure import LlmError
from dsh.llm.memo import Memo
from dsh.llm.registry import PreparedCall
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.session.digest import REQUEST_DIGEST, RequestDigest, digest_payload
from dsh.session.log import Session
from dsh.session.request_header import canonical_header, headers_equal
from dsh.session.value import FrozenDict


class BuiltRequest(NamedTuple):
    """A request ready to go, and the bound call; none where no adapter serves the route."""

    request: LlmRequest
    prepared: PreparedCall | None
    attempt: int
    """1 for the first request of the step, one more for each retry."""


class RequestBuilder:
    """Builds the requests of one agent.

    State: whether it has logged a header yet, which attempt of the step comes, and what may be computed anew:
    settled messages, the digest so far, what adapters remember of the conversation.
    """

    def __init__(self, session: Session, options: AgentOptions) -> None:
        self._session = session
        self._options = options
        self._transcript = Transcript(session)
        self._digest = RequestDigest()
        self._memo = Memo()
        self._is_first = True
        self._at = (0, 0, 0)
        """Turn, step and attempt of the last digest."""

    async def build(self, scope: StepScope, assembly: PromptAssembly) -> BuiltRequest:
        """The request for one attempt; the rows that say what it is are in the log when this returns.

        Raises:
            AgentError: no provider or no model.
            LlmError: what the adapter refuses, before any header is logged.
            Cancelled: the turn's token.
        """
        seed = self._seed()

        async def unchanged() -> LlmCallConfig:
            return seed

        payload = RequestSeed(scope.agent, scope.turn, scope.step, scope.signal)
        config = await scope.ask(AGENT_REQUEST, payload, unchanged, _is_config, "an LlmCallConfig")
        if not config.provider or not config.model:
            raise AgentError(
                f"no model to ask: provider {config.provider!r}, model {config.model!r}",
                hint="give both in the agent's options or in the config of row agent-default-model",
            )
        prepared = await self._prepare(config, scope)
        scope.signal.raise_if_cancelled()
        if prepared is not None:
            config = prepared.config
        self._log_header(config, prepared, assembly)
        self._log_route(config, prepared)
        scope.signal.raise_if_cancelled()
        self._log_digest(scope)
        request = LlmRequest(
            config=config,
            messages=self._transcript.messages(),
            system=assembly.system or None,
            tools=assembly.tools,
            session_id=self._session.id,
            signal=scope.signal,
            memo=self._memo,
        )
        return BuiltRequest(mark(request), prepared, self._at[2])

    async def _prepare(self, config: LlmCallConfig, scope: StepScope) -> PreparedCall | None:
        scope.routes.hold(config.provider)
        call = scope.services.llm.prepare_call(config, scope.signal)
        try:
            return await scope.grace.wait(call, f"the adapter of route {config.provider}")
        except LlmError as error:
            if error.code != "NO_ADAPTER":
                raise
            return None

    def _seed(self) -> LlmCallConfig:
        """What the request would be sent with if nobody objected.

        Later requests start from the logged config without what the adapter filled in; the first one of
        this process from the agent's options, with the effort that was logged for the same route.
        """
        logged = self._session.request_header
        previous = _chosen(logged) if logged is not None else None
        if previous is not None and not self._is_first:
            return previous
        options = self._options
        provider, model = options.provider or "", options.model or ""
        same = previous is not None and (previous.provider, previous.model) == (provider, model)
        effort = previous.reasoning_effort if previous is not None and same else None
        return LlmCallConfig(provider, model, reasoning_effort=effort, max_tokens=options.max_tokens)

    def _log_header(
        self, config: LlmCallConfig, prepared: PreparedCall | None, assembly: PromptAssembly
    ) -> None:
        header = header_of(config, assembly, dict(prepared.adapter_defaults) if prepared else {})
        logged = self._session.request_header
        if self._is_first:
            reason = "initial" if logged is None else "resume"
        elif logged is not None and headers_equal(header, logged):
            return
        else:
            reason = "change"
        self._session.append("request/header", {"header": header, "reason": reason})
        self._is_first = False

    def _log_route(self, config: LlmCallConfig, prepared: PreparedCall | None) -> None:
        data: dict[str, Any] = {"provider": config.provider, "model": config.model}
        if prepared is not None and prepared.context_window is not None:
            data["contextWindow"] = prepared.context_window
        if data != self._session.request_context:
            self._session.append("request/context", data)

    def _log_digest(self, scope: StepScope) -> None:
        """Log a digest of what this attempt is derived from, for `dsh sessions verify`."""
        session, (turn, step, attempt) = self._session, self._at
        attempt = attempt + 1 if (turn, step) == (scope.turn, scope.step) else 1
        header, messages = session.request_header, session.derive_messages()
        assert header is not None
        digest = self._digest.of(header, messages, session.replace_generation)
        payload = digest_payload(scope.turn, scope.step, attempt, digest, len(messages))
        session.append(REQUEST_DIGEST, payload, ignorable=True)
        self._at = (scope.turn, scope.step, attempt)


def _chosen(header: FrozenDict) -> LlmCallConfig:
    """The config of a logged header without what the adapter had filled in."""
    config, defaults = LlmCallConfig.from_json(header["config"]), header.get("adapterDefaults", {})
    if defaults.get("reasoningEffort"):
        config = msgspec.structs.replace(config, reasoning_effort=None)
    if defaults.get("maxTokens"):
        config = msgspec.structs.replace(config, max_tokens=None)
    return config


def header_of(
    config: LlmCallConfig, assembly: PromptAssembly, adapter_defaults: dict[str, bool]
) -> FrozenDict:
    """The canonical header: `{config, adapterDefaults?, system?, tools?}`."""
    return canonical_header(
        {
            "config": config.to_json(),
            "adapterDefaults": adapter_defaults,
            "system": assembly.system,
            "tools": [tool.to_json() for tool in assembly.tools],
        }
    )


def _is_config(answer: object) -> bool:
    return isinstance(answer, LlmCallConfig)
