"""The events of the kernel itself: what it says of fibers, services and listeners while it works.

All names begin with `internal/`. Observers of an `emit` are contained: one that raises is logged. The one
exception is the birth of a fiber, which an observer may refuse by raising.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from dsh.kernel.key import Event, Mode

if TYPE_CHECKING:
    from dsh.kernel.context import Context
    from dsh.kernel.event import Subject
    from dsh.kernel.fiber import Fiber, FiberState


class StatusChange(NamedTuple):
    """Payload of `internal/status`."""

    fiber: "Fiber"
    old_state: "FiberState"


class ConfigRequest(NamedTuple):
    """Payload of `internal/config`: listeners may replace the raw config before it is validated."""

    fiber: "Fiber"
    raw: Any


class UpdateRequest(NamedTuple):
    """Payload of `internal/update`: a fiber is given another config."""

    fiber: "Fiber"
    raw: Any
    """As it was given: expressions in it are not evaluated."""
    config: Any
    """As the plugin would receive it: evaluated and validated. None for a fiber that is not active, whose
    config is judged when it loads."""
    no_save: bool
    """The change is not to be written back to a file."""


class ServiceChange(NamedTuple):
    """Payload of `internal/service`: there is a service under this name now, another value, or none."""

    name: str
    value: Any
    """The service as its provider sees it, None where it went. Read it through your own context to use it."""


class ReadRequest(NamedTuple):
    """Payload of `internal/get`: an attribute or `use` reads this service through this context."""

    ctx: "Context"
    name: str


class WriteRequest(NamedTuple):
    """Payload of `internal/set`: `ctx.<name> = value` for a declared service."""

    ctx: "Context"
    name: str
    value: Any


class ListenerRequest(NamedTuple):
    """Payload of `internal/listener`: who answers with a disposer has registered the listener its own way."""

    ctx: "Context"
    name: str
    listener: Callable[..., Any]
    prepend: bool
    is_global: bool


class Dispatch(NamedTuple):
    """Payload of `internal/dispatch`: an event that is not the kernel's own goes out, in this mode."""

    mode: Mode
    name: str
    payload: Any
    subject: "Subject | None"


FIBER_CREATED: Event["Fiber", None] = Event("internal/plugin", "emit")
"""A fiber was made and is pending: observers may add to its `inject`, own effects in it, raise to refuse it.

The same event tells its end: `uid` is None then, and what observers raise is only logged.
"""
FIBER_STATUS: Event[StatusChange, None] = Event("internal/status", "emit", contained=True)
"""The state of a fiber changed."""
FIBER_CONFIG: Event[ConfigRequest, Any] = Event("internal/config", "waterfall")
"""A fiber is about to load, or to be updated: the chain answers with the config to validate."""
FIBER_UPDATE: Event[UpdateRequest, Any] = Event("internal/update", "waterfall")
"""A fiber gets another config; the built-in end of the chain restarts one that runs.

A listener hears the updates of its own fiber only, unless it is `global_`. One that does not call `next`
has applied the config in place. The order: prepended global ones, the fiber's own, other global ones.
"""
SERVICE_CHANGED: Event[ServiceChange, None] = Event("internal/service", "emit", contained=True)
"""A service came, went or got another value; heard where the name has the same address (realm)."""
SERVICE_READ: Event[ReadRequest, Any] = Event("internal/get", "waterfall")
"""Somebody reads a service as an attribute; the chain answers with its value or raises."""
SERVICE_WRITTEN: Event[WriteRequest, None] = Event("internal/set", "waterfall")
"""Somebody assigns to a service as an attribute; the built-in end of the chain sets it."""
LISTENER_ADDED: Event[ListenerRequest, Any] = Event("internal/listener", "bail")
"""A listener is about to be registered; a disposer as the answer takes the place of the registration."""
EVENT_DISPATCHED: Event[Dispatch, None] = Event("internal/dispatch", "emit", contained=True)
"""Any event outside `internal/` is about to be dispatched."""
