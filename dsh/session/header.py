"""The session header: the first line of a stored log, and what it says of the session."""

import json
from typing import Any, Literal

from msgspec import Struct

from dsh.session.error import InvalidHeader, UnsupportedLog
from dsh.session.value import FrozenDict, JsonObject, decode_strict, safe_int

FORMAT_VERSION = 0
"""The one format this program reads and writes."""

_RETIRED = ("sandboxMode", "approvalPolicy")


class SessionHeader(Struct, frozen=True, kw_only=True):
    """Where a session comes from. Absent fields are None; none of them is ever null on disk."""

    id: str
    created_at: int
    """Epoch milliseconds."""
    version: int = FORMAT_VERSION
    cwd: str | None = None
    """Absolute path of the workspace."""
    parent_session: str | None = None
    """Id of the session this one was forked from or delegated by."""
    seed_length: int | None = None
    """How many leading events come from the parent; never changes after the fork."""
    origin: Literal["subagent"] | None = None
    delegation_depth: int | None = None
    """Absent means 0."""
    agent_preset: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The nine fields in camelCase, absent ones left out, `delegationDepth` as it is in memory."""
        return {key: value for key, value in self._fields() if value is not None}

    def to_line(self) -> dict[str, Any]:
        """The first line of a stored log, keys in written order, `delegationDepth` always there."""
        line: dict[str, Any] = {"type": "session"}
        for key, value in self._fields():
            if key == "delegationDepth":
                line[key] = value or 0
            elif value is not None:
                line[key] = value
        return line

    def _fields(self) -> tuple[tuple[str, object], ...]:
        return (
            ("version", self.version),
            ("id", self.id),
            ("createdAt", self.created_at),
            ("cwd", self.cwd),
            ("parentSession", self.parent_session),
            ("seedLength", self.seed_length),
            ("origin", self.origin),
            ("delegationDepth", self.delegation_depth),
            ("agentPreset", self.agent_preset),
        )


def header_from_json(value: object, session_id: str | None = None) -> SessionHeader:
    """Check a header of in-memory shape, field by field in the order of the specification.

    Args:
        session_id: the id the header must carry, when the caller knows it.

    Raises:
        InvalidHeader: a field breaks its rule; the error names it.
        UnsupportedLog: the version is another one than `FORMAT_VERSION`.
    """
    if type(value) is not dict and type(value) is not FrozenDict:
        raise InvalidHeader(f"session header: a plain object is expected, found {type(value).__name__}")
    version = _integer(value, "version", needed=True)
    if version != FORMAT_VERSION:
        raise _other_version(version, value.get("id"))
    own_id = _text(value, "id")
    if own_id is None or own_id == "":
        raise _wrong("id", value, "a non-empty string")
    if session_id is not None and own_id != session_id:
        raise _bad("id", own_id, f"the id of the session, {session_id!r}")
    created_at = _integer(value, "createdAt", needed=True)
    cwd = _text(value, "cwd")
    if cwd is not None and not _is_absolute(cwd):
        raise _bad("cwd", cwd, "an absolute path")
    parent = _text(value, "parentSession")
    seed_length = _integer(value, "seedLength")
    origin = value.get("origin")
    if "origin" in value and origin != "subagent":
        raise _bad("origin", origin, '"subagent"')
    return SessionHeader(
        version=version,
        id=own_id,
        created_at=created_at,
        cwd=cwd,
        parent_session=parent,
        seed_length=seed_length,
        origin="subagent" if origin == "subagent" else None,
        delegation_depth=_integer(value, "delegationDepth"),
        agent_preset=_text(value, "agentPreset"),
    )


def header_from_line(line: bytes | str) -> SessionHeader:
    """Read the first line of a stored log; unknown keys are dropped.

    Raises:
        UnsupportedLog: a version other than ours, before anything else is looked at.
        InvalidHeader: not a session header, or one of its fields breaks its rule.
    """
    value = _decode_header(line)
    if not isinstance(value, dict):
        raise InvalidHeader("the first line is not a session header: not a JSON object")
    version = value.get("version")
    if type(version) in (int, float) and version != FORMAT_VERSION:
        raise _other_version(version, value.get("id"))
    if value.get("type") != "session":
        raise InvalidHeader('the first line is not a session header: type is not "session"', field="type")
    _integer(value, "version", needed=True)
    if type(value.get("id")) is not str:
        raise _wrong("id", value, "a string")
    _integer(value, "createdAt", needed=True)
    _integer(value, "delegationDepth", needed=True)
    if "origin" in value and value["origin"] != "subagent":
        raise _bad("origin", value["origin"], '"subagent"')
    _text(value, "agentPreset")
    for key in _RETIRED:
        if key in value:
            raise InvalidHeader(f"session header: {key} is a retired field", field=key)
    return header_from_json(value)


def _decode_header(line: bytes | str) -> object:
    value = decode_strict(line)
    if not isinstance(value, dict) or 0 not in value.values():
        return value
    # A header says `-0` only by damage, and the ordinary reader takes it for 0.
    text = line.decode("utf-8") if isinstance(line, bytes) else line
    return json.loads(text, parse_int=lambda digits: -0.0 if digits == "-0" else int(digits))


def _other_version(version: Any, session_id: object) -> UnsupportedLog:
    advice = (
        "it was written by a newer program; upgrade dsh to open it"
        if version > FORMAT_VERSION
        else "there is no way to upgrade it"
    )
    return UnsupportedLog(
        f"session {session_id!r:.100} uses log format {version}, this program reads format "
        f"{FORMAT_VERSION}: {advice}"
    )


def _bad(field: str, found: object, expected: str) -> InvalidHeader:
    told = "null" if found is None else f"{found!r:.100}"
    return InvalidHeader(f"session header: {field} is {expected}, found {told}", field=field)


def _wrong(field: str, value: JsonObject, expected: str) -> InvalidHeader:
    if field in value:
        return _bad(field, value[field], expected)
    return InvalidHeader(f"session header: {field} is missing, {expected} is needed", field=field)


def _integer(value: JsonObject, key: str, *, needed: bool = False) -> Any:
    """The safe integer from 0 under a key; None where an optional one is absent."""
    if key not in value and not needed:
        return None
    number = safe_int(value.get(key))
    if number is None or (number < 0 and key != "version"):
        raise _wrong(key, value, "a safe integer from 0")
    return number


def _text(value: JsonObject, key: str) -> str | None:
    if key not in value:
        return None
    if type(value[key]) is not str:
        raise _bad(key, value[key], "a string")
    text: str = value[key]
    return text


def _is_absolute(path: str) -> bool:
    windows = len(path) > 2 and path[0].isalpha() and path[1] == ":" and path[2] in "/\\"
    return path.startswith(("/", "\\\\")) or windows
