"""Every request is one that a provider accepts, whatever its log went through.

Each call is answered once, in order, right after its message; no message is blank. A log written by this
program is like that already, and its messages pass through as the same objects. A log that lost results (a
crash deep in its history, a foreign writer) is mended in the request only, never on disk.
"""

from collections.abc import Callable, Sequence

from dsh.agent.cleaning import cleaned, empty, result_of, says_something
from dsh.session.event import SessionEvent
from dsh.session.log import Session
from dsh.session.message import Message, ToolCallBlock, text_block, tool_result_message

NOT_STARTED = (
    "Error: this call was cut off before it was recorded as started. It has not run; make it again if it "
    "is still needed."
)
OUTCOME_UNKNOWN = (
    "Error: this call was started, but its result was never recorded, so its outcome is unknown. Check what "
    "it did before anything else; repeat it only if it reads or may safely run twice."
)

WasStarted = Callable[[str], bool]
"""Whether a call id has a `tool/call` in the log; decides what a made-up result says."""


class Transcript:
    """The messages of a session's next request. State: what of them is settled and can change no more."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._generation = session.replace_generation
        self._derived: tuple[Message, ...] = ()
        self._sent: tuple[Message, ...] = ()
        self._settled: list[Message] = []
        self._open = 0
        """How many derived messages `_settled` stands for."""

    def messages(self) -> tuple[Message, ...]:
        """What the log derives, as it goes out. Costs as much as there are new messages."""
        derived, generation = self._session.derive_messages(), self._session.replace_generation
        if generation != self._generation:
            self._generation, self._derived, self._sent = generation, (), ()
            self._settled, self._open = [], 0
        if derived is not self._derived:
            started = Started(self._session)
            boundary = settled_before(derived, self._open)
            self._settled += outgoing(derived[self._open : boundary], started)
            self._derived, self._open = derived, boundary
            self._sent = (*self._settled, *outgoing(derived[boundary:], started))
        return self._sent


class Started:
    """Which calls have a `tool/call` in a log. The log is looked through when the first is asked for."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ids: frozenset[str] | None = None

    def __call__(self, call_id: str) -> bool:
        if self._ids is None:
            self._ids = frozenset(map(_call_id, self._session.select("tool/call")))
        return call_id in self._ids


def _call_id(event: SessionEvent) -> str:
    return str(event.data["callId"])


def outgoing(messages: Sequence[Message], was_started: WasStarted) -> list[Message]:
    """The messages as they go out: answered and cleaned.

    What goes out of a history is what goes out of its parts, if it is cut where `settled_before` says.
    A blank message of the assistant is left out. One of the user is left out too where another of them or a
    result stands beside it, else it says that it is empty.
    """
    out: list[Message] = []
    blank: Message | None = None
    """A message of the user that waits for another one to stand in its place."""
    is_spoken = False
    for message in answered(messages, was_started):
        kept = cleaned(message)
        if message["role"] == "assistant":
            if kept is None:
                continue
            if blank is not None:
                out.append(empty(blank))
            blank, is_spoken = None, False
        elif message["role"] == "user":
            if kept is not None:
                blank, is_spoken = None, True
            elif blank is None and not is_spoken:
                blank = message
        if kept is not None:
            out.append(kept)
    if blank is not None:
        out.append(empty(blank))
    return out


def settled_before(messages: Sequence[Message], start: int = 0) -> int:
    """The place of the last reply that says something: how all before it goes out is settled.

    Args:
        start: where that was before; the answer where there is no later one.
    """
    for index in range(len(messages) - 1, start, -1):
        message = messages[index]
        if message["role"] == "assistant" and says_something(message["content"]):
            return index
    return start


def answered(messages: Sequence[Message], was_started: WasStarted) -> Sequence[Message]:
    """The messages with every call answered exactly once; the same ones where that holds already."""
    if sound_prefix(messages) == len(messages):
        return messages
    out: list[Message] = []
    index = 0
    while index < len(messages):
        message = messages[index]
        index += 1
        if message["role"] != "assistant":
            if result_of(message) is None:
                out.append(message)
            continue
        end = index
        while end < len(messages) and messages[end]["role"] != "assistant":
            end += 1
        out.append(message)
        out.extend(_answers(message, messages[index:end], was_started))
    return tuple(out)


def sound_prefix(messages: Sequence[Message]) -> int:
    """How many messages from the beginning hold the rule, all calls among them answered."""
    sound = 0
    owed: list[str] = []
    for index, message in enumerate(messages):
        if owed:
            if result_of(message) != owed.pop(0):
                return sound
        elif message["role"] == "assistant":
            owed = [call["id"] for call in _calls_of(message)]
        elif result_of(message) is not None:
            return sound
        if not owed:
            sound = index + 1
    return sound


def _answers(message: Message, following: Sequence[Message], was_started: WasStarted) -> list[Message]:
    results = [m for m in following if result_of(m) is not None]
    answers: list[Message] = []
    for call in _calls_of(message):
        match = next((r for r in results if result_of(r) == call["id"]), None)
        if match is not None:
            results.remove(match)
            answers.append(match)
            continue
        text = OUTCOME_UNKNOWN if was_started(call["id"]) else NOT_STARTED
        made_up = f"missing-tool-result-{call['id']}-{message['id']}"
        answers.append(tool_result_message(call["id"], [text_block(text)], is_error=True, message_id=made_up))
    return answers


def _calls_of(message: Message) -> list[ToolCallBlock]:
    return [block for block in message["content"] if block["type"] == "tool-call"]
