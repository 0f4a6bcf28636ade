"""Services as classes: provided by constructing them, bound to whoever reads them.

Reading a `Service` through a context gives a view whose `self.ctx` is the reader's context, so that what
a method registers belongs to the caller and goes with it; `self.owner_ctx` stays the provider's
(`spec/kernel.md` §7).
"""

from typing import Any, ClassVar

from dsh.kernel.context import Context
from dsh.kernel.key import ServiceKey
from dsh.kernel.view import Bindable


class Service(Bindable):
    """Base class of services whose methods register things for their caller."""

    provide: ClassVar[ServiceKey[Any]]

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        """The caller's context inside a call made through a context, else the provider's."""
        self.owner_ctx = ctx
        """The provider's own context."""
        ctx.provide(self.provide, self)
