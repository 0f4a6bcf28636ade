"""All events and services that dsh declares, with who provides, needs and hears them."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from docs.generate.markdown import code, listed, table
from docs.generate.source import constants, first_paragraph, module_names, tree_of, uses, value_of
from dsh.kernel import Event, ServiceKey

_PAYLOAD = re.compile(r"Payload of `[^:.]*[:.]\s*")
PROVIDED_BY_DSH = ("dsh.cli", "dsh.composition")
"""Where services are provided that no row brings."""


class DeclaredEvent(NamedTuple):
    event: "Event[object, object]"
    module: str
    constant: str
    payload: str
    """Type of what a listener gets."""
    answer: str
    """Type of what a listener answers; empty for nothing."""
    doc: str


class DeclaredService(NamedTuple):
    key: "ServiceKey[object]"
    module: str
    constant: str
    interface: str
    """Type of what is provided."""
    doc: str
    also: str = ""
    """Another constant of the module for the same service, which types it for more uses."""


@cache
def events() -> list[DeclaredEvent]:
    """By name."""
    found: dict[str, DeclaredEvent] = {}
    for module in module_names():
        for constant in constants(module):
            if not (_calls(constant.value, "Event") and "Event" in _imported(module)):
                continue
            event = value_of(module, constant.name)
            assert isinstance(event, Event), f"{module}.{constant.name}"
            payload, answer = _two(constant.annotation)
            doc = constant.doc or _payload_doc(module, payload)
            found[event.name] = DeclaredEvent(event, module, constant.name, payload, answer, doc)
    return [found[name] for name in sorted(found)]


@cache
def services() -> list[DeclaredService]:
    """By name, whatever the case of its letters."""
    found: dict[str, DeclaredService] = {}
    for module in module_names():
        for constant in constants(module):
            if not _calls(constant.value, "ServiceKey"):
                continue
            key = value_of(module, constant.name)
            assert isinstance(key, ServiceKey), f"{module}.{constant.name}"
            interface = constant.annotation.removeprefix("ServiceKey[").removesuffix("]").strip("'\"")
            if (first := found.get(key.name)) is not None:
                found[key.name] = first._replace(also=constant.name)
            else:
                found[key.name] = DeclaredService(key, module, constant.name, interface, constant.doc)
    return [found[name] for name in sorted(found, key=str.lower)]


def _calls(value: ast.expr, name: str) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == name


@cache
def _imported(module: str) -> frozenset[str]:
    """Names that a module takes from the kernel."""
    return frozenset(
        alias.name
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dsh.kernel")
        for alias in node.names
    )


def _payload_doc(module: str, payload: str) -> str:
    """What the payload's own class says, without the event's name before it."""
    cls = value_of(module, payload)
    text = first_paragraph(cls.__doc__ or "") if isinstance(cls, type) else ""
    return _capital(_PAYLOAD.sub("", text)) if _PAYLOAD.match(text) else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _two(annotation: str) -> tuple[str, str]:
    """Payload and answer of `Event[Payload, Answer]`."""
    match ast.parse(annotation, mode="eval").body if annotation else None:
        case ast.Subscript(slice=ast.Tuple(elts=[payload, answer])):
            said = ast.unparse(answer)
            return ast.unparse(payload).strip("'\""), "" if said == "None" else said
    return "", ""


def names_in(module: str, method: str, kind: type) -> Iterator[str]:
    """Names of the services (`ServiceKey`) or events (`Event`) a module hands to this method."""
    for use in uses(module):
        if use.method == method:
            for name in use.names:
                found = value_of(module, name)
                if isinstance(found, kind):
                    yield str(getattr(found, "name", ""))


def provided_by_dsh() -> list[str]:
    """Services that are there without any row."""
    found = {
        name
        for module in module_names()
        if module.startswith(PROVIDED_BY_DSH)
        for name in names_in(module, "provide", ServiceKey)
    }
    return sorted(found | {"loader"}, key=str.lower)


def event_table() -> str:
    rows = []
    for declared in events():
        mode = declared.event.mode + (", contained" if declared.event.contained else "")
        mode += ", scoped" if declared.event.scoped else ""
        answer = f" \u2192 {code(declared.answer)}" if declared.answer else ""
        rows.append(
            (
                code(declared.event.name),
                mode,
                code(declared.payload) + answer if declared.payload else "",
                code(f"{declared.module}.{declared.constant}"),
                declared.doc,
            )
        )
    return table(("event", "mode", "payload \u2192 answer", "declared as", "to know"), rows)


def service_table(providers: dict[str, list[str]], consumers: dict[str, list[str]]) -> str:
    """Args: for each service the rows that provide and that inject it."""
    rows = []
    given = provided_by_dsh()
    for declared in services():
        name = declared.key.name
        also = f", {code(declared.also)}" if declared.also else ""
        who = listed(providers.get(name, ())) or ("dsh itself" if name in given else "nobody yet")
        rows.append(
            (
                code(name),
                code(declared.interface),
                who,
                listed(consumers.get(name, ())),
                code(f"{declared.module}.{declared.constant}") + also,
            )
        )
    return table(("service", "interface", "provided by", "needed by", "declared as"), rows)
