"""Tool call ids as the Messages wire takes them: `[A-Za-z0-9_-]`, each of them once in a request."""

import hashlib
import re

MAX_ID_CHARS = 64
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_FIT = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class WireIds:
    """Gives each call of a conversation its id on the wire. State: the ids given so far.

    An id that fits and was not given yet stays as it is. What a call gets depends on the calls before it
    alone, so that a longer history begins with the ids of a shorter one.
    """

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._counts: dict[str, int] = {}

    def give(self, call_id: str) -> str:
        """An id for one more call that its history names `call_id`."""
        base = call_id if _FIT.match(call_id) else _fitted(call_id)
        wire_id, count = base, self._counts.get(base, 1)
        while wire_id in self._given:
            count += 1
            suffix = f"-{count}"
            wire_id = base[: MAX_ID_CHARS - len(suffix)] + suffix
        self._counts[base] = count
        self._given.add(wire_id)
        return wire_id


def _fitted(call_id: str) -> str:
    """The id in characters that fit, with a mark of what it was: other ids become other ids."""
    mark = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{_FOREIGN.sub('_', call_id)[:48]}_{mark}"
