"""The models that a server lists (`GET <base>/models`): asked for with bounds, remembered for a while."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from dsh.capabilities.http import HttpClient, HttpError
from dsh.capabilities.model_facts import ModelFacts
from dsh.llm.failure import LlmError
from dsh.llm.transport.endpoint import Endpoint

LONGEST_S = 5.0
"""How long a server may take to list its models."""
MAX_BYTES = 4 * 1024 * 1024
MAX_MODELS = 5000
KEPT_S = 300.0
"""How long a list is taken as still true."""

_IDS = ("id", "model", "name", "key")
_WINDOWS = ("context_length", "max_model_len", "context_window", "max_context_length", "max_input_tokens")


class ServedModel(msgspec.Struct, frozen=True):
    """One model of a server's list."""

    id: str
    name: str | None = None
    context_window: int | None = None

    def facts(self) -> ModelFacts:
        """The entry in the form that all sources share."""
        return ModelFacts(name=self.name, context_window=self.context_window)


class Discovery:
    """Asks servers for their models. State: the lists of a while ago, by whom was asked as whom."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http
        self._kept: dict[Any, tuple[float, tuple[ServedModel, ...]]] = {}

    async def of(self, endpoint: Endpoint) -> tuple[ServedModel, ...]:
        """The models that an endpoint lists to whom these headers name, as it orders them.

        Raises:
            LlmError: `NO_MODEL_LIST`, it gave none within the bounds. The message holds no key.
        """
        now = asyncio.get_running_loop().time()
        self._kept = {asked: kept for asked, kept in self._kept.items() if now - kept[0] < KEPT_S}
        asked = (endpoint.url, frozenset(endpoint.headers.items()))
        if asked not in self._kept:
            models = await self._ask(endpoint)
            self._kept[asked] = (now, models)
        return self._kept[asked][1]

    async def _ask(self, endpoint: Endpoint) -> tuple[ServedModel, ...]:
        where = endpoint.shown_url
        try:
            async with asyncio.timeout(LONGEST_S):
                answer = await self._http.open("GET", endpoint.url, headers=endpoint.headers)
                try:
                    body = await answer.read_all(MAX_BYTES)
                finally:
                    await answer.aclose()
        except TimeoutError:
            raise LlmError.of("NO_MODEL_LIST", f"{where} listed no models within {LONGEST_S:g} s") from None
        except HttpError as error:
            raise LlmError.of("NO_MODEL_LIST", f"{where} cannot be asked for its models") from error
        if answer.status != 200:
            raise LlmError.of("NO_MODEL_LIST", f"{where} lists no models (HTTP {answer.status})")
        try:
            return served_models(msgspec.json.decode(body))
        except (msgspec.DecodeError, RecursionError):
            raise LlmError.of("NO_MODEL_LIST", f"{where} answered with no list of models") from None


def served_models(value: Any) -> tuple[ServedModel, ...]:
    """The models of a list: `{data: [{id}]}` as OpenAI has it, `{models: […]}`, or the list alone.

    What has no id, or one that came before, is passed over.
    """
    if isinstance(value, Mapping):
        value = next((value[key] for key in ("data", "models") if isinstance(value.get(key), list)), ())
    found: dict[str, ServedModel] = {}
    for item in value if isinstance(value, list) else ():
        if (model := _served(item)) is not None and len(found) < MAX_MODELS:
            found.setdefault(model.id, model)
    return tuple(found.values())


def _served(item: Any) -> ServedModel | None:
    if isinstance(item, str):
        item = {"id": item}
    if not isinstance(item, Mapping):
        return None
    model = next((item[key] for key in _IDS if isinstance(item.get(key), str) and item[key].strip()), None)
    if model is None:
        return None
    name = item.get("name") or item.get("display_name")
    window = next((item[key] for key in _WINDOWS if type(item.get(key)) is int and item[key] > 0), None)
    return ServedModel(model, name if isinstance(name, str) and name.strip() else None, window)
