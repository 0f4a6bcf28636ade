"""What a failed attempt says: an answer that is no stream, an error within one, a connection that breaks.

Loaded when something fails: the patterns that tell one failure from another are dear to make.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from dsh.llm.failure import LlmError, LlmFailure
from dsh.llm.transport.classify import classify_error_object, classify_status, decode_body, request_id
from dsh.llm.transport.endpoint import Endpoint
from dsh.llm.transport.wording import looks_like_html, page_text, presentable


class Refusal:
    """The failures of one attempt. Holds whom it asked and, once there are any, the headers of the answer."""

    def __init__(self, endpoint: Endpoint, headers: Mapping[str, str], now_s: float) -> None:
        self._endpoint = endpoint
        self._headers = headers
        self._now_s = now_s

    def shown(self, text: str) -> str:
        """Foreign text as part of a message: one short line without keys."""
        return presentable(text, self._endpoint.secrets)

    def failed(self, code: str, message: str) -> LlmError:
        """A failure of our own wording."""
        name = request_id(self._headers, self._endpoint.secrets)
        return LlmError(LlmFailure(message, code, request_id=name))

    def of_status(self, status: int, body: bytes) -> LlmError:
        """The failure behind an answer whose status is no success."""
        endpoint = self._endpoint
        failure = classify_status(
            status,
            body,
            self._headers,
            provider=endpoint.provider,
            host=endpoint.shown_url,
            now_s=self._now_s,
            secrets=endpoint.secrets,
        )
        return LlmError(self._explained(failure))

    def of_body(self, body: bytes) -> LlmError:
        """The failure behind a success whose body is a page or plain JSON instead of a stream."""
        text = decode_body(body, self._headers.get("content-type", ""))
        where = self._endpoint.shown_url
        if looks_like_html(text):
            said = self.shown(page_text(text, self._endpoint.secrets)) or "it holds no text"
            return self.failed(
                "MALFORMED_RESPONSE",
                f"{where} answered with a web page, perhaps a login page of the network: {said}",
            )
        try:
            value = msgspec.json.decode(text.encode())
        except msgspec.DecodeError:
            value = None
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, dict) and (value.get("error") or value.get("object") == "error"):
            return LlmError(self.in_band(value.get("error") or value))
        said = self.shown(text)[:120]
        return self.failed("MALFORMED_RESPONSE", f"{where} answered with JSON instead of a stream: {said}")

    def in_band(self, error: object) -> LlmFailure:
        """The failure behind an error object within the stream."""
        return self._explained(
            classify_error_object(
                error,
                provider=self._endpoint.provider,
                headers=self._headers,
                now_s=self._now_s,
                secrets=self._endpoint.secrets,
            )
        )

    def _explained(self, failure: LlmFailure) -> LlmFailure:
        """The failure with what its message needs beside the provider's words."""
        message, wait_ms = failure.message, failure.provider_retry_after_ms
        longest_ms = self._endpoint.longest_wait_ms
        if failure.code == "AUTH":
            sent = self._endpoint.secret
            message += f" (the key came from {self._endpoint.key_origin})" if sent else " (no key was sent)"
        if failure.status in (404, 405) and "model" not in message.lower():
            path = self.shown(urlsplit(self._endpoint.url).path)
            message += f" (asked for {path}: check the base URL)"
        if wait_ms is not None and longest_ms is not None and wait_ms > longest_ms:
            message += (
                f" (the provider asks to wait {wait_ms / 1000:g} s, longer than maxProviderDelayMs allows)"
            )
        return msgspec.structs.replace(failure, message=message)

    def of_event(self, payload: bytes) -> LlmError:
        """The failure behind an event of type `error`: an error object, an `error` member, plain words."""
        value: object
        try:
            value = msgspec.json.decode(payload)
        except msgspec.DecodeError:
            value = payload.decode("utf-8", "replace")
        if isinstance(value, dict) and value.get("error"):
            value = value["error"]
        return LlmError(self.in_band(value))

    def named(self, error: LlmError) -> LlmError:
        """The error with the provider's name for the request, where it has one."""
        name = request_id(self._headers, self._endpoint.secrets)
        if name is None:
            return error
        made = LlmError(msgspec.structs.replace(error.failure, request_id=name), hint=error.hint)
        made.__cause__ = error.__cause__
        return made
