"""What tools, files and approvals know of an agent: enough to say whose call this is, and no more."""

from typing import Protocol

from dsh.kernel import Context
from dsh.session.log import Session
from dsh.session.message import Message


class AgentRef(Protocol):
    """A live agent as the layers below the loop see it. The object itself is the key of its scope."""

    @property
    def id(self) -> str: ...

    @property
    def session(self) -> Session: ...

    @property
    def ctx(self) -> Context:
        """The agent's own context: what is registered through it ends with the agent."""


class TellableAgent(AgentRef, Protocol):
    """An agent that can be told something for whenever its next step comes."""

    def inject(self, message: Message) -> None: ...
