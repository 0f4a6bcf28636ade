"""Services by address: providing, reading and replacing them through a context, and moving whole subtrees.

The address of a name (its realm) is looked up along the chain of contexts. What a fiber reads as an attribute
must be injected or provided by it or by an ancestor that sees the name at the same address
(`spec/kernel.md` §3).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from dsh.errors import KernelError
from dsh.kernel.effect import Effect
from dsh.kernel.fiber import Fiber, FiberState, require_declared
from dsh.kernel.internal import SERVICE_READ, SERVICE_WRITTEN, ReadRequest, WriteRequest
from dsh.kernel.root import Impl, Realm
from dsh.kernel.view import bound, unbound

if TYPE_CHECKING:
    from dsh.kernel.context import Context


class ServiceUnavailable(AttributeError):
    """An attribute names a service that this context may not read, or that is not there now."""


class ServiceTaken(KernelError):
    """Somebody else provides the service at this address. `holder` is its fiber."""

    def __init__(self, name: str, holder: Fiber) -> None:
        self.name, self.holder = name, holder
        super().__init__(f'service "{name}" has been registered at {holder.name}')


def provide(ctx: "Context", name: str, value: Any, check: "Callable[[Context], Any] | None") -> Effect:
    """See `Context.provide`. Everything is judged before anything is touched."""
    fiber, kernel = ctx.fiber, ctx.kernel
    if fiber.state not in (FiberState.LOADING, FiberState.ACTIVE):
        raise KernelError(f"cannot provide {name!r} on inactive context", code="INACTIVE_EFFECT")
    require_declared(fiber, name)
    if name in kernel.accessors:
        raise KernelError(f'property "{name}" is already declared as accessor')
    realm = ctx.realm_of(name)
    if taken := kernel.impls.get(realm):
        raise ServiceTaken(name, taken.fiber)
    effect = fiber.own(f'ctx.provide("{name}")', is_provider=True)
    kernel.services.add(name)
    impl = Impl(
        name,
        unbound(value),
        fiber,
        place=ctx,
        realm=realm,
        check=check,
        generation=next(kernel.generations),
    )
    kernel.impls[realm] = fiber.provided[realm] = impl
    effect.add(lambda: _withdraw(fiber, impl))
    if fiber.is_active:
        kernel.notify([(name, realm)])
    return effect


def _withdraw(fiber: Fiber, impl: Impl) -> Awaitable[None]:
    """Consumers first: who was loaded with it is unloaded before the provider itself gives it up."""
    kernel = fiber.kernel
    if kernel.impls.get(impl.realm) is impl:
        del kernel.impls[impl.realm]
    kernel.notify([(impl.name, impl.realm)])
    if impl.is_told:
        kernel.tell(impl, is_there=False)

    async def settle() -> None:
        for consumer in tuple(impl.users):
            await consumer.released(impl, fiber)
        if fiber.provided.get(impl.realm) is impl:
            del fiber.provided[impl.realm]

    return settle()


def read(ctx: "Context", name: str) -> Any:
    """The service as this context may read it; see `Context.use`."""
    if ctx.fiber.parent is None and ctx.reads_from is None:
        return ctx.get(name, strict=False)
    if ctx.kernel.events.has(SERVICE_READ):
        return ctx.kernel.events.waterfall(
            SERVICE_READ, ReadRequest(ctx, name), lambda: _found(ctx, name), None
        )
    return _found(ctx, name)


def _found(ctx: "Context", name: str) -> Any:
    place = ctx.reads_from or ctx
    realm = place.realm_of(name)
    fiber = place.fiber
    while True:
        impl = fiber.provided.get(realm)
        if impl is None and name in fiber.inject and fiber.ctx.realm_of(name) is realm:
            impl = fiber.store.get(name) if fiber.store is not None else None
            if impl is None:
                raise ServiceUnavailable(f'cannot get required service "{name}" in inactive context')
        if impl is not None:
            return bound(impl.value, ctx)
        parent = fiber.parent
        if parent is None or parent.realm_of(name) is not realm:
            raise ServiceUnavailable(
                f'cannot get property "{name}" without inject: add it to the plugin\'s inject, '
                "or use ctx.get, which answers None where nobody provides it"
            )
        fiber = parent.fiber


def replace(ctx: "Context", name: str, value: Any) -> None:
    """See `Context.set`."""
    impl = ctx.kernel.impls.get(ctx.realm_of(name))
    if impl is None:
        raise KernelError(f'cannot set property "{name}" without provide')
    if impl.fiber is not ctx.fiber:
        raise KernelError(f'cannot set property "{name}" in multiple fibers')
    impl.value = unbound(value)
    if impl.fiber.is_active:
        ctx.kernel.tell(impl, is_there=True)


def assign(ctx: "Context", name: str, value: Any) -> None:
    """`ctx.<name> = value`: to an accessor with a setter, or to a service that this fiber provides.

    Raises:
        KernelError: the name is neither, or may not be set here.
    """
    kernel = ctx.kernel
    accessor = kernel.accessors.get(name)
    if accessor is not None:
        if accessor.write is None:
            raise KernelError(f'property "{name}" can only be read')
        accessor.write(ctx, value)
    elif name not in kernel.services:
        raise KernelError(
            f'cannot set property "{name}" without provide', hint="provide it, or keep it in a variable"
        )
    else:
        request = WriteRequest(ctx, name, value)
        kernel.events.waterfall(SERVICE_WRITTEN, request, lambda: replace(ctx, name, value), None)


def rebind(
    ctx: "Context", isolate: Mapping[str, Realm] | None, intercept: Mapping[str, Any] | None
) -> list[Fiber]:
    """See `Context.rebind`."""
    kernel = ctx.kernel
    old_realms, old_intercepts = ctx.own_realms, ctx.own_intercepts
    new_realms = old_realms if isolate is None else dict(isolate)
    new_intercepts = old_intercepts if intercept is None else dict(intercept)
    renamed = [n for n in {**old_realms, **new_realms} if old_realms.get(n) is not new_realms.get(n)]
    layered = [
        n for n in {**old_intercepts, **new_intercepts} if old_intercepts.get(n) != new_intercepts.get(n)
    ]
    consumers = {n: tuple(kernel.injectors.get(n, ())) for n in dict.fromkeys((*renamed, *layered))}
    before = {(n, c): c.realm_of(n) for n in renamed for c in consumers[n]}
    ctx.own_realms = new_realms
    try:
        moves = _moves(ctx, renamed)
    except KernelError:
        ctx.own_realms = old_realms
        raise
    ctx.own_intercepts = new_intercepts
    also: list[tuple[str, Fiber]] = [(n, c) for (n, c), realm in before.items() if c.realm_of(n) is not realm]
    also.extend((n, c) for n in layered for c in consumers[n] if c.ctx.is_below(ctx))
    left = [_move(impl, realm) for impl, realm in moves]
    return kernel.notify([*left, *((impl.name, realm) for impl, realm in moves)], also)


def _moves(ctx: "Context", names: list[str]) -> list[tuple[Impl, Realm]]:
    """What is provided under these names at an address that has changed, and the new one.

    Raises:
        KernelError: somebody else provides the name there.
    """
    impls = [impl for impl in ctx.kernel.impls.values() if impl.name in names]
    targets = {impl: realm for impl in impls if (realm := impl.place.realm_of(impl.name)) is not impl.realm}
    taken = {impl.realm: impl for impl in impls if impl not in targets}
    for impl, realm in targets.items():
        if other := taken.get(realm):
            raise ServiceTaken(impl.name, other.fiber)
        taken[realm] = impl
    return list(targets.items())


def _move(impl: Impl, realm: Realm) -> tuple[str, Realm]:
    """Give a provided service another address; answers the name and the address it left."""
    fiber = impl.fiber
    kernel, old, was_told = fiber.kernel, impl.realm, impl.is_told
    if was_told:
        kernel.tell(impl, is_there=False)
    for table in (kernel.impls, fiber.provided):
        if table.get(old) is impl:
            del table[old]
        table[realm] = impl
    impl.realm = realm
    return impl.name, old
