"""The end of a stored log as entries, without what stands in front of it.

Retired vocabulary, old shapes, message shapes and known types are checked as in a whole log; envelope,
surface and relations are not, since they need what came before (`spec/persistence.md` §2).
"""

from collections.abc import Iterator
from typing import Any

from dsh.persistence.backend import Backend, Tail
from dsh.persistence.error import OtherVersion, SessionCorruption, UnknownType
from dsh.persistence.view import build_view
from dsh.session.chunk_run import ChunkRun, Entry, entry_start
from dsh.session.envelope import event_from_json
from dsh.session.error import InvalidEvent, JsonError, UnsupportedLog
from dsh.session.legacy import LegacyReader
from dsh.session.restore import check_known
from dsh.session.value import JsonObject, safe_int
from dsh.session.vocabulary import check_retired, check_stored_message


class _NeedsBeginning(Exception):
    """An old shape that cannot be converted without an earlier event."""


def read_tail(backend: Backend[Any], session_id: str, seq: int) -> tuple[Entry, ...] | None:
    """The stored events from `seq` on, packed and without closers; None where no such session is stored.

    Raises:
        SessionCorruption, SessionFormatUnsupported, OSError
    """
    tail = backend.load_from(session_id, seq)
    if tail is None:
        return None
    place = backend.find(session_id) or backend.name
    try:
        return tuple(_checked(tail, seq))
    except _NeedsBeginning:
        stored = backend.load(session_id)
        if stored is None:
            return None
        view = build_view(stored)
        return tuple(entry for entry in view.entries(seq) if entry_start(entry) < view.stored_length)
    except UnsupportedLog as error:
        kind = OtherVersion if error.index is None else UnknownType
        raise kind(f"{error} (raw log: {place})", path=place, hint=error.hint) from error
    except (InvalidEvent, JsonError) as error:
        raise SessionCorruption(f"behind seq {seq}: {error}", path=place) from error


def _checked(tail: Tail, seq: int) -> Iterator[Entry]:
    legacy = LegacyReader(tail.header.id)
    for index, entry in enumerate(tail.entries):
        if isinstance(entry, ChunkRun):
            yield entry
            continue
        check_retired(str(entry.get("type")), entry.get("data"))
        current = legacy.convert(entry)
        if current is not entry and _points_before(current, seq):
            raise _NeedsBeginning
        check_stored_message(str(current.get("type")), current.get("data"))
        check_known(index, current)
        yield event_from_json(current)


def _points_before(event: JsonObject, seq: int) -> bool:
    surface = event.get("surfaceOp")
    start = safe_int(surface.get("start")) if isinstance(surface, dict) else None
    return start is not None and start < seq
