"""Asking a search API: its key, one JSON request, one JSON answer, and failures in words. For search rows."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from dsh.capabilities.http import HttpClient, HttpError, host_of
from dsh.capabilities.web import WebError
from dsh.kernel import CancelToken
from dsh.kernel.cancel import Cancelled
from dsh.llm.failure import LlmError
from dsh.llm.transport.credential import KeySources, find_key, is_key_name

MAX_ANSWER_BYTES = 16 * 1024 * 1024


class SearchApi(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One API, and where its key is found."""

    name: str
    """What people call it."""
    row: str
    http: HttpClient
    keys: KeySources

    def problem(self, ref: str, base_url: str) -> str | None:
        """Why it cannot be asked with this key at this place; None where it can."""
        from dsh.llm.transport.endpoint import base_url_problem

        if not is_key_name(ref):
            return f"apiKeyEnv of the row {self.row} is no name of a key"
        if (wrong := base_url_problem(base_url)) is not None:
            return f"its base URL {wrong}"
        try:
            find_key(self.keys, ref, self.name)
        except LlmError as error:
            return _key_problem(error, ref)
        return None

    def key(self, ref: str) -> str:
        """
        Raises:
            WebError: `WEB_PROVIDER_CREDENTIAL_MISSING`.
        """
        try:
            return find_key(self.keys, ref, self.name).value
        except LlmError as error:
            raise WebError(
                "WEB_PROVIDER_CREDENTIAL_MISSING",
                f"{self.name} cannot search: {_key_problem(error, ref)}",
                hint=f"set it with: export {ref}=…",
            ) from None

    async def post(
        self, url: str, *, headers: Mapping[str, str], body: Any, secret: str, signal: CancelToken
    ) -> dict[str, Any]:
        """Send the body, and decode the JSON object that comes back. Not repeated.

        Args:
            secret: the key, masked wherever the server echoes it.

        Raises:
            WebError: `WEB_PROVIDER_ERROR`, `WEB_ABORTED`.
        """
        work = asyncio.ensure_future(self._exchange(url, headers, body))
        try:
            status, answer = await signal.race(work)
        except Cancelled:
            raise WebError("WEB_ABORTED", "the search was cancelled") from None
        except HttpError as error:
            raise self._failed(f"{error.message} ({host_of(url)})", hint=error.hint) from error
        finally:
            work.cancel()
            await asyncio.wait((work,))
        return self._decoded(url, status, answer, secret)

    async def _exchange(self, url: str, headers: Mapping[str, str], body: Any) -> tuple[int, bytes]:
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        sent = {"content-type": "application/json", "accept": "application/json", **headers}
        stream = await self.http.open("POST", url, headers=sent, content=content)
        try:
            return stream.status, await stream.read_all(MAX_ANSWER_BYTES)
        finally:
            await stream.aclose()

    def _decoded(self, url: str, status: int, answer: bytes, secret: str) -> dict[str, Any]:
        host = urlsplit(host_of(url)).netloc
        if not 200 <= status < 300:
            said = _said(answer, secret)
            where = f" by {host}" if 300 <= status < 400 else ""
            raise self._failed(f"HTTP {status}{where}" + (f": {said}" if said else ""))
        try:
            value = json.loads(answer)
        except (ValueError, RecursionError):
            raise self._failed(f"the answer of {host} is no JSON") from None
        if not isinstance(value, dict):
            raise self._failed(f"the answer of {host} is no JSON object")
        return value

    def _failed(self, problem: str, *, hint: str = "") -> WebError:
        return WebError("WEB_PROVIDER_ERROR", f"{self.name} gave no results: {problem}", hint=hint)

    def nothing(self, problem: str) -> WebError:
        """The failure of an answer that holds no results."""
        return self._failed(problem)


def _key_problem(error: LlmError, ref: str) -> str:
    if error.code == "MISSING_CREDENTIAL":
        return f"{ref} is not set"
    return f"the key {ref} holds characters that a key cannot have, or cannot be read"


def _said(answer: bytes, secret: str) -> str:
    """The server's own words in one short line."""
    from dsh.llm.transport.error_body import read_body
    from dsh.llm.transport.wording import looks_like_html, presentable

    text = answer.decode("utf-8", "replace")
    if looks_like_html(text):
        return ""
    return presentable(read_body(text).message or text, (secret,))


def text_in(value: object) -> str | None:
    """A text that says something; None for everything else."""
    return value if isinstance(value, str) and value.strip() else None
