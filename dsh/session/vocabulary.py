"""The event types this program knows, and the checks of their payloads.

The same functions check what is appended and what is read. What is appended has to fit its payload as a
whole. Of a stored log a part is required, without which it could not be continued; the rest is noted
(`spec/session-log.md` §3, §5, §9, §12). The definitions are in `dsh/session/payload/`, loaded by subject.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Protocol

import msgspec

from dsh.session.error import InvalidEvent
from dsh.session.payload.shape import Misfit, Payload, payload

_SUBJECTS = {
    "turn": ("turn/start", "turn/end", "step/start", "step/end"),
    "message": (
        "user/message",
        "assistant/chunk",
        "assistant/message",
        "tool/call",
        "tool/result",
        "tool/code-dispatch-start",
        "tool/code-dispatch",
    ),
    "request": (
        "request/header",
        "request/context",
        "llm/retry",
        "llm/retry-started",
        "web/deepseek-search-llm-request",
    ),
    "state": (
        "session/end-seed",
        "agent/inbox/spliced",
        "todo/write",
        "feedback/record",
        "session/title",
        "session/title-llm-request",
        "agent-preset/selected",
    ),
    "policy": (
        "approval/asked",
        "approval/decided",
        "approval/policy",
        "permission/preset",
        "sandbox/mode",
        "plan/mode",
        "command/run",
        "command/done",
        "hook/invoked",
        "hook/result",
    ),
    "compaction": ("compaction/start", "compaction/summary", "compaction/end", "compaction/prune"),
    "goal": ("goal/change", "schedule/change"),
    "delegation": (
        "subagent/descriptor",
        "tool-workflow/run-start",
        "tool-workflow/agent-start",
        "tool-workflow/agent-end",
        "tool-workflow/run-end",
        "team/member",
        "team/task",
        "team/message/queued",
        "team/message/delivered",
    ),
}
"""The types of each module in `dsh/session/payload/`."""

_SUBJECT = {kind: subject for subject, kinds in _SUBJECTS.items() for kind in kinds}

KNOWN = frozenset(_SUBJECT)
"""The closed set of format 0. It does not depend on which rows are mounted."""

_MESSAGES = frozenset({"user/message", "assistant/message", "tool/result"})
_REQUIRED = _MESSAGES | {"request/header", "turn/end"}
"""The types whose payloads a stored log is refused for."""


class TypeFinder(Protocol):
    """Finds event types that nobody has registered, such as those of installed plugins."""

    def knows(self, kind: str) -> bool:
        """Whether some plugin names this type. Must not run the plugin."""

    def payload(self, kind: str) -> Any:
        """The payload type, a TypedDict or msgspec Struct, or None where the plugin gives none.

        Raises:
            DshError: it cannot be loaded.
        """


_registered: dict[str, list[Any]] = {}
"""The payload types of each registration of a type, None where it gives none."""
_finders: list[TypeFinder] = []
_loaded: dict[str, Payload] = {}


def register_types(types: Iterable[str] | Mapping[str, Any]) -> Callable[[], None]:
    """Make event types of a plugin known; returns what takes them back.

    A log that holds them opens only where they are registered, or named by an installed plugin. A record that
    a reader may do without is better written as ignorable.

    Args:
        types: names, or names with their payload types (a TypedDict, a msgspec Struct, or None).
    """
    given = dict(types) if isinstance(types, Mapping) else dict.fromkeys(types)
    for name, form in given.items():
        _registered.setdefault(name, []).append(form)

    def undo() -> None:
        for name, form in given.items():
            _registered[name].remove(form)
            if not _registered[name]:
                del _registered[name]
        given.clear()

    return undo


def install_finder(finder: TypeFinder) -> Callable[[], None]:
    """Let a finder be asked for types that are unknown and not ignorable; returns what takes it out again."""
    _finders.append(finder)

    def undo() -> None:
        for index, installed in enumerate(_finders):
            if installed is finder:
                del _finders[index]
                return

    return undo


def is_known(kind: str) -> bool:
    """True when this program knows what an event of that type means, or a plugin installed here does."""
    return kind in KNOWN or kind in _registered or any(finder.knows(kind) for finder in _finders)


def check_retired(kind: str, data: Any) -> None:
    """Refuse what early builds wrote and nobody can interpret any more.

    Raises:
        InvalidEvent: a retired event type, or a request header with reason `fallback`.
    """
    if kind == "request/header-delta" or kind == "mode/set":
        raise InvalidEvent(f"{kind} is a retired event type that cannot be interpreted")
    if kind == "request/header" and isinstance(data, dict) and data.get("reason") == "fallback":
        raise InvalidEvent('request/header with reason "fallback" is retired and cannot be interpreted')


def payload_of(kind: str) -> Payload | None:
    """The definition of the payload of a type of format 0; None for any other type."""
    found = _loaded.get(kind)
    if found is None and kind in _SUBJECT:
        subject = importlib.import_module(f"dsh.session.payload.{_SUBJECT[kind]}")
        _loaded.update(subject.PAYLOADS)
        found = _loaded[kind]
    return found


def check_payload(kind: str, data: Any, *, ignorable: bool = False) -> None:
    """Check the payload of an event that is about to be appended, plugins' types included.

    Args:
        ignorable: readers may pass over the event; then no plugin is looked for that knows its type.

    Raises:
        InvalidEvent: it has not the shape of its type, or that shape cannot be loaded.
    """
    definition = payload_of(kind)
    forms: Iterable[Payload] = (definition,) if definition is not None else _of_plugin(kind, ignorable)
    for form in forms:
        try:
            form.check(data)
        except Misfit as misfit:
            raise _invalid(kind, misfit) from None


def check_stored(kind: str, data: Any) -> None:
    """Check what a stored log is refused for: messages, the request header, the end of a turn.

    Raises:
        InvalidEvent: the payload has not the shape that later readers rely on.
    """
    if kind not in _REQUIRED:
        return
    definition = payload_of(kind)
    if definition is not None and definition.refuse is not None:
        try:
            definition.refuse(data)
        except Misfit as misfit:
            raise _invalid(kind, misfit) from None


def check_stored_message(kind: str, data: Any) -> None:
    """The part of `check_stored` that is about the three message types."""
    if kind in _MESSAGES:
        check_stored(kind, data)


def payload_fault(kind: str, data: Any) -> str | None:
    """What is wrong with the payload of an event of format 0; None where nothing is, or the type is another.

    Costs no import of a plugin; `check_payload` tells of plugins' types too.
    """
    definition = payload_of(kind)
    if definition is None:
        return None
    try:
        definition.check(data)
    except Misfit as misfit:
        return _invalid(kind, misfit).message
    return None


def _of_plugin(kind: str, ignorable: bool) -> list[Payload]:
    forms = list(_registered.get(kind, ()))
    if not forms and not ignorable:
        forms = [finder.payload(kind) for finder in _finders if finder.knows(kind)]
    return [_usable(kind, form) for form in forms if form is not None]


@cache
def _usable(kind: str, form: Any) -> Payload:
    try:
        msgspec.json.Decoder(form)
    except TypeError as error:
        raise InvalidEvent(
            f"{kind}: {form!r:.80} cannot be the type of a payload: {error}",
            hint="a plugin gives a TypedDict or a msgspec Struct",
        ) from error
    return payload(form)


def _invalid(kind: str, misfit: Misfit) -> InvalidEvent:
    where = f"data{misfit.path}: " if misfit.path else ""
    return InvalidEvent(f"{kind}: {where}{misfit.problem}")
