"""What an adapter says of its models, judged before it is believed."""

from collections.abc import Sequence

import msgspec

from dsh.llm.adapter import ModelInfo
from dsh.llm.failure import LlmError
from dsh.llm.request import LlmCallConfig
from dsh.session.value import MAX_SAFE_INT


def checked_model(provider: str, model: str, info: ModelInfo) -> ModelInfo:
    """The info itself, if it holds together.

    Raises:
        LlmError: `INVALID_MODEL_INFO`, `INVALID_MODEL_CONTEXT`, `INVALID_MODEL_MAX_TOKENS`,
            `INVALID_MODEL_REASONING`.
    """
    where = f"model {provider}/{model}"
    if problem := _problem(info):
        raise LlmError.of("INVALID_MODEL_INFO", f"{where}: its adapter says no facts of it: {problem}")
    if info.provider != provider or info.id != model or not info.name.strip():
        raise LlmError.of("INVALID_MODEL_INFO", f"{where}: its adapter describes {info.provider}/{info.id}")
    if info.input_modalities is not None and not all(info.input_modalities):
        raise LlmError.of("INVALID_MODEL_INFO", f"{where}: an input modality has no name")
    if info.context_window is not None and not 0 < info.context_window <= MAX_SAFE_INT:
        raise LlmError.of("INVALID_MODEL_CONTEXT", f"{where}: context window {info.context_window}")
    if info.default_max_tokens is not None and not 0 < info.default_max_tokens <= MAX_SAFE_INT:
        raise LlmError.of("INVALID_MODEL_MAX_TOKENS", f"{where}: default of {info.default_max_tokens} tokens")
    reasoning = info.reasoning
    if reasoning is not None:
        ids = [effort.id for effort in reasoning.efforts]
        default = reasoning.default_effort
        if (
            not ids
            or len(set(ids)) < len(ids)
            or not all(ids)
            or (default is not None and default not in ids)
        ):
            raise LlmError.of("INVALID_MODEL_REASONING", f"{where}: efforts {ids}, default {default!r}")
    return info


def checked_catalogue(provider: str, models: Sequence[ModelInfo]) -> tuple[ModelInfo, ...]:
    """The models, if each is sound and none is there twice.

    Raises:
        LlmError: `INVALID_CATALOG`.
    """
    if not isinstance(models, list | tuple):
        raise LlmError.of("INVALID_CATALOG", f"route {provider}: its adapter lists {models!r:.200}")
    seen: set[str] = set()
    for info in models:
        if problem := _problem(info):
            raise LlmError.of("INVALID_CATALOG", f"route {provider}: its adapter lists no model: {problem}")
        if info.provider != provider or not info.id or not info.name.strip() or info.id in seen:
            raise LlmError.of("INVALID_CATALOG", f"route {provider}: bad or repeated model {info.id!r}")
        seen.add(info.id)
    return tuple(models)


def _problem(info: object) -> str:
    """Why this is no `ModelInfo`, or one with a member of a wrong type; empty where it is sound."""
    if not isinstance(info, ModelInfo):
        return f"{info!r:.200}"
    try:
        msgspec.convert(msgspec.to_builtins(info), ModelInfo)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def chosen_effort(info: ModelInfo, config: LlmCallConfig) -> str | None:
    """The effort of a call: the one asked for, else the model's default. Never another one instead.

    Raises:
        LlmError: `UNSUPPORTED_REASONING_EFFORT`.
    """
    wanted = config.reasoning_effort
    if info.reasoning is None:
        if wanted is None:
            return None
        known = "none"
    else:
        wanted = wanted if wanted is not None else info.reasoning.default_effort
        ids = [effort.id for effort in info.reasoning.efforts]
        if wanted is None or wanted in ids:
            return wanted
        known = ", ".join(ids)
    raise LlmError.of(
        "UNSUPPORTED_REASONING_EFFORT",
        f"model {info.provider}/{info.id} has no reasoning effort {wanted!r}; it offers: {known}",
    )
