"""What is waiting for an agent: two lists that are nothing but the fold of their durable splices.

`next-turn` holds prompts, one of which is consumed per turn; `next-step` holds steering and injected
context, all of which is consumed at the next step boundary (`spec/agent-loop.md` §3).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from dsh.agent.contract import InboxTarget
from dsh.session.inbox_fold import INBOX_SPLICED, fold_inbox, unentered
from dsh.session.log import Session
from dsh.session.message import Message

_TARGETS: tuple[InboxTarget, ...] = ("next-turn", "next-step")


class Inbox:
    """The two lists of one agent. Every change is validated, logged, applied and told, in this order."""

    def __init__(
        self,
        session: Session,
        *,
        inserted: Callable[[Message], None],
        discarded: Callable[[Message], None],
        claimed: Callable[[Message, int], None],
    ) -> None:
        """Fold what is pending from the session's log; an inherited seed counts for nothing.

        Raises:
            InvalidEvent: a stored splice does not fit; the message names its seq.
        """
        self._session = session
        self._inserted, self._discarded, self._claimed = inserted, discarded, claimed
        self._lists = fold_inbox(session)
        self._out: dict[str, tuple[InboxTarget, Message]] = {}
        """Claimed for a step that has not taken them in yet: by id, where they came from, in order."""

    @property
    def next_turn(self) -> tuple[Message, ...]:
        return tuple(self._lists.next_turn)

    @property
    def next_step(self) -> tuple[Message, ...]:
        return tuple(self._lists.next_step)

    @property
    def has_pending(self) -> bool:
        return bool(self._lists.next_turn or self._lists.next_step)

    def append(self, target: InboxTarget, message: Message) -> None:
        self.splice(target, math.inf, 0, (message,))

    def prepend(self, target: InboxTarget, message: Message) -> None:
        self.splice(target, 0, 0, (message,))

    def replace(self, message_id: str, message: Message) -> bool:
        """Put `message` in the place of another one; False when no message has that id."""
        place = self._find(message_id)
        if place is None:
            return False
        self.splice(*place, 1, (message,))
        return True

    def remove(self, message_id: str) -> bool:
        """Drop one message; False when no message has that id."""
        place = self._find(message_id)
        if place is None:
            return False
        self.splice(*place, 1)
        return True

    def clear(self) -> None:
        """Drop everything: first what waits for a step, then the prompts."""
        self.splice("next-step", 0, math.inf)
        self.splice("next-turn", 0, math.inf)

    def splice(
        self, target: InboxTarget, start: float, delete: float, inserted: Sequence[Message] = ()
    ) -> tuple[Message, ...]:
        """Remove `delete` messages from `start` on and insert others there; answers what was removed.

        Coordinates are read generously: a negative start counts from the end, fractions are cut off,
        not-a-number is 0, everything is clamped to the list. A change of nothing is not logged.

        Raises:
            InvalidEvent: a message id would be pending twice; nothing has changed then.
        """
        return self._change(target, start, delete, inserted, "canceled")

    # -- for the loop ----------------------------------------------------------------------------

    def claim(self, target: InboxTarget, turn: int) -> tuple[Message, ...]:
        """Take what enters the next step of `turn`: all of `next-step`, then perhaps one prompt."""
        self._out = {}
        parts: tuple[tuple[InboxTarget, float], ...] = (("next-step", math.inf), ("next-turn", 1))
        for source, count in parts if target == "next-turn" else parts[:1]:
            self._out |= {m["id"]: (source, m) for m in self._change(source, 0, count, (), None)}
        claimed = tuple(message for _, message in self._out.values())
        for message in claimed:
            self._claimed(message, turn)
        return claimed

    def decided(self, messages: Sequence[Message]) -> None:
        """Exactly these enter the step: what was claimed beside them is gone, by somebody's decision."""
        kept = {message["id"] for message in messages}
        self._out = {message_id: out for message_id, out in self._out.items() if message_id in kept}

    def entered(self, message: Message) -> None:
        """A message is in the log as `user/message`: it cannot be put back any more."""
        self._out.pop(message["id"], None)

    def put_back(self) -> frozenset[str]:
        """What was claimed and has not entered waits again, in its old place; answers the ids.

        Raises:
            SessionError: the log refuses a row; what was not put back then is gone.
        """
        out, self._out = self._out, {}
        return self._return(list(out.values()))

    def recover(self) -> frozenset[str]:
        """The same for a log that was cut between claim and entry; for a session that is resumed."""
        return self._return(unentered(self._session))

    def _return(self, out: Sequence[tuple[InboxTarget, Message]]) -> frozenset[str]:
        for target in _TARGETS:
            self.splice(target, 0, 0, [message for source, message in out if source == target])
        return frozenset(message["id"] for _, message in out)

    def _find(self, message_id: str) -> tuple[InboxTarget, int] | None:
        for target in _TARGETS:
            for index, message in enumerate(self._lists.list_of(target)):
                if message["id"] == message_id:
                    return target, index
        return None

    def _change(
        self,
        target: InboxTarget,
        start: float,
        delete: float,
        inserted: Sequence[Message],
        outcome: Literal["canceled"] | None,
    ) -> tuple[Message, ...]:
        now = self._lists.list_of(target)
        first = _index(start, len(now))
        count = int(min(max(_whole(delete), 0), len(now) - first))
        if not count and not inserted:
            return ()
        removed = tuple(now[first : first + count])
        data: dict[str, Any] = {"target": target, "start": first}
        if count:
            data["removedCount"] = count
        data["inserted"] = list(inserted)
        if count and outcome:
            data["outcome"] = outcome
        self._lists.check(data)
        logged = self._session.append(INBOX_SPLICED, data).data
        self._lists.apply(logged)
        if outcome:
            for message in removed:
                self._discarded(message)
        for message in logged["inserted"]:
            self._inserted(message)
        return removed


def _whole(number: float) -> float:
    if math.isnan(number):
        return 0
    return number if math.isinf(number) else math.trunc(number)


def _index(start: float, length: int) -> int:
    whole = _whole(start)
    return int(max(length + whole, 0) if whole < 0 else min(whole, length))
