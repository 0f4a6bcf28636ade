"""Every request is one that a provider accepts: each call answered once, in order, right after its message.

A log written by this program is like that already and passes through as the same tuple. A log that lost
results (a crash deep in its history, a foreign writer) is mended in the request only, never on disk.
"""

from collections.abc import Callable, Sequence

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


class Transcript:
    """The messages of a session's next request. Remembers how far they were found in order."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._generation = session.replace_generation
        self._sound = 0

    def messages(self) -> tuple[Message, ...]:
        """What the log derives, mended where a call has no result of its own."""
        session = self._session
        derived = session.derive_messages()
        if session.replace_generation != self._generation:
            self._generation, self._sound = session.replace_generation, 0
        self._sound = sound_prefix(derived, self._sound)
        if self._sound == len(derived):
            return derived
        return answered(derived, self._started().__contains__)

    def _started(self) -> frozenset[str]:
        return frozenset(event.data["callId"] for event in self._session.select("tool/call"))


def answered(messages: tuple[Message, ...], was_started: Callable[[str], bool]) -> tuple[Message, ...]:
    """The messages with every call answered exactly once; the same tuple where that holds already.

    Args:
        was_started: whether a call id has a `tool/call` in the log; decides what a made-up result says.
    """
    if sound_prefix(messages) == len(messages):
        return messages
    out: list[Message] = []
    index = 0
    while index < len(messages):
        message = messages[index]
        index += 1
        if message["role"] != "assistant":
            if _result_in(message) is None:
                out.append(message)
            continue
        end = index
        while end < len(messages) and messages[end]["role"] != "assistant":
            end += 1
        out.append(message)
        out.extend(_answers(message, messages[index:end], was_started))
    return tuple(out)


def sound_prefix(messages: Sequence[Message], start: int = 0) -> int:
    """How many messages from the beginning hold the rule, all calls among them answered.

    Args:
        start: a length for which that is known.
    """
    sound = start
    owed: list[str] = []
    for index in range(start, len(messages)):
        message = messages[index]
        if owed:
            if _result_in(message) != owed.pop(0):
                return sound
        elif message["role"] == "assistant":
            owed = [call["id"] for call in _calls_of(message)]
        elif _result_in(message) is not None:
            return sound
        if not owed:
            sound = index + 1
    return sound


def _answers(
    message: Message, following: Sequence[Message], was_started: Callable[[str], bool]
) -> list[Message]:
    results = [m for m in following if _result_in(m) is not None]
    answers: list[Message] = []
    for call in _calls_of(message):
        match = next((r for r in results if _result_in(r) == call["id"]), None)
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


def _result_in(message: Message) -> str | None:
    if message["source"].get("kind") != "tool":
        return None
    for block in message["content"]:
        if block["type"] == "tool-result":
            return block["toolCallId"]
    return None
