"""Where the next page of a search begins, as an opaque text that fits one search of one index only."""

import base64
import binascii
import hashlib

import msgspec

from dsh.capabilities.session_query import SearchRequest
from dsh.capabilities.session_query_error import SessionQueryError


class _Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    instance: str
    request: str
    generation: str
    offset: int


class Cursors:
    """Makes and reads the cursors of one index; `instance` tells it from every other."""

    def __init__(self, instance: str) -> None:
        self._instance = instance

    def make(self, kind: str, request: SearchRequest, generation: str, offset: int) -> str:
        cursor = _Cursor(self._instance, _digest(kind, request), generation, offset)
        return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode()

    def offset(self, kind: str, request: SearchRequest, generation: str) -> int:
        """Where the page of this request begins.

        Raises:
            SessionQueryError: INVALID_CURSOR, it is none or of another search; STALE_CURSOR, the index has
                changed or been opened anew since.
        """
        if request.cursor is None:
            return 0
        try:
            cursor = msgspec.json.decode(
                base64.b64decode(request.cursor, altchars=b"-_", validate=True), type=_Cursor
            )
        except (binascii.Error, ValueError, TypeError, msgspec.MsgspecError):
            raise SessionQueryError("INVALID_CURSOR", "the cursor is none of this service's") from None
        if cursor.request != _digest(kind, request) or cursor.offset < 1:
            raise SessionQueryError("INVALID_CURSOR", "the cursor belongs to another search")
        if cursor.instance != self._instance or cursor.generation != generation:
            raise SessionQueryError(
                "STALE_CURSOR", "the index has changed since", hint="search again from the first page"
            )
        return cursor.offset


def _digest(kind: str, request: SearchRequest) -> str:
    """Tells one search from another; the size of its pages may differ."""
    asked = repr((kind, request.query, request.sessions, request.events))
    return hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()[:32]
