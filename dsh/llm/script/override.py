"""Overrides: what a script file says in place of recorded calls (`spec/front-ends.md` §10.2).

A bare list of entries replaces all calls. `{"patches": [{"at", "entry"}]}` exchanges some; `at` equal to the
number of calls appends one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dsh.llm.failure import LlmFailure
from dsh.llm.script.call import Call
from dsh.llm.script.entry import PARTIAL, Chunks, Hang, ScriptEntry, Throw
from dsh.llm.script.error import INVALID, ScriptError
from dsh.llm.script.recording import read_regular
from dsh.session.chunk import Chunk, chunk_from_json
from dsh.session.error import InvalidEvent, JsonError
from dsh.session.value import decode_strict


class _Chunks(msgspec.Struct, tag_field="kind", tag="chunks", forbid_unknown_fields=True):
    chunks: list[Any]


class _Throw(
    msgspec.Struct, tag_field="kind", tag="throw", forbid_unknown_fields=True, rename="camel", kw_only=True
):
    chunks: list[Any]
    message: str
    code: str
    status: int | None = None
    provider_retry_after_ms: float | None = None
    request_id: str | None = None


class _Hang(msgspec.Struct, tag_field="kind", tag="hang", forbid_unknown_fields=True, rename="camel"):
    ready_file: str | None = None
    chunks: list[Any] | None = None


class _Patch(msgspec.Struct, forbid_unknown_fields=True):
    at: int
    entry: _Chunks | _Throw | _Hang


class _Patches(msgspec.Struct, forbid_unknown_fields=True):
    patches: list[_Patch]


_Entries = list[_Chunks | _Throw | _Hang]


def read_override(path: Path, calls: Sequence[Call]) -> list[Call]:
    """The calls as the override file leaves them; a file that does not exist changes nothing.

    Raises:
        ScriptError: `SCRIPT_INVALID`, it is not what an override must be, or cannot be read.
    """
    try:
        data = read_regular(path)
    except FileNotFoundError:
        return list(calls)
    except (OSError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) else str(error)
        raise _wrong(path, f"cannot be read: {told}") from None
    try:
        return overridden(calls, decode_strict(data))
    except (JsonError, ScriptError) as error:
        raise _wrong(path, str(error)) from None


def overridden(calls: Sequence[Call], document: object) -> list[Call]:
    """The same for a document that is at hand."""
    try:
        if isinstance(document, list):
            entries = msgspec.convert(document, _Entries)
            return [Call(entry=_entry(entry)) for entry in entries]
        patches = msgspec.convert(document, _Patches).patches
        return _patched(calls, [(patch.at, _entry(patch.entry)) for patch in patches])
    except (msgspec.ValidationError, InvalidEvent, ValueError) as error:
        raise ScriptError(INVALID, str(error)) from None


def _patched(calls: Sequence[Call], patches: Sequence[tuple[int, ScriptEntry]]) -> list[Call]:
    """The calls that were surely made are counted; titles have an order of their own and are not."""
    out = list(calls)
    counted = [i for i, call in enumerate(calls) if call.is_needed and call.purpose != "session-title"]
    places = [at for at, _ in patches]
    if len(set(places)) < len(places):
        raise ValueError(f"patches: `at` {_repeated(places)} stands twice")
    for at, entry in sorted(patches, key=lambda patch: patch[0]):
        if 0 <= at < len(counted):
            place = counted[at]
            out[place] = msgspec.structs.replace(out[place], entry=entry, cut=None)
        elif at == len(counted):
            counted.append(len(out))
            out.append(Call(entry=entry))
        else:
            raise ValueError(
                f"patches: `at` is {at}, but there are {len(counted)} calls: 0 to {len(counted)} is possible"
            )
    return out


def _repeated(places: Sequence[int]) -> int:
    return next(at for i, at in enumerate(places) if at in places[:i])


def _entry(given: _Chunks | _Throw | _Hang) -> ScriptEntry:
    match given:
        case _Chunks():
            return Chunks(_chunks(given.chunks))
        case _Throw():
            failure = LlmFailure(
                given.message, given.code, given.status, given.provider_retry_after_ms, given.request_id
            )
            return Throw(_chunks(given.chunks), failure)
        case _Hang():
            return Hang(PARTIAL if given.chunks is None else _chunks(given.chunks), given.ready_file)


def _chunks(values: Sequence[Any]) -> tuple[Chunk, ...]:
    return tuple(chunk_from_json(value) for value in values)


def _wrong(path: Path, problem: str) -> ScriptError:
    return ScriptError(INVALID, f"{path}: {problem}")
