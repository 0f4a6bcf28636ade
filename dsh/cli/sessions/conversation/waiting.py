"""What waits for the agent: messages that came into no step are told as well, or a task could be missing."""

from dsh.cli.sessions.conversation.foreign import text_at
from dsh.session.error import InvalidEvent
from dsh.session.inbox_fold import InboxLists
from dsh.session.message import Message
from dsh.session.value import JsonObject


class Waiting:
    """State: the inbox as the splices leave it, and what was claimed and has not entered a step."""

    def __init__(self) -> None:
        self._lists = InboxLists()
        self._claimed: dict[str, Message] = {}

    def splice(self, data: JsonObject) -> list[Message]:
        """Carry out a splice; what it drops. One that does not fit is passed over."""
        try:
            target, start, removed = self._lists.check(data)
            going = target[start : start + removed]
            self._lists.apply(data)
        except InvalidEvent:
            return []
        for message in data["inserted"]:
            self._claimed.pop(message["id"], None)
        if text_at(data, "outcome") == "canceled":
            return going
        self._claimed.update((message["id"], message) for message in going)
        return []

    def enter(self, message_id: str) -> None:
        """The message is in a step."""
        self._claimed.pop(message_id, None)

    def left_out(self) -> list[Message]:
        """What the turn that ends had claimed, and neither took in nor put back."""
        claimed = list(self._claimed.values())
        self._claimed.clear()
        return claimed

    def still(self) -> list[Message]:
        """What waits at the end of the log, in the order in which it would be taken in."""
        return [*self._lists.next_step, *self._lists.next_turn]
