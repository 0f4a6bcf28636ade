"""The SDK's dispatcher, with a sieve for answers: its models refuse a whole answer for one wrong piece.

Importing this module loads the SDK.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import mcp_types as types
from mcp.client._transport import TransportStreams
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import methods
from mcp_types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dsh.plugins.mcp_client.listed import problem_of
from dsh.plugins.mcp_client.sieve import call_result, shown, tools_page

_COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""What every page of the newer protocol says besides its tools."""


class Wire(JSONRPCDispatcher[TransportContext]):
    """The SDK's dispatcher; answers pass a sieve before their models see them."""

    def __init__(self, streams: TransportStreams, skip: Callable[[str, str], None]) -> None:
        super().__init__(*streams)
        self._skip = skip
        self.version = LATEST_HANDSHAKE_VERSION
        self.over = asyncio.Event()
        """The streams have ended."""

    @property
    def is_newer(self) -> bool:
        """Whether it speaks the protocol that has no handshake and no sessions."""
        return self.version in MODERN_PROTOCOL_VERSIONS

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        **rest: Any,
    ) -> None:
        try:
            await super().run(on_request, on_notify, on_notify_intercept, **rest)
        finally:
            self.over.set()

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        **rest: Any,
    ) -> dict[str, Any]:
        raw: Any = await super().send_raw_request(method, params, opts, **rest)
        if method == "tools/list" and isinstance(raw, dict):
            return tools_page(raw, self._tool_problem, self._skip)
        if method == "tools/call" and isinstance(raw, dict):
            return call_result(raw, self._is_block, is_any_structured=self.is_newer)
        return raw if isinstance(raw, dict) else {}

    def _tool_problem(self, entry: Any) -> str | None:
        try:
            rest = _COMPLETE if self.is_newer else {}
            methods.validate_server_result("tools/list", self.version, {"tools": [entry], **rest})
            types.Tool.model_validate(entry, by_name=False)
        except ValidationError as error:
            return misfit(error)
        return problem_of(entry)

    def _is_block(self, block: Any) -> bool:
        rest = {"resultType": "complete"} if self.is_newer else {}
        try:
            methods.validate_server_result("tools/call", self.version, {"content": [block], **rest})
            types.CallToolResult.model_validate({"content": [block], **rest}, by_name=False)
        except ValidationError:
            return False
        return True


def misfit(error: ValidationError) -> str:
    """Where the first thing is that a model of the SDK refuses, and why."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(step) for step in first["loc"])
    return shown(f"{place}: {first['msg']}" if place else first["msg"])
