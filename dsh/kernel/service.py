"""Services as classes: provided by constructing them, bound to whoever reads them.

Reading a `Service` through a context gives a view whose `self.ctx` belongs to the reader, so that what
a method registers belongs to the caller and goes with it, while services that it reads through `self.ctx`
are those of the provider; `self.owner_ctx` is the provider's own context (`spec/kernel.md` §7).
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from dsh.kernel.context import Context
from dsh.kernel.event import Place
from dsh.kernel.key import ServiceKey
from dsh.kernel.node import merged
from dsh.kernel.view import Bindable, bound, extended


class Service(Bindable):
    """Base class of services whose methods register things for their caller.

    A subclass is a plugin. Hooks it may define: `init()`, an effect that runs after construction and must
    be done before anybody sees the service; `check(ctx)`; `__call__`, which makes the service callable.
    """

    provide: ClassVar[ServiceKey[Any]]
    reads_as_caller: ClassVar[bool] = False
    """Read services through `self.ctx` as the caller would, instead of as the provider."""
    Intercept: ClassVar[Any] = None
    """What merges the layers of an intercept, by its `merge(layers)`; without it the nearest value counts."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        """Of the caller inside a call made through a context, else the provider's."""
        self.owner_ctx = ctx
        """The provider's own context."""
        is_checked = type(self).check is not Service.check
        ctx.provide(self.provide, self, check=self._available if is_checked else None)

    def check(self, ctx: Context) -> bool:
        """Whether the service, once it is active, is there for the consumer with this context.

        Asked when a consumer looks; `kernel.notify` lets all of them look again.
        """
        return True

    def _available(self, consumer: Context) -> bool:
        available: bool = bound(self, consumer).check(consumer)
        return available

    def context_for(self, caller: Context) -> Context:
        if self.reads_as_caller or caller is self.owner_ctx:
            return caller
        return caller.reading_from(self.owner_ctx)

    def extend(self, **attributes: Any) -> Self:
        """The same service in which some attributes have other values, for this caller only."""
        view: Self = extended(self, attributes)
        return view

    def resolve_config(
        self, base: Mapping[str, Any] | None = None, head: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The caller's intercepts of this service, merged: `base`, the layers from the root on, `head`."""
        layers = [base or {}, *self.ctx.intercept_layers(self.provide), head or {}]
        merge: Callable[[list[Mapping[str, Any]]], Mapping[str, Any]]
        merge = getattr(self.Intercept, "merge", merged)
        return dict(merge(layers))

    def admits(self, place: Place) -> bool:
        """As the subject of an event: reaches listeners for whom this service's name has the same address."""
        name = self.provide.name
        return place.realm_of(name) is self.owner_ctx.realm_of(name)
