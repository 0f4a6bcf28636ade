"""Turns, steps, tool calls and compactions: which event may follow which (`spec/session-log.md` §10).

`check` looks at a candidate and changes nothing; `advance` is called once the event is in the log. A live
append that does not fit is refused. In a restored log it is noted and let stand: other writers do not check,
so a strict reader would lock people out of logs that are complete in every other way.
"""

from collections.abc import Iterator
from typing import Any

from dsh.session.compaction import Bracket, bracket_of, check_checkpoint, check_compaction
from dsh.session.error import InvalidEvent
from dsh.session.event import Surface
from dsh.session.value import safe_int

_IN_STEP = frozenset({"step/end", "assistant/chunk", "assistant/message", "tool/call"})
_REPAIRED = frozenset({"TOOL_NOT_STARTED", "TOOL_OUTCOME_UNKNOWN"})
"""Codes of results that repair makes up, also for calls that the last step closed over."""
_IN_TURN = frozenset({"todo/write", "request/header", "request/context"})
_COMPACTION = frozenset({"compaction/start", "compaction/summary", "compaction/end"})


class Relations:
    """Where the log stands: the open turn, step and compaction, and the calls that wait for a result."""

    __slots__ = ("compaction", "last_step", "last_turn", "open_step", "open_turn", "owed", "pending")

    def __init__(self) -> None:
        self.last_turn = 0
        """Number of the last turn started; 0 before the first."""
        self.open_turn: int | None = None
        self.open_step: int | None = None
        self.last_step = 0
        """Number of the last step started in the open turn."""
        self.pending: list[str] = []
        """Ids of the step's calls without a result; a provider may give one id twice."""
        self.owed: list[str] = []
        """Ids that the model asked for in the last step without a result yet; kept until another begins."""
        self.compaction: Bracket | None = None
        """The compaction that is under way."""

    def copy(self) -> "Relations":
        """An independent state with the same contents."""
        made = Relations()
        for name in self.__slots__:
            setattr(made, name, getattr(self, name))
        made.pending, made.owed = list(self.pending), list(self.owed)
        return made

    def check(self, kind: str, data: Any, surface: Surface | None) -> None:
        """Refuse a candidate that does not fit here. Its payload has the shape of its type.

        Raises:
            InvalidEvent: the message says what is open and what the candidate names.
        """
        if kind in _IN_STEP:
            self.check_step(kind, _number(data, "turn"), _number(data, "step"))
        elif kind == "turn/start":
            self._check_turn_start(_number(data, "turn"))
        elif kind == "turn/end":
            if self.open_turn is None or _number(data, "turn") != self.open_turn:
                raise InvalidEvent(f"turn/end names turn {_shown(data, 'turn')}, open is {self.open_turn}")
            if self.open_step is not None:
                raise InvalidEvent(f"turn/end while step {self.open_step} of turn {self.open_turn} is open")
        elif kind == "step/start":
            self._check_step_start(data)
        elif kind == "tool/result":
            self._check_result(data, surface)
        elif kind == "user/message":
            check_checkpoint(data, self.compaction)
        elif kind in _COMPACTION:
            check_compaction(kind, data, self.compaction, self.open_turn)
        elif kind in _IN_TURN and self.open_turn is None:
            raise InvalidEvent(f"{kind} needs an open turn")

    def check_step(self, kind: str, turn: int | None, step: int | None) -> None:
        """Refuse an event that does not name the open turn and step."""
        if self.open_step is None or turn != self.open_turn or step != self.open_step:
            raise InvalidEvent(
                f"{kind} names turn {turn} step {step}, open is turn {self.open_turn} step {self.open_step}"
            )

    def _check_turn_start(self, turn: int | None) -> None:
        if self.open_turn is not None:
            raise InvalidEvent(f"turn/start while turn {self.open_turn} is open")
        if turn != self.last_turn + 1:
            raise InvalidEvent(f"turn/start: turn {self.last_turn + 1} comes next, found {turn}")

    def _check_step_start(self, data: Any) -> None:
        if self.open_turn is None or _number(data, "turn") != self.open_turn:
            raise InvalidEvent(f"step/start names turn {_shown(data, 'turn')}, open is {self.open_turn}")
        if self.open_step is not None:
            raise InvalidEvent(f"step/start while step {self.open_step} of turn {self.open_turn} is open")
        if _number(data, "step") != self.last_step + 1:
            raise InvalidEvent(
                f"step/start: step {self.last_step + 1} comes next, found {_shown(data, 'step')}"
            )

    def _check_result(self, data: Any, surface: Surface | None) -> None:
        if surface != "append":
            if self.open_turn is None:
                raise InvalidEvent("a tool/result replacement needs an open turn")
            return
        call_id = data["message"]["source"]["callId"]
        error = data.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        if code in _REPAIRED and self._is_left(data, call_id):
            return
        self.check_step("tool/result", _number(data, "turn"), _number(data, "step"))
        if call_id not in self.pending and code != "TOOL_NOT_STARTED":
            raise InvalidEvent(f"tool/result: no tool/call of this step waits for {call_id!r}")

    def _is_left(self, data: Any, call_id: str) -> bool:
        """Whether the last step of the open turn, named by `data`, has closed over this call."""
        return (
            self.open_step is None
            and self.open_turn is not None
            and _number(data, "turn") == self.open_turn
            and _number(data, "step") == self.last_step
            and call_id in self.owed
        )

    def advance(self, kind: str, data: Any) -> None:
        """Take a committed event into account."""
        match kind:
            case "turn/start":
                self.open_turn = _number(data, "turn")
                self.last_turn = self.open_turn or self.last_turn
                self.open_step, self.last_step = None, 0
                self._forget_calls()
                self.compaction = None
            case "turn/end":
                self.open_turn = self.open_step = None
                self._forget_calls()
                self.compaction = None
            case "step/start":
                self.open_step = _number(data, "step")
                self.last_step = self.open_step or self.last_step
                self._forget_calls()
            case "step/end":
                self.open_step = None
                self.pending.clear()
            case "tool/call":
                call_id = data.get("callId") if isinstance(data, dict) else None
                if type(call_id) is str:
                    self.pending.append(call_id)
            case "tool/result":
                answered = data["message"]["source"]["callId"]
                for waiting in (self.pending, self.owed):
                    if answered in waiting:
                        waiting.remove(answered)
            case "assistant/message":
                self.owed.extend(calls_in(data["message"]))
            case "compaction/start":
                self.compaction = bracket_of(data)
            case "compaction/end" | "session/end-seed":
                self.compaction = None

    def _forget_calls(self) -> None:
        self.pending.clear()
        self.owed.clear()


def calls_in(message: object) -> Iterator[str]:
    """The ids of the tool calls in a message, which need not have been validated."""
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list | tuple) else ():
        if isinstance(block, dict) and block.get("type") == "tool-call" and type(block.get("id")) is str:
            yield block["id"]


def _number(data: Any, key: str) -> int | None:
    return safe_int(data.get(key)) if isinstance(data, dict) else None


def _shown(data: Any, key: str) -> str:
    return f"{data.get(key) if isinstance(data, dict) else None!r}"[:60]
