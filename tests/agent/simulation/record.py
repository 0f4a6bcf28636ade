"""What a simulated run left, to be judged afterwards."""

from typing import Literal

from dsh.llm.request import LlmRequest
from dsh.session.log import Session


class Body:
    """One run of a tool's body."""

    def __init__(self, tool: str, key: str, began_s: float, life: "Life") -> None:
        self.tool, self.key, self.began_s = tool, key, began_s
        self.ended_s: float | None = None
        self.beside = [body for body in life.bodies if body.ended_s is None]
        """What ran when it began."""
        self.cap = life.cap
        """How many might run at once when the calls of its message began."""


class Life:
    """One agent from its beginning to its end."""

    def __init__(self, name: str, way: Literal["create", "resume", "fork"] = "create") -> None:
        self.name, self.way = name, way
        self.session: Session
        self.inherited = 0
        """How many events its log held when it began."""
        self.sent: list[str] = []
        """Ids of the messages that were handed to it."""
        self.statuses: list[str] = []
        self.requests: list[LlmRequest] = []
        self.tools_changed = False
        """Tools came and went meanwhile."""
        self.bodies: list[Body] = []
        self.cap = 0
        """How many bodies of the current message may run at once."""


class Record:
    """All of it."""

    def __init__(self) -> None:
        self.lives: list[Life] = []
        self.errors: list[str] = []
        """What the loop of events was told of: exceptions nobody took."""
        self.left: list[str] = []
        """Tasks that were there when everything had been disposed of."""
        self.listeners_left = 0
