"""Which agent's driver is running the present code: an ambient value, for attribution and nothing else.

It says who caused a piece of work. It grants nothing, and the agent it names may be gone. Tasks inherit
it; what is shared between agents (timers, pools, watchers) is to be started inside `without_initiator`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from dsh.agent.contract import Agent
from dsh.errors import KernelError

T = TypeVar("T")

_initiator: ContextVar[Agent | None] = ContextVar("dsh_initiator", default=None)


def current_initiator() -> Agent | None:
    """The agent whose driver chain runs this code, if one does."""
    return _initiator.get()


def require_initiator() -> Agent:
    """The same where there has to be one.

    Raises:
        KernelError: no agent is running this code.
    """
    agent = _initiator.get()
    if agent is None:
        raise KernelError("no agent is running here, but this call is made on behalf of one")
    return agent


@contextmanager
def initiating(agent: Agent | None) -> Iterator[None]:
    """Inside the block, and in every task that is started in it, `agent` is the initiator."""
    token = _initiator.set(agent)
    try:
        yield
    finally:
        _initiator.reset(token)


def with_initiator(agent: Agent, operation: Callable[[], T]) -> T:
    """Call `operation` on behalf of `agent`. Wrap a coroutine in a task to keep the value over awaits."""
    with initiating(agent):
        return operation()


def without_initiator(operation: Callable[[], T]) -> T:
    """Call `operation` on behalf of nobody."""
    with initiating(None):
        return operation()
