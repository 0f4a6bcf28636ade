"""Regular expressions of scripts: one that is wrong is named, a search that never ends is stopped."""

import re
import signal
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

SEARCH_S = 1.0
"""So much computing time a search may take. Thousands of characters take far less, unless the pattern tries
every way to divide them."""
_JS_GROUP = re.compile(r"\(\?<(?=[A-Za-z_])")
"""A named group as JavaScript writes it, for recordings of the original."""


class PatternError(ValueError):
    """A pattern is no regular expression, or a search for it does not end. The message names it."""


class _Overtime(Exception):
    """A search is at it for too long."""


def compiled(pattern: str) -> re.Pattern[str]:
    """Read a pattern.

    Raises:
        PatternError: it is none.
    """
    try:
        return re.compile(_JS_GROUP.sub("(?P<", pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"{pattern!r:.200} is no regular expression: {error}") from None


def is_found(pattern: str, text: str) -> bool:
    """Whether it matches anywhere. Raises `PatternError`."""
    expression = compiled(pattern)
    return _bounded(pattern, lambda: expression.search(text)) is not None


def last_match(pattern: str, text: str) -> str | None:
    """Group 1 of the last match, the whole match where it has none. Raises `PatternError`."""
    expression = compiled(pattern)
    matches = _bounded(pattern, lambda: deque(expression.finditer(text), maxlen=1))
    if not matches:
        return None
    last = matches[0]
    group = last[1] if expression.groups else None
    return str(last[0] if group is None else group)


def _bounded(pattern: str, search: Callable[[], T]) -> T:
    """The search, ended by a signal of the process's own clock: nothing else gets at it. Signals come to the
    main thread only, so in another one it is not bounded."""
    if threading.current_thread() is not threading.main_thread():
        return search()
    before = signal.signal(signal.SIGVTALRM, _stop)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, SEARCH_S)
        try:
            return search()
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _Overtime:
        raise PatternError(f"the search for {pattern!r:.200} does not end in {SEARCH_S:g} s") from None
    finally:
        signal.signal(signal.SIGVTALRM, before)


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise _Overtime
