"""Where each value of a row's config comes from: a place in a file, or a default of the plugin's `Config`."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from dsh.composition.compose import LAUNCHER, Composition
from dsh.composition.dump import shown
from dsh.composition.value import Expr, Map, Mark, Seq
from dsh.kernel.secret import Kinds, is_secret, kinds_below, kinds_of, without_secrets
from dsh.masking import MASK, masked

Path = tuple[str, ...]


class Value(NamedTuple):
    """One value of an effective config, masked. Mappings are told key by key, lists of scalars as one."""

    path: Path
    """Keys and positions from the config down; empty for a config that is one expression or scalar."""
    value: Any
    """JSON data, or the `Expr` that gives it when the row starts."""
    mark: Mark | None
    """Where it is written; of a default the place of the null that stands for it, if there is one."""
    is_default: bool
    is_unknown: bool = False
    """The plugin's `Config` has no such key."""


def values_of(config: Any, schema: Any, at: Mark) -> list[Value]:
    """Everything a config says, in its order, then the defaults of what it leaves open.

    Args:
        schema: the plugin's `Config`, None where it has none.
        at: the place of the config as a whole.
    """
    whole = Map(at) if config is None and schema is not None else config
    kinds = kinds_of(Any if schema is None else schema)
    return list(_values(whole, _type(schema), kinds, (), at))


def _type(schema: Any) -> inspect.Type | None:
    try:
        return None if schema is None else inspect.type_info(schema)
    except (
        TypeError,
        NameError,
    ):  # a type that only a hook could convert, or nobody: what is written is told without it
        return None


def _values(value: Any, kind: inspect.Type | None, kinds: Kinds, path: Path, at: Mark) -> Iterator[Value]:
    """`kinds` are the types as they are written, by which secrets are known."""
    if is_secret(kinds):
        if value is not None or path:
            yield Value(path, _hidden(value), at, is_default=False)
    elif isinstance(value, Map) and (value or isinstance(kind, inspect.StructType)):
        yield from _mapping(value, kind, kinds, path)
    elif isinstance(value, Seq) and any(isinstance(item, Map) for item in value):
        item_kind = _item(kind)
        for n, item in enumerate(value):
            yield from _values(item, item_kind, kinds_below(kinds, n), (*path, str(n)), value.item_at(n))
    elif value is not None or path:
        yield Value(
            path, shown(without_secrets(value, kinds), path[-1] if path else ""), at, is_default=False
        )


def _hidden(value: Any) -> Any:
    """What stands for a secret. Of an expression its source, without the constants: it says where from."""
    if isinstance(value, Expr):
        return Expr(masked(_CONSTANT.sub(_kept, value.text)), value.mark)
    return value if value in (None, "") else MASK


_CONSTANT = re.compile(
    r"""(?P<env>\benv\s*[,\[]\s*)?(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|\b\d[\w.]*""", re.DOTALL
)


def _kept(found: re.Match[str]) -> str:
    """The name of a variable of the environment stays."""
    return found[0] if found["env"] else f"'{MASK}'"


def _mapping(value: Map, kind: inspect.Type | None, kinds: Kinds, path: Path) -> Iterator[Value]:
    struct = kind if isinstance(kind, inspect.StructType) else None
    fields = {field.encode_name: field for field in struct.fields} if struct is not None else {}
    has_secret = any(is_secret(kinds_below(kinds, key)) for key in fields)
    open_fields = dict(fields)
    for key, item in value.items():
        here, at = (*path, key), value.value_at(key)
        field = fields.get(key)
        if item is None and field is not None and not _admits_null(field.type):
            continue
        open_fields.pop(key, None)
        if field is None and struct is not None:
            said = shown(item, key) if not has_secret else _hidden(item)  # perhaps one, misspelt
            yield Value(here, said, at, is_default=False, is_unknown=True)
        else:
            inner = _inner(field.type if field is not None else _item(kind))
            yield from _values(item, inner, kinds_below(kinds, key), here, at)
    for key, field in open_fields.items():
        default = _default(field)
        if default is not msgspec.NODEFAULT:
            mark = value.value_at(key) if key in value else None
            yield from _defaults(without_secrets(default, kinds_below(kinds, key)), (*path, key), mark)


def _defaults(value: Any, path: Path, mark: Mark | None) -> Iterator[Value]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _defaults(item, (*path, key), mark)
    else:
        yield Value(path, shown(value, path[-1]), mark, is_default=True)


def _inner(kind: inspect.Type | None) -> inspect.Type | None:
    """The struct or container among the alternatives, if there is just one."""
    if isinstance(kind, inspect.Metadata):
        return _inner(kind.type)
    if not isinstance(kind, inspect.UnionType):
        return kind
    found = [member for member in map(_inner, kind.types) if isinstance(member, _HOLDERS)]
    return found[0] if len(found) == 1 else None


_HOLDERS = (inspect.StructType, inspect.DictType, inspect.ListType, inspect.VarTupleType)


def _item(kind: inspect.Type | None) -> inspect.Type | None:
    kind = _inner(kind)
    if isinstance(kind, inspect.DictType):
        return _inner(kind.value_type)
    return _inner(kind.item_type) if isinstance(kind, inspect.ListType | inspect.VarTupleType) else None


def _admits_null(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.Metadata):
        return _admits_null(kind.type)
    if isinstance(kind, inspect.UnionType):
        return any(map(_admits_null, kind.types))
    return isinstance(kind, inspect.NoneType | inspect.AnyType)


def _default(field: inspect.Field) -> Any:
    """The default as JSON data; `NODEFAULT` where there is none to tell."""
    value = field.default
    if value is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if value is msgspec.NODEFAULT or value is msgspec.UNSET:
        return msgspec.NODEFAULT
    try:
        return msgspec.to_builtins(value, str_keys=True)
    except TypeError:
        return str(value)


def lost_keys(config: Any, dropped: list[tuple[str, Path]]) -> list[tuple[str, Path]]:
    """Of the keys that replaced configs had, those that the effective one has not."""
    return [(layer, path) for layer, path in dropped if not _has(config, path)]


def _has(config: Any, path: Path) -> bool:
    for key in path:
        if not isinstance(config, dict) or key not in config:
            return False
        config = config[key]
    return True


class Sources:
    """Names the layers of a composition and finds the one a place lies in."""

    def __init__(self, composition: Composition) -> None:
        self.names: dict[str, str] = {}
        """A short, unique name for each layer, by its label."""
        self.files: dict[str, str] = {}
        """The label of the layer that a file is."""
        count: dict[str, int] = {}
        for layer in composition.layers:
            name = layer.label if layer.kind in ("bundle", "launcher") else layer.kind
            count[name] = count.get(name, 0) + 1
            self.names[layer.label] = name if count[name] == 1 else f"{name}-{count[name]}"
            self.files[str(layer.path) if layer.path is not None else layer.label] = layer.label

    def layer_at(self, mark: Mark) -> str | None:
        """The label of the layer; None for the file of an include."""
        return self.files.get(mark.file)

    def short(self, mark: Mark) -> str:
        """A place for people: `base:34`; a file that is no layer with its path."""
        label = self.layer_at(mark)
        if label is None:
            return f"{mark.file}:{mark.line}"
        name = self.names[label]
        return name if label == LAUNCHER else f"{name}:{mark.line}"


def expression_of(value: Any) -> str | None:
    """The source text of an expression, masked; None for a plain value."""
    return value.text.strip() if isinstance(value, Expr) else None
