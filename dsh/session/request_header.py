"""The request header: what a model request is sent with besides its messages, as the log records it."""

from collections.abc import Mapping
from typing import Any

from dsh.session.value import FrozenDict, JsonObject, freeze, json_equal


def canonical_header(header: JsonObject) -> FrozenDict:
    """The form of a request header that is compared and folded: nothing that says nothing is kept.

    `adapterDefaults` stays only with a true marker; an empty `system` and an empty `tools` go.
    """
    out: dict[str, Any] = {"config": header["config"]}
    defaults = header.get("adapterDefaults")
    if isinstance(defaults, Mapping):
        marks = {key: True for key in ("reasoningEffort", "maxTokens") if defaults.get(key) is True}
        if marks:
            out["adapterDefaults"] = marks
    if header.get("system"):
        out["system"] = header["system"]
    if header.get("tools"):
        out["tools"] = header["tools"]
    frozen: FrozenDict = freeze(out, "request header", stored=True)
    return frozen


def headers_equal(left: JsonObject, right: JsonObject) -> bool:
    """Equality of two canonical request headers: tools in order, key order free inside each of them."""
    a, b = left["config"], right["config"]
    for key in ("provider", "model", "reasoningEffort", "temperature", "maxTokens", "stop"):
        if (key in a) != (key in b) or not json_equal(a.get(key), b.get(key)):
            return False
    return all(json_equal(left.get(key), right.get(key)) for key in ("adapterDefaults", "system", "tools"))
