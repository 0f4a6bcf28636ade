"""Reading a hook file: whatever its bytes are, either the hooks in it or a named error."""

import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from dsh.agent.hooks.config import OnFailure
from dsh.agent.hooks.dialect import TOOL_NAMES, Dialect, Matches, Point
from dsh.capabilities.bounds import MAX_TIMER_MS
from dsh.errors import CompositionError
from dsh.unicode import valid

SHAPE = (
    'the shape is {"hooks": {"PreToolUse": [{"matcher": "bash", '
    '"hooks": [{"type": "command", "command": "…"}]}]}}'
)
MAX_BYTES = 4 * 1024 * 1024
SESSION_SOURCES = ("startup", "resume")
"""How sessions start here."""
_WANTS_DENY = re.compile(rb'"onFailure"\s*:\s*"deny"')


class HookFileError(CompositionError):
    """The file cannot be used, and no hook of it runs."""

    def __init__(self, message: str, *, wants_deny: bool = False, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.wants_deny = wants_deny
        """Some hook in it is a guard that must not fail silently."""


class Handler(msgspec.Struct, frozen=True, kw_only=True):
    """One command of a file."""

    command: str
    timeout_ms: float | None = None
    on_failure: OnFailure | None = None
    where: str
    """Its place in the file: `PreToolUse[0].hooks[1]`."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Hooks that run for the same tools, or the same starts of a session."""

    matcher: str | None
    matches: Matches
    handlers: tuple[Handler, ...]


class HookFile(msgspec.Struct, frozen=True):
    """What a file asks for, and what of it is not done here."""

    groups: Mapping[Point, tuple[Group, ...]]
    notes: tuple[str, ...] = ()
    """One line for each thing that a person should know of."""


def load(path: Path, dialect: Dialect) -> HookFile:
    """Read and check a file.

    Raises:
        HookFileError: it cannot be read, or is no hook file; the message has the place.
    """
    raw = _read(path)
    try:
        return parse(raw, dialect)
    except HookFileError as error:
        wants_deny = _WANTS_DENY.search(raw) is not None
        raise HookFileError(f"{path}: {error.message}", wants_deny=wants_deny, hint=error.hint) from None


def _read(path: Path) -> bytes:
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise HookFileError(f"{path} is no regular file", hint="configPath names a JSON file")
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: the name holds a NUL
        why = error.strerror if isinstance(error, OSError) else error
        raise HookFileError(
            f"{path} cannot be read: {why}", hint="correct configPath, or make the file readable"
        ) from None
    if len(raw) > MAX_BYTES:
        raise HookFileError(f"{path} has more than {MAX_BYTES} bytes")
    return raw


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def parse(raw: bytes, dialect: Dialect) -> HookFile:
    """The hooks in the bytes of a file. Raises as `load`, without the path."""
    try:
        found = msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HookFileError(f"no JSON: {error}", hint="correct the file, then start again") from None
    top = _mapping(found, "the file")
    if top.get("disableAllHooks") is True:
        return HookFile({}, ("disableAllHooks is set, so no hook runs",))
    hooks = _mapping(top["hooks"], "hooks") if "hooks" in top else top
    reader = _Reader(dialect)
    groups: dict[Point, tuple[Group, ...]] = {}
    for name, value in hooks.items():
        point = next((point for point in dialect.points if point == name), None)
        if point is not None:
            groups[point] = tuple(reader.groups(name, value))
        elif hooks is not top or isinstance(value, list):
            reader.unknown.append(name)
    return HookFile({p: g for p, g in groups.items() if any(one.handlers for one in g)}, reader.told())


class _Reader:
    """Reads the lists of one file. State: what a person should be told."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._notes: list[str] = []
        self.unknown: list[str] = []
        """Events that nothing here corresponds to."""

    def told(self) -> tuple[str, ...]:
        if self.unknown:
            names, known = ", ".join(map(_short, self.unknown)), ", ".join(self._dialect.points)
            self._notes.append(f"no hooks run for {names}; the events here are {known}")
        return tuple(self._notes)

    def groups(self, name: Point | str, value: object) -> Iterator[Group]:
        for at, item in enumerate(_list(value, name)):
            where = f"{name}[{at}]"
            group = _mapping(item, where)
            matcher = group.get("matcher")
            if matcher is not None and not isinstance(matcher, str):
                raise HookFileError(f"{where}.matcher: expected a text, found {_kind(matcher)}")
            try:
                matches = self._dialect.matches(matcher)
            except (re.error, OverflowError, RecursionError) as error:
                raise HookFileError(
                    f"{where}.matcher: {_short(str(matcher))} is no regular expression: {error}",
                    hint="matchers are names of tools joined by |, or regular expressions",
                ) from None
            if name in ("PreToolUse", "PostToolUse"):
                self._note_names(where, matches)
            elif name == "SessionStart" and not any(map(matches, SESSION_SOURCES)):
                sources = " or ".join(SESSION_SOURCES)
                self._notes.append(f"{where}.matcher meets no start of a session here, which is {sources}")
            if "hooks" not in group:
                raise HookFileError(f"{where}.hooks: expected a list, found nothing", hint=SHAPE)
            handlers = tuple(self._handlers(where, group["hooks"]))
            yield Group(matcher=matcher, matches=matches, handlers=handlers)

    def _note_names(self, where: str, matches: Matches) -> None:
        missed = {
            theirs: ours for theirs, ours in TOOL_NAMES.items() if matches(theirs) and not matches(ours)
        }
        if missed:
            names = ", ".join(f"{theirs} is called {ours}" for theirs, ours in missed.items())
            self._notes.append(f"{where}.matcher names tools that are called otherwise here: {names}")

    def _handlers(self, where: str, value: object) -> Iterator[Handler]:
        for at, item in enumerate(_list(value, f"{where}.hooks")):
            place = f"{where}.hooks[{at}]"
            hook = _mapping(item, place)
            if (kind := hook.get("type", "command")) != "command":
                self._notes.append(
                    f"{place} is skipped: only hooks of type command run here, not {_short(kind)}"
                )
            elif hook.get("async") is True and self._dialect.name == "codex":
                self._notes.append(f"{place} is skipped: async hooks do not run here")
            else:
                yield self._handler(place, hook)

    def _handler(self, where: str, hook: Mapping[str, Any]) -> Handler:
        command = hook.get("command")
        if not isinstance(command, str) or not command.strip() or "\0" in command:
            raise HookFileError(f"{where}.command: expected a command line, found {_short(command)}")
        if (arguments := hook.get("args")) is not None:
            if not all(isinstance(one, str) for one in _list(arguments, f"{where}.args")):
                raise HookFileError(f"{where}.args: expected texts")
            command = shlex.join([command, *arguments])
        on_failure = hook.get("onFailure")
        if on_failure not in (None, "pass", "deny"):
            raise HookFileError(f"{where}.onFailure: expected pass or deny, found {_short(on_failure)}")
        for key, meaning in (
            ("async", "it is waited for"),
            ("if", "it runs for every call that the matcher meets"),
            ("once", "it runs each time"),
        ):
            if hook.get(key):
                self._notes.append(f"{where}: `{key}` has no meaning here, {meaning}")
        return Handler(
            command=valid(command), timeout_ms=_timeout_ms(where, hook), on_failure=on_failure, where=where
        )


def _timeout_ms(where: str, hook: Mapping[str, Any]) -> float | None:
    for key in ("timeout", "timeoutSec"):
        if (found := hook.get(key)) is not None:
            if type(found) not in (int, float) or not 0 < found <= MAX_TIMER_MS / 1000:
                raise HookFileError(
                    f"{where}.{key}: expected seconds, more than 0 and at most {MAX_TIMER_MS // 1000}, "
                    f"found {_short(found)}"
                )
            return float(found * 1000)
    return None


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise HookFileError(f"{where}: expected an object, found {_kind(value)}", hint=SHAPE)
    return value


def _list(value: object, where: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise HookFileError(f"{where}: expected a list, found {_kind(value)}", hint=SHAPE)
    return value


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _short(value: object) -> str:
    return f"{value!r:.60}" if isinstance(value, str | int | float) else _kind(value)
