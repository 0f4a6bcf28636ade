"""What can be mounted, and what is read from it: body, name, schema, injected services."""

import inspect
from collections.abc import Mapping
from typing import Any

from dsh.errors import KernelError
from dsh.kernel.key import ServiceKey, name_of


class Runtime:
    """What all fibers of one plugin share: its identity, display name, schema and body."""

    __slots__ = ("body", "fibers", "identity", "inject", "name", "provides", "schema")

    def __init__(
        self,
        identity: Any,
        body: Any,
        *,
        name: str,
        schema: Any,
        inject: dict[str, Any],
        provides: tuple[str, ...] | None,
    ) -> None:
        self.identity, self.body = identity, body
        self.name, self.schema, self.inject = name, schema, inject
        self.provides = provides
        """Names of the services its fibers may provide, where the plugin declares them; None where not."""
        self.fibers: dict[Any, None] = {}
        """The fibers that are mounted now, in the order of mounting."""


def runtime_of(known: Mapping[Any, Runtime], plugin: Any, name: str = "") -> Runtime:
    """The record of this plugin among the known ones, or a new one.

    The identity is the function, the class or the `apply` callable; the first mounting fixes name and
    schema.

    Raises:
        KernelError: it is none of these shapes.
    """
    identity: Any
    if inspect.isclass(plugin):
        identity, body = plugin, _construct(plugin)
        inject: dict[str, Any] = {}
        for base in reversed(plugin.__mro__):
            inject.update(inject_map(base.__dict__.get("inject")))
    else:
        apply = getattr(plugin, "apply", None)
        identity = body = apply if callable(apply) else plugin
        if not callable(body):
            raise KernelError(
                'invalid plugin, expect function or object with an "apply" method, received '
                f"{type(plugin).__name__}"
            )
        inject = inject_map(getattr(plugin, "inject", None))
    if identity in known:
        return known[identity]
    schema = getattr(plugin, "Config", None)
    return Runtime(
        identity,
        body,
        name=name or _display_name(plugin),
        schema=schema,
        inject=inject,
        provides=provided_names(getattr(plugin, "provide", None)),
    )


def _display_name(source: Any) -> str:
    declared = getattr(source, "name", None)
    name = declared if isinstance(declared, str) else str(getattr(source, "__name__", ""))
    name = name.rpartition(".")[2]
    return "" if name == "apply" else name.replace("_", "-")


def _construct(cls: type) -> Any:
    """The body of a class plugin: make an instance, then run its `init` hook as an effect."""

    def body(ctx: Any, config: Any) -> Any:
        takes_config = len(inspect.signature(cls).parameters) > 1
        instance = cls(ctx, config) if takes_config else cls(ctx)
        init = getattr(instance, "init", None)
        return init() if callable(init) else None

    return body


def provided_names(declared: Any) -> tuple[str, ...] | None:
    """Normalise a `provide` declaration: a service's key or name, or a list of them; None for no declaration.

    Raises:
        KernelError: it is something else.
    """
    if declared is None:
        return None
    names = declared if isinstance(declared, list | tuple) else [declared]
    for name in names:
        if not isinstance(name, str | ServiceKey):
            raise KernelError(f"provide holds {name!r}, which is neither a service's name nor its key")
    return tuple(map(name_of, names))


def inject_map(declared: Any) -> dict[str, Any]:
    """Normalise an `inject` declaration: a list of names or keys, or a map of them to intercept config.

    Raises:
        KernelError: it is something else.
    """
    if declared is None:
        return {}
    if not isinstance(declared, Mapping | list | tuple | set | frozenset):
        raise KernelError(f"inject must be a list of services, not {declared!r}")
    for key in declared:
        if not isinstance(key, str | ServiceKey):
            raise KernelError(f"inject holds {key!r}, which is neither a service's name nor its key")
    items = declared.items() if isinstance(declared, Mapping) else ((key, None) for key in declared)
    return {name_of(key): config for key, config in items}
