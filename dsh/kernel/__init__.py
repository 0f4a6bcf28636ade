"""The plugin kernel: contexts, fibers, effects, services, events, cancel tokens. It knows no agents."""

from dsh.kernel.cancel import Cancelled, CancelToken
from dsh.kernel.context import Context, ServiceUnavailable
from dsh.kernel.effect import Disposal, Effect
from dsh.kernel.fiber import Fiber, FiberState
from dsh.kernel.internal import (
    EVENT_DISPATCHED,
    FIBER_CONFIG,
    FIBER_CREATED,
    FIBER_STATUS,
    FIBER_UPDATE,
    SERVICE_CHANGED,
)
from dsh.kernel.key import Event, ServiceKey
from dsh.kernel.plugin import when
from dsh.kernel.schema import ValidationError, resolve_config, simplify
from dsh.kernel.scope import Scope, ScopeTarget, create_scope
from dsh.kernel.service import Service

__all__ = [
    "EVENT_DISPATCHED",
    "FIBER_CONFIG",
    "FIBER_CREATED",
    "FIBER_STATUS",
    "FIBER_UPDATE",
    "SERVICE_CHANGED",
    "CancelToken",
    "Cancelled",
    "Context",
    "Disposal",
    "Effect",
    "Event",
    "Fiber",
    "FiberState",
    "Scope",
    "ScopeTarget",
    "Service",
    "ServiceKey",
    "ServiceUnavailable",
    "ValidationError",
    "create_scope",
    "resolve_config",
    "simplify",
    "when",
]
