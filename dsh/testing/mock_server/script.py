"""What a mock server plays and when: its script, the scripts of single sessions, and seeded chance."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from dsh.testing.mock_server.behaviour import ALL_BEHAVIOURS, RANDOM_WEIGHTS, behaviours
from dsh.testing.mock_server.dialect.base import Dialect, failed
from dsh.testing.mock_server.plan import MockOptions, Plan
from dsh.testing.mock_server.reply import check_reply, scripted

Entry: TypeAlias = str | Mapping[str, Any] | Callable[[Any], Mapping[str, Any]]
"""A behaviour's name, a free-form reply, or what makes one of a request's decoded body."""
MAX_SEED = 2**32 - 1


class Script:
    """Entries in order, one for each accepted request; holds how far each session has come.

    Raises:
        ValueError: an entry, the weights or the seed cannot be.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        sessions: Mapping[str, Sequence[Entry]],
        *,
        repeat_last: bool,
        seed: int,
        weights: Mapping[str, float] | None,
    ) -> None:
        for entry in (*entries, *(e for own in sessions.values() for e in own)):
            _check_entry(entry)
        self._weights = dict(RANDOM_WEIGHTS if weights is None else weights)
        _check_weights(self._weights)
        if not 0 <= seed <= MAX_SEED:
            raise ValueError(f"the seed of random is 0 to {MAX_SEED}, found {seed}")
        self._scripts = {"": tuple(entries), **{k: tuple(v) for k, v in sessions.items()}}
        self._cursors: dict[str, int] = {}
        self._repeat_last = repeat_last
        self._random = random.Random(seed)

    def next(self, session: str) -> Entry | None:
        """The entry for the next request of a session; None where the script is used up."""
        key = session if session in self._scripts else ""
        script, at = self._scripts[key], self._cursors.get(key, 0)
        self._cursors[key] = at + 1
        if at >= len(script) and self._repeat_last and script:
            at = len(script) - 1
        return script[at] if at < len(script) else None

    def plan(
        self, entry: Entry | None, dialect: Dialect, options: MockOptions, body: Any
    ) -> tuple[str, Plan]:
        """What is played for an entry, and its name."""
        if entry is None:
            message = "the script of the mock server is used up"
            return "exhausted", failed(dialect, 500, message, "MOCK_SCRIPT_EXHAUSTED")
        if not isinstance(entry, str):
            try:
                return "scripted", scripted(entry(body) if callable(entry) else entry, dialect)
            except Exception as error:  # of the test's own function, or of what it answers
                message = f"{type(error).__name__}: {error}"
                return "scripted", failed(dialect, 500, message, "MOCK_ENTRY_FAILED")
        name = entry
        if entry == "random":
            name = self._random.choices(list(self._weights), list(self._weights.values()))[0]
        behaviour = behaviours(dialect.name).get(name)
        if behaviour is None:
            message = f"the {dialect.name} dialect has no behaviour {name}"
            return name, failed(dialect, 500, message, "MOCK_NO_SUCH_BEHAVIOUR")
        return name, behaviour(dialect, options)


def _check_entry(entry: object) -> None:
    if isinstance(entry, Mapping):
        check_reply(entry)
    elif callable(entry):
        return
    elif entry != "random" and entry not in ALL_BEHAVIOURS:
        raise ValueError(f"unknown behaviour {entry!r}; known: random, {', '.join(ALL_BEHAVIOURS)}")


def _check_weights(weights: Mapping[str, object]) -> None:
    if unknown := set(weights) - set(ALL_BEHAVIOURS):
        known = ", ".join(ALL_BEHAVIOURS)
        raise ValueError(f"weights for unknown behaviours {sorted(unknown)}; known: {known}")
    sound = all(isinstance(weight, int | float) and 0 <= weight < math.inf for weight in weights.values())
    if not sound or not any(weights.values()):
        raise ValueError(f"random weights are numbers from 0, one of them above it; found {weights}")
