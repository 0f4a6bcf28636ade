"""Computed attributes of contexts: a getter, perhaps a setter, for as long as their owner lives."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dsh.errors import KernelError
from dsh.kernel.effect import Effect
from dsh.kernel.key import ServiceKey, name_of

if TYPE_CHECKING:
    from dsh.kernel.context import Context


class Accessor(NamedTuple):
    """One computed attribute. `read` and `write` are given the context through which it is used."""

    read: "Callable[[Context], Any]"
    write: "Callable[[Context, Any], None] | None" = None


def add_accessor(ctx: "Context", name: str, accessor: Accessor) -> Effect:
    """Declare `ctx.<name>` for every context of the tree, until the returned effect is undone.

    Raises:
        KernelError: the name is a service's, another accessor's or the context's own.
    """
    _require_free(ctx, [name])
    effect = ctx.fiber.own(f'ctx.accessor("{name}")')
    ctx.kernel.accessors[name] = accessor
    effect.add(lambda: _remove(ctx, name, accessor))
    return effect


def add_mixin(
    ctx: "Context", source: ServiceKey[Any] | str, names: Iterable[str] | Mapping[str, str]
) -> Effect:
    """Make members of a service attributes of every context: one effect, one accessor for each name.

    Args:
        source: the service; whoever uses such an attribute must inject it, as for the service itself.
        names: what to take, or a map of what to take to how it is called on the context.
    """
    service = name_of(source)
    members = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
    _require_free(ctx, members.values())
    effect = ctx.fiber.own(f'ctx.mixin("{service}")')
    for member, name in members.items():
        accessor = _forwarding(service, member)
        ctx.kernel.accessors[name] = accessor

        def undo(name: str = name, accessor: Accessor = accessor) -> None:
            _remove(ctx, name, accessor)

        effect.add(undo)
    return effect


def _forwarding(service: str, member: str) -> Accessor:
    def read(ctx: "Context") -> Any:
        return getattr(ctx.read(service), member)

    def write(ctx: "Context", value: Any) -> None:
        setattr(ctx.read(service), member, value)

    return Accessor(read, write)


def _require_free(ctx: "Context", names: Iterable[str]) -> None:
    for name in names:
        taken = "service" if name in ctx.kernel.services else None
        taken = "accessor" if name in ctx.kernel.accessors else taken
        taken = "attribute of contexts" if hasattr(type(ctx), name) else taken
        if taken:
            raise KernelError(f'property "{name}" is already declared as {taken}')


def _remove(ctx: "Context", name: str, accessor: Accessor) -> None:
    if ctx.kernel.accessors.get(name) is accessor:
        del ctx.kernel.accessors[name]
