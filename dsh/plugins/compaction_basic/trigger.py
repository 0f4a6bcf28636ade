"""When a history is too large for its model, and what was said and tried about it already.

The check is made before every step, so this module loads and does little; what shortens a history is loaded
when it is needed for the first time.
"""

import logging
import re
import sys
from collections.abc import Callable
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from dsh.capabilities.token_meter import TokenMeter
from dsh.llm.failure import LlmError
from dsh.llm.registry import LlmRegistry
from dsh.llm.request import LlmCallConfig
from dsh.plugins.compaction_basic.config import Config, Policy
from dsh.session.log import Session

Model: TypeAlias = tuple[str, str]
"""Route and id."""
OVERFLOW = "CONTEXT_WINDOW_EXCEEDED"
"""The code of a request that the provider found too large."""
BELOW_REFUSED = 0.9
"""What part of a size that a model refused it may well take; the measure is an estimate."""


class Limits(NamedTuple):
    """What holds for a session with its present model, in tokens."""

    window: int
    threshold: int
    retained: int


class Pressed(NamedTuple):
    """A session that is to be made shorter."""

    target: LlmCallConfig
    """The model that works on the task."""
    policy: Policy
    limits: Limits


class _Known:
    """What is remembered of one session."""

    __slots__ = ("again_at", "refused_at", "said")

    def __init__(self) -> None:
        self.again_at: dict[Model, int] = {}
        """Below this total another attempt would come to what the last one came to: nothing."""
        self.refused_at: dict[Model, int] = {}
        """The smallest total that each model found too large."""
        self.said: set[tuple[str, ...]] = set()


class Trigger:
    """Watches sessions. State: what was warned of, and when another attempt is worth its cost."""

    def __init__(
        self, config: Config, llm: LlmRegistry, meter: TokenMeter, logger: Callable[[], logging.Logger]
    ) -> None:
        self.config = config
        self._llm, self._meter, self._logger = llm, meter, logger
        self._known: WeakKeyDictionary[Session, _Known] = WeakKeyDictionary()

    def pressed(self, session: Session) -> Pressed | None:
        """Whether the session's next request would reach the threshold, and trying is worth it."""
        target = target_of(session)
        if target is None:
            return None
        policy = self.config.for_model(target.provider, target.model)
        limits = self.limits(session, target, policy)
        if limits is None:
            return None
        size = self._meter.measure(session)
        total = size.total_tokens
        if total < limits.threshold:
            return None
        if size.head_tokens >= limits.threshold:
            text = (
                f"system text and tools alone take about {size.head_tokens} tokens, and the threshold of "
                f"{limits.threshold} for model {target.provider}/{target.model} is not above that, so "
                "nothing is compacted ahead"
            )
            self.warn_once(session, target, text, kind="head")
            return None
        again_at = self._of(session).again_at.get(_model(target), 0)
        return Pressed(target, policy, limits) if total >= again_at else None

    def limits(self, session: Session, target: LlmCallConfig, policy: Policy) -> Limits | None:
        """What holds for a model; None, and one warning, where its window is unknown or too small.

        A window is smaller than what the model has refused, by the same measure.
        """
        where = f"model {target.provider}/{target.model}"
        try:
            window = self._llm.resolve_model_info(target.provider, target.model).context_window
        except LlmError as error:
            self.warn_once(session, target, f"{where} is not known, so nothing is compacted ahead: {error}")
            return None
        refused_at = self._of(session).refused_at.get(_model(target))
        if refused_at is not None:
            below = int(refused_at * BELOW_REFUSED)
            window = below if window is None else min(window, below)
        if window is None:
            self.warn_once(
                session, target, f"the context window of {where} is not known, so nothing is compacted ahead"
            )
            return None
        limits = Limits(window, policy.threshold(window), policy.retained(window))
        if limits.retained >= limits.threshold:
            self.warn_once(
                session,
                target,
                f"retainTokens {limits.retained} is not below the threshold of {where}, "
                f"{limits.threshold} of {window} tokens, so nothing is compacted ahead",
            )
            return None
        return limits

    def total(self, session: Session) -> int:
        """The estimated size of the session's next request, in tokens."""
        return self._meter.measure(session).total_tokens

    def summarised(self, session: Session) -> None:
        """A summary has been made."""
        self._of(session).again_at.clear()

    def rest(self, session: Session, target: LlmCallConfig, limits: Limits) -> None:
        """What was tried did not help: try again when there is notably more to be gained."""
        room = max(limits.window - limits.threshold, 4)
        self._of(session).again_at[_model(target)] = self.total(session) + room // 4

    def refused(self, session: Session, target: LlmCallConfig) -> None:
        """The model has found the session's request too large."""
        known, key = self._of(session).refused_at, _model(target)
        known[key] = min(self.total(session), known.get(key, sys.maxsize))

    def warn(self, session: Session, text: str) -> None:
        """Tell people of something that did not end the turn, once for each session, whatever its figures."""
        self._tell(session, (re.sub(r"\d+", "", text),), text)

    def warn_once(self, session: Session, target: LlmCallConfig, text: str, kind: str = "limits") -> None:
        """The same, once for a session and model and kind of message."""
        self._tell(session, (*_model(target), kind), text)

    def _tell(self, session: Session, key: tuple[str, ...], text: str) -> None:
        said = self._of(session).said
        if key not in said:
            said.add(key)
            self._logger().warning("session %s: %s", session.id, text)

    def _of(self, session: Session) -> _Known:
        return self._known.setdefault(session, _Known())


def _model(target: LlmCallConfig) -> Model:
    return target.provider, target.model


def target_of(session: Session) -> LlmCallConfig | None:
    """The config of the last logged request; None before the first."""
    header = session.request_header
    return None if header is None else LlmCallConfig.from_json(header["config"])
