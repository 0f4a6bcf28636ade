"""The options of the row `compaction-basic`, and what they come to for one model."""

from typing import Annotated, TypeVar

import msgspec

from dsh.capabilities.bounds import Amount, NonEmpty

Ratio = Annotated[float, msgspec.Meta(gt=0, le=1)]
Times = Annotated[int, msgspec.Meta(ge=0, le=100)]

DEFAULT_RETAIN_RATIO = 0.16

T = TypeVar("T")


class ModelPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options for one model; what is unset is as in the row."""

    provider: NonEmpty
    """The route of the model that works on the task."""
    model: NonEmpty
    """Its id."""
    threshold_ratio: Ratio | None = None
    """As in the row."""
    retain_ratio: Ratio | None = None
    """As in the row; not with `retainTokens`."""
    retain_tokens: Amount | None = None
    """As in the row; not with `retainRatio`."""
    summarization_provider: str | None = None
    """As in the row."""
    summarization_model: str | None = None
    """As in the row."""
    summary_effort: NonEmpty | None = None
    """As in the row."""
    max_tokens: Amount | None = None
    """As in the row."""
    compaction_retries: Times | None = None
    """As in the row."""
    max_overflow_retries: Times | None = None
    """As in the row."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the `compaction-basic` row."""

    auto: bool = True
    """Compact by itself: before a step that would be too large, and after a request that was."""
    threshold_ratio: Ratio = 0.8
    """Part of the model's context window from which on the history is made shorter."""
    retain_ratio: Ratio = DEFAULT_RETAIN_RATIO
    """Part of the window that the end of the history may fill and stay as it is; below `thresholdRatio`."""
    retain_tokens: Amount | None = None
    """The same in tokens, in place of `retainRatio`."""
    summarization_provider: str = ""
    """Route of the model that writes summaries; empty: the one that works on the task."""
    summarization_model: str = ""
    """Its id; both or neither."""
    summary_effort: NonEmpty | None = None
    """Reasoning effort of summaries; unset: that of the session, so that the provider's cache stays good."""
    max_tokens: Amount = 8192
    """Longest summary, in tokens; what an effort may think comes on top."""
    compaction_retries: Times = 1
    """Further compactions before one step while it is still too large."""
    max_overflow_retries: Times = 1
    """Summaries after requests that were too large, until the model answers."""
    model_policies: list[ModelPolicy] = msgspec.field(default_factory=list)
    """Other options for some models; each pair of route and id once."""

    def __post_init__(self) -> None:
        pairs = [(policy.provider, policy.model) for policy in self.model_policies]
        for provider, model in pairs:
            if pairs.count((provider, model)) > 1:
                raise ValueError(f"modelPolicies names {provider}/{model} twice")
        if self.retain_tokens is not None and self.retain_ratio != DEFAULT_RETAIN_RATIO:
            raise ValueError("retainRatio and retainTokens exclude each other")
        self.for_model("", "")
        for provider, model in pairs:
            self.for_model(provider, model)

    def for_model(self, provider: str, model: str) -> "Policy":
        """What holds for a model.

        Raises:
            ValueError: the options of its policy contradict each other or the row's.
        """
        own = next((p for p in self.model_policies if (p.provider, p.model) == (provider, model)), None)
        where = "" if own is None else f"modelPolicies, {provider}/{model}: "
        if own is None:
            own = ModelPolicy(provider="-", model="-")
        if own.retain_ratio is not None and own.retain_tokens is not None:
            raise ValueError(f"{where}retainRatio and retainTokens exclude each other")
        retain_tokens = own.retain_tokens
        if own.retain_ratio is None and retain_tokens is None:
            retain_tokens = self.retain_tokens
        policy = Policy(
            threshold_ratio=_either(own.threshold_ratio, self.threshold_ratio),
            retain_ratio=_either(own.retain_ratio, self.retain_ratio),
            retain_tokens=retain_tokens,
            provider=_either(own.summarization_provider, self.summarization_provider),
            model=_either(own.summarization_model, self.summarization_model),
            effort=own.summary_effort or self.summary_effort,
            max_tokens=_either(own.max_tokens, self.max_tokens),
            compaction_retries=_either(own.compaction_retries, self.compaction_retries),
            max_overflow_retries=_either(own.max_overflow_retries, self.max_overflow_retries),
        )
        if bool(policy.provider) != bool(policy.model):
            raise ValueError(
                f"{where}summarizationProvider and summarizationModel come together or not at all"
            )
        if policy.retain_tokens is None and policy.retain_ratio >= policy.threshold_ratio:
            raise ValueError(
                f"{where}retainRatio {policy.retain_ratio} is not below "
                f"thresholdRatio {policy.threshold_ratio}"
            )
        return policy


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The options that hold for one model."""

    threshold_ratio: float
    retain_ratio: float
    """Without effect where `retain_tokens` is given."""
    retain_tokens: int | None
    provider: str
    """Of the model that writes summaries; empty for the one that works on the task."""
    model: str
    effort: str | None
    max_tokens: int
    compaction_retries: int
    max_overflow_retries: int

    def threshold(self, window: int) -> int:
        """From how many tokens on the history is made shorter."""
        return int(window * self.threshold_ratio)

    def retained(self, window: int) -> int:
        """How many tokens of the history's end stay as they are."""
        return int(window * self.retain_ratio) if self.retain_tokens is None else self.retain_tokens


def _either(own: T | None, row: T) -> T:
    return row if own is None else own
