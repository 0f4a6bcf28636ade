"""What can be mounted, and what is read from it: body, name, schema, services it needs, gives and sets up."""

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, TypeVar

import msgspec

from dsh.errors import KernelError
from dsh.kernel.key import ServiceKey, name_of

M = TypeVar("M", bound=Callable[..., Any])


class Runtime:
    """What all fibers of one plugin share: its identity, display name, schema and body."""

    __slots__ = (
        "body",
        "fibers",
        "identity",
        "inject",
        "intercept",
        "name",
        "provides",
        "schema",
        "takes_config",
    )

    def __init__(
        self,
        identity: Any,
        body: Any,
        *,
        name: str,
        schema: Any,
        inject: dict[str, Any],
        intercept: dict[str, Any],
        provides: tuple[str, ...] | None,
    ) -> None:
        self.identity, self.body = identity, body
        self.name, self.schema, self.inject = name, schema, inject
        self.intercept = intercept
        """Settings for services, needed or not, as the plugin and what is below it use them."""
        self.provides = provides
        """Names of the services its fibers may provide, where the plugin declares them; None where not."""
        self.fibers: dict[Any, None] = {}
        """The fibers that are mounted now, in the order of mounting."""
        self.takes_config = _takes_two(body)

    def run(self, ctx: Any, config: Any) -> Any:
        """Call the body; what it answers is an effect."""
        return self.body(ctx, config) if self.takes_config else self.body(ctx)


class Registry(dict[Any, Runtime]):
    """The mounted plugins by identity: a runtime appears with its first fiber and goes with its last."""

    def of(self, plugin: Any) -> Runtime | None:
        """The record of a plugin, None where it is not mounted."""
        return self.get(identity_of(plugin))

    async def delete(self, plugin: Any) -> bool:
        """Dispose every fiber of a plugin and wait; False where it was not mounted."""
        runtime = self.of(plugin)
        if runtime is None:
            return False
        for fiber in reversed(tuple(runtime.fibers)):
            await fiber.dispose()
        return True


def identity_of(plugin: Any) -> Any:
    """What tells one plugin from another: the function, the class, or the `apply` callable."""
    if inspect.isclass(plugin):
        return plugin
    apply = getattr(plugin, "apply", None)
    return apply if callable(apply) else plugin


def _takes_two(body: Any) -> bool:
    if type(body) is FunctionType and body.__code__.co_argcount == 2 and not hasattr(body, "__wrapped__"):
        return True  # as nearly all are; to make a signature takes long
    try:
        return len(inspect.signature(body).parameters) > 1
    except (TypeError, ValueError):  # a builtin that tells nothing of its parameters
        return False


def runtime_of(known: Mapping[Any, Runtime], plugin: Any, name: str = "") -> Runtime:
    """The record of this plugin among the known ones, or a new one.

    The identity is the function, the class or the `apply` callable; the first mounting fixes name and
    schema.

    Raises:
        KernelError: it is none of these shapes, or what it declares is no declaration.
    """
    identity: Any
    if inspect.isclass(plugin):
        identity, body = plugin, _construct(plugin)
        inject: dict[str, Any] = {}
        for base in reversed(plugin.__mro__):
            inject.update(inject_map(base.__dict__.get("inject")))
    else:
        identity = body = identity_of(plugin)
        if not callable(body):
            raise KernelError(
                'invalid plugin, expect function or object with an "apply" method, received '
                f"{type(plugin).__name__}"
            )
        inject = inject_map(getattr(plugin, "inject", None))
    if identity in known:
        return known[identity]
    schema = getattr(plugin, "Config", None)
    if schema is not None and not (inspect.isclass(schema) and issubclass(schema, msgspec.Struct)):
        what = schema.__name__ if inspect.isclass(schema) else f"a value of type {type(schema).__name__}"
        raise KernelError(f"Config must be a msgspec.Struct, not {what}")
    return Runtime(
        identity,
        body,
        name=name or _display_name(plugin),
        schema=schema,
        inject=inject,
        intercept=_intercept_map(getattr(plugin, "intercept", None)),
        provides=provided_names(getattr(plugin, "provide", None)),
    )


def _display_name(source: Any) -> str:
    declared = getattr(source, "name", None)
    name = declared if isinstance(declared, str) else str(getattr(source, "__name__", ""))
    name = name.rpartition(".")[2]
    return "" if name == "apply" else name.replace("_", "-")


def _construct(cls: type) -> Any:
    """The body of a class plugin: make an instance, then run its `init` hook as an effect."""

    takes_config = _takes_two(cls)
    methods: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        methods.update({name: getattr(member, "_dsh_when", None) for name, member in vars(base).items()})
    armed = [(services, name) for name, services in methods.items() if services]

    def body(ctx: Any, config: Any) -> Any:
        instance = cls(ctx, config) if takes_config else cls(ctx)
        for services, name in armed:
            ctx.inject(services, getattr(instance, name))
        init = getattr(instance, "init", None)
        return init() if callable(init) else None

    return body


def when(*services: "ServiceKey[Any] | str") -> "Callable[[M], M]":
    """Decorator for a method of a class plugin: it runs as a plugin of its own whenever all these exist.

    It is called with the context of that plugin, as the callback of `Context.inject` is.
    """

    def mark(method: M) -> M:
        method._dsh_when = services  # type: ignore[attr-defined]
        return method

    return mark


def provided_names(declared: Any) -> tuple[str, ...] | None:
    """Normalise a `provide` declaration: a service's key or name, or a list of them; None for no declaration.

    Raises:
        KernelError: it is something else.
    """
    if declared is None:
        return None
    names = declared if isinstance(declared, list | tuple) else [declared]
    for name in names:
        if not isinstance(name, str | ServiceKey) or not name_of(name):
            raise KernelError(f"provide holds {name!r}, which is neither a service's name nor its key")
    return tuple(map(name_of, names))


def inject_map(declared: Any) -> dict[str, Any]:
    """Normalise an `inject` declaration: a service's key or name, a list of them, or a map of them to
    intercept config.

    Raises:
        KernelError: it is something else.
    """
    if declared is None:
        return {}
    if isinstance(declared, str | ServiceKey):
        declared = [declared]
    if not isinstance(declared, Mapping | list | tuple | set | frozenset):
        raise KernelError(f"inject must be a service or a list of services, not {declared!r}")
    for key in declared:
        if not isinstance(key, str | ServiceKey) or not name_of(key):
            raise KernelError(f"inject holds {key!r}, which is neither a service's name nor its key")
    items = declared.items() if isinstance(declared, Mapping) else ((key, None) for key in declared)
    return {name_of(key): config for key, config in items}


def _intercept_map(declared: Any) -> dict[str, Any]:
    if declared is not None and not isinstance(declared, Mapping):
        raise KernelError(f"intercept must be a map of services to settings, not {declared!r}")
    return inject_map(declared)
