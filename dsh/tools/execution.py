"""One call on its way through the pipeline: what came in, what the body may do, what came out."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from dsh.capabilities.agent import AgentRef
from dsh.kernel import CancelToken
from dsh.session.log import Session
from dsh.session.message import Message, text_block
from dsh.tools.content import contexts_of
from dsh.tools.running import Running
from dsh.unicode import valid


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a caller asks the registry to run."""

    call_id: str
    """The model's id of the call. Ids may repeat; nothing here tells calls apart by them."""
    name: str
    arguments: Any
    """Parsed JSON (`dsh.tools.arguments.parse_arguments`), or the raw text where it is no JSON."""
    arguments_problem: str = ""
    """Why `arguments` is raw text: what the parser found, and where."""
    agent: AgentRef | None = None
    signal: CancelToken = msgspec.field(default_factory=CancelToken)
    root_call_id: str | None = None
    """The outermost call this one serves; its own id when absent."""
    parent: object | None = None
    """The `token` of the call that made this one, for calls made by a tool."""
    give_up: Callable[["asyncio.Task[Any]", str], None] | None = None
    """Takes over the call's task when it is waited for no longer, and its name: `tool bash`."""

    @property
    def session(self) -> Session | None:
        """The session of the calling agent."""
        return self.agent.session if self.agent is not None else None

    @property
    def cwd(self) -> str | None:
        """The working directory of that session, where it has one."""
        return self.session.header.cwd if self.session is not None else None


class ToolExecution:
    """A call as policies and the tool's body see it. Everything but `signal` is read-only.

    A wrapper of `tools/execute` may replace `signal` for the time of its `next()` and must put the old
    one back; the caller's own signal stays in force whatever it does.
    """

    __slots__ = ("_call", "_concluded", "_deferred", "arguments", "body", "root_call_id", "signal", "token")

    def __init__(self, call: ToolCall, arguments: Any) -> None:
        self._call = call
        self._deferred: list[Message] = []
        self._concluded = False
        self.arguments = arguments
        """Deeply immutable JSON."""
        self.body: Running | None = None
        """The tool's own code, once it has begun."""
        self.root_call_id = call.root_call_id or call.call_id
        self.signal = call.signal
        self.token: object = object()
        """Identity of this execution: the `parent` of calls made by its body."""

    def __repr__(self) -> str:
        return f"<ToolExecution {self.name} {self.call_id}>"

    @property
    def name(self) -> str:
        return self._call.name

    @property
    def call_id(self) -> str:
        return self._call.call_id

    @property
    def arguments_problem(self) -> str:
        return self._call.arguments_problem

    @property
    def agent(self) -> AgentRef | None:
        return self._call.agent

    @property
    def session(self) -> Session | None:
        """The session of the calling agent."""
        return self._call.session

    @property
    def cwd(self) -> str | None:
        """The working directory of that session, where it has one."""
        return self._call.cwd

    @property
    def parent(self) -> object | None:
        return self._call.parent

    def defer_context(self, message: Message) -> None:
        """Give the model this user message at its next step, after all results of this one.

        Raises:
            ToolOutputError: it is no user message.
        """
        self._deferred.extend(contexts_of([message]))

    def conclude_turn(self) -> None:
        """End the turn after this step, if the call succeeds."""
        self._concluded = True

    def give_up(self, task: "asyncio.Task[Any]", who: str) -> None:
        """Nobody waits any more for the task that the call runs in: it ends with caller, tool or program."""
        if self._call.give_up is not None:
            self._call.give_up(task, who)
        if self.body is not None:
            self.body.leave(task)

    @property
    def deferred(self) -> tuple[Message, ...]:
        return tuple(self._deferred)

    @property
    def concludes_turn(self) -> bool:
        return self._concluded


class ToolSuccess(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The tool did it. `value` never reaches the log."""

    is_error: ClassVar[bool] = False
    value: Any
    content: tuple[Mapping[str, Any], ...]
    meta: Any = msgspec.UNSET
    additional_contexts: tuple[Message, ...] = ()
    """User messages for the agent's `next-step` inbox, in order."""
    concludes_turn: bool = False


class ToolFailure(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The call failed, was denied, blocked, cancelled or timed out."""

    is_error: ClassVar[bool] = True
    concludes_turn: ClassVar[bool] = False
    message: str
    content: tuple[Mapping[str, Any], ...]
    name: str | None = None
    code: str | None = None
    meta: Any = msgspec.UNSET
    additional_contexts: tuple[Message, ...] = ()

    @property
    def info(self) -> Mapping[str, str] | None:
        """`{name, code}` for `tool/result.error`; None for failures without a code."""
        return {"name": self.name or "", "code": self.code} if self.code else None

    @classmethod
    def of(cls, message: str, *, name: str | None = None, code: str | None = None) -> "ToolFailure":
        """A failure whose content is `Error: <message>`."""
        return cls(message=message, content=(text_block(valid(f"Error: {message}")),), name=name, code=code)


ToolResult = ToolSuccess | ToolFailure
