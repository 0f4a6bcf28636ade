"""What the configurations of both rows have: the models of a route, and paths."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsh.capabilities.bounds import Amount, NonEmpty
from dsh.errors import CompositionError
from dsh.llm.adapter import EffortInfo, ModelInfo, ReasoningInfo


class ScriptModel(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """One model."""

    id: NonEmpty
    """What the model is asked for by."""
    name: NonEmpty | None = None
    """What people read; unset: the id."""
    context_window: Amount | None = None
    """In tokens; unset: not known, so nothing is compacted for it."""
    max_tokens: Amount | None = None
    """Longest reply in tokens that requests ask for."""
    efforts: list[NonEmpty] = msgspec.field(default_factory=list)
    """The reasoning efforts it offers."""
    default_effort: NonEmpty | None = None
    """The one it is asked with where none is chosen; one of `efforts`."""

    def __post_init__(self) -> None:
        if self.default_effort is not None and self.default_effort not in self.efforts:
            raise ValueError(f"defaultEffort {self.default_effort!r} is none of the efforts of {self.id!r}")
        if len(set(self.efforts)) < len(self.efforts):
            raise ValueError(f"the efforts of {self.id!r} must stand once each")

    def info(self, provider: str) -> ModelInfo:
        """The same as an adapter tells it."""
        reasoning = None
        if self.efforts:
            efforts = tuple(EffortInfo(effort, effort) for effort in self.efforts)
            reasoning = ReasoningInfo(efforts, self.default_effort)
        return ModelInfo(
            provider=provider,
            id=self.id,
            name=self.name or self.id,
            input_modalities=("text",),
            context_window=self.context_window,
            default_max_tokens=self.max_tokens,
            reasoning=reasoning,
        )


def check_models(models: Sequence[ScriptModel]) -> None:
    """Check a list of models.

    Raises:
        ValueError: an id stands twice.
    """
    ids = [model.id for model in models]
    if len(set(ids)) < len(ids):
        raise ValueError("models must stand once each")


def script_path(text: str) -> Path:
    """The file that a row names: `~` is a home, a relative path starts at the working directory.

    Raises:
        CompositionError: there is no such home.
    """
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise CompositionError(f"{text}: nobody has the home of that name") from None
