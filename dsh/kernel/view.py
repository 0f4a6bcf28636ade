"""A service as one context sees it: the same object, with that context as its `ctx`.

Inside a method called through a view, `self` is the view: `self.__class__` is the service's class, and
`type(self)` is not.
"""

import types
from typing import Any


class Bindable:
    """Marks the classes whose instances are seen through a view (`dsh.kernel.service.Service`)."""

    def context_for(self, caller: Any) -> Any:
        """What `self.ctx` is inside a call that `caller` makes."""
        return caller


class _View:
    """A service as one context sees it: the same object, with another `ctx`."""

    __slots__ = ("_caller", "_ctx", "_extra", "_service")

    def __init__(self, service: Bindable, caller: Any, extra: dict[str, Any] | None = None) -> None:
        put = object.__setattr__
        put(self, "_service", service)
        put(self, "_caller", caller)
        put(self, "_ctx", None)
        put(self, "_extra", extra)

    @property
    def ctx(self) -> Any:
        if self._ctx is None:
            object.__setattr__(self, "_ctx", self._service.context_for(self._caller))
        return self._ctx

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._service)

    def __getattr__(self, name: str) -> Any:
        if self._extra is not None and name in self._extra:
            return self._extra[name]
        service = self._service
        for base in type(service).__mro__:
            if name in base.__dict__:
                found = base.__dict__[name]
                if isinstance(found, types.FunctionType):
                    return types.MethodType(found, self)
                if isinstance(found, property) and found.fget is not None:
                    return found.fget(self)
                break
        return getattr(service, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._service, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kind = type(self._service)
        if not callable(self._service):
            raise TypeError(f"{kind.__name__} is not callable")
        return kind.__call__(self, *args, **kwargs)

    def __repr__(self) -> str:
        return f"{self._service!r} as seen by {self._caller!r}"

    def __eq__(self, other: object) -> bool:
        return self._service is unbound(other)

    def __hash__(self) -> int:
        return hash(self._service)


def bound(value: Any, ctx: Any) -> Any:
    """The value as `ctx` sees it."""
    return _View(value, ctx) if type(value) is not _View and isinstance(value, Bindable) else value


def unbound(value: Any) -> Any:
    """The service behind a view; anything else is returned as it is."""
    return object.__getattribute__(value, "_service") if type(value) is _View else value


def extended(value: Any, extra: dict[str, Any]) -> Any:
    """A view in which some attributes have other values; the service itself keeps its own.

    `value` is a service or a view of one; of a view, the caller and earlier values stay.
    """
    if type(value) is _View:
        return _View(value._service, value._caller, {**(value._extra or {}), **extra})
    return _View(value, value.ctx, extra)
