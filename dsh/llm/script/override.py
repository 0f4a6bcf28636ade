"""Overrides: what a script file says in place of recorded calls (`spec/front-ends.md` §10.2).

A bare list of entries replaces all calls. `{"patches": [{"at", "entry"}]}` exchanges some; `at` equal to the
number of calls appends one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dsh.errors import DshError
from dsh.llm.failure import LlmFailure
from dsh.llm.grammar import StreamGrammar
from dsh.llm.script.call import Call
from dsh.llm.script.entry import PARTIAL, Chunks, Hang, ScriptEntry, Throw
from dsh.llm.script.error import INVALID, ScriptError
from dsh.llm.script.placeholder import check_placeholders
from dsh.llm.script.recording import read_regular
from dsh.session.chunk import Chunk, Finish, chunk_from_json
from dsh.session.error import JsonError
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
            return [Call(entry=_entry(entry, str(i))) for i, entry in enumerate(entries)]
        patches = msgspec.convert(document, _Patches).patches
        made = [(patch.at, _entry(patch.entry, f"patches.{i}.entry")) for i, patch in enumerate(patches)]
        return _patched(calls, made)
    except ValueError as error:  # those of msgspec too
        raise ScriptError(INVALID, str(error)) from None


def _patched(calls: Sequence[Call], patches: Sequence[tuple[int, ScriptEntry]]) -> list[Call]:
    out = list(calls)
    counted = [i for i, call in enumerate(calls) if call.is_counted]
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
                f"patches: `at` is {at}, but the calls of the recording are {len(counted)}: "
                f"0 to {len(counted)} is possible"
            )
    return out


def _repeated(places: Sequence[int]) -> int:
    return next(at for i, at in enumerate(places) if at in places[:i])


def _entry(given: _Chunks | _Throw | _Hang, place: str) -> ScriptEntry:
    try:
        match given:
            case _Chunks():
                return Chunks(_chunks(given.chunks, is_whole=True))
            case _Throw():
                failure = LlmFailure(
                    given.message, given.code, given.status, given.provider_retry_after_ms, given.request_id
                )
                check_placeholders(given.message)
                return Throw(_chunks(given.chunks), failure)
            case _Hang():
                return Hang(PARTIAL if given.chunks is None else _chunks(given.chunks), given.ready_file)
    except (DshError, ValueError) as error:
        raise ValueError(f"{place}: {error}") from None


def _chunks(values: Sequence[Any], *, is_whole: bool = False) -> tuple[Chunk, ...]:
    """The chunks of a reply, or of the beginning of one, as the grammar of streams allows them."""
    check_placeholders(values)
    chunks, grammar = tuple(chunk_from_json(value) for value in values), StreamGrammar()
    for chunk in chunks:
        if isinstance(chunk, Finish) and not is_whole:
            raise ValueError("a reply that breaks off has no finish")
        grammar.check(chunk)
    if is_whole:
        grammar.end()
    return chunks


def _wrong(path: Path, problem: str) -> ScriptError:
    return ScriptError(INVALID, f"{path}: {problem}")
