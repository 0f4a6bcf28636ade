"""A service as one context sees it: the same object, with that context as its `ctx`."""

import types
from typing import Any


class Bindable:
    """Marks the classes whose instances are seen through a view (`dsh.kernel.service.Service`)."""


class _View:
    """A service as one context sees it: the same object, with another `ctx`."""

    __slots__ = ("_service", "ctx")

    def __init__(self, service: Bindable, ctx: Any) -> None:
        object.__setattr__(self, "_service", service)
        object.__setattr__(self, "ctx", ctx)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._service)

    def __getattr__(self, name: str) -> Any:
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
        return type(self._service).__call__(self, *args, **kwargs)

    def __repr__(self) -> str:
        return f"{self._service!r} as seen by {self.ctx!r}"

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
