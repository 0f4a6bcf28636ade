"""What stands in source files and cannot be asked of a running program: texts, and where names are used."""

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
_CALLS_OF_PLUGINS = ("get", "has", "use", "inject", "provide", "on", "once")


class Constant(NamedTuple):
    """A name that a module assigns at its top level."""

    name: str
    value: ast.expr
    annotation: str
    """As written, quotes removed; empty where there is none."""
    doc: str
    """The text below it; empty where there is none."""


class Use(NamedTuple):
    """A call of a context's method whose first argument names services or an event."""

    method: str
    names: tuple[str, ...]
    """Names of constants, or texts."""


def module_names(package: str = "dsh") -> list[str]:
    """Every module of the package, sorted, the program's start excepted: importing that would run it."""
    files = sorted((REPOSITORY / package).rglob("*.py"))
    names = [".".join(file.relative_to(REPOSITORY).with_suffix("").parts) for file in files]
    return sorted(name.removesuffix(".__init__") for name in names if not name.endswith(".__main__"))


@cache
def tree_of(module: str) -> ast.Module:
    """The syntax of a module, found without importing it."""
    path = REPOSITORY.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def module_doc(module: str) -> str:
    return ast.get_docstring(tree_of(module)) or ""


def constants(module: str) -> Iterator[Constant]:
    """The assignments at the top level, each with the text that follows it."""
    body = tree_of(module).body
    for statement, following in zip_longest(body, body[1:]):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield Constant(name, value, "", _text(following))
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value):
                yield Constant(name, value, ast.unparse(annotation).strip("'\""), _text(following))


def field_docs(cls: type) -> dict[str, str]:
    """The text below each field of a class, inherited ones included."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("dsh."):
            continue
        for node in ast.walk(tree_of(base.__module__)):
            if isinstance(node, ast.ClassDef) and node.name == base.__name__:
                found.update(_fields(node))
    return found


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for statement, following in zip_longest(node.body, node.body[1:]):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, _text(following)


def _text(statement: ast.stmt | None) -> str:
    match statement:
        case ast.Expr(value=ast.Constant(value=str() as text)):
            return " ".join(text.split())
    return ""


def first_paragraph(text: str) -> str:
    return " ".join(text.split("\n\n", 1)[0].split())


def uses(module: str) -> Iterator[Use]:
    """Where a module calls one of a context's methods with names of services or of an event."""
    for node in ast.walk(tree_of(module)):
        match node:
            case ast.Call(func=ast.Attribute(attr=method), args=[first, *_]) if method in _CALLS_OF_PLUGINS:
                if names := tuple(_names(first)):
                    yield Use(method, names)


def _names(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Name(id=name):
            yield name
        case ast.Constant(value=str() as text):
            yield text
        case ast.List(elts=items) | ast.Tuple(elts=items):
            for item in items:
                yield from _names(item)


def texts(module: str) -> Iterator[str]:
    """Every string that a module holds, documentation included."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def loaded(module: str) -> ModuleType:
    return importlib.import_module(module)


def value_of(module: str, name: str) -> Any:
    """What a module calls by this name; None where it calls nothing so."""
    return getattr(loaded(module), name, None)
