"""The digest of a model request, computed from the log alone, so that any request can be proved afterwards.

It is the SHA-256 of one JSON text: `{config, messages, system, tools}` as folded from the log, compact, keys
sorted by code point, ASCII with everything else escaped as `\\uXXXX`, and `system` and `tools` left out where
they are absent or empty (`design.md` §10.9). Sorted so, the messages come before what follows them, and the
text of a request is that of the one before it plus a few messages: they are hashed once.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dsh.session.value import JsonObject, JsonValue

ALGORITHM = "sha256"
REQUEST_DIGEST = "request/digest"

_encoder = msgspec.json.Encoder(order="sorted")
_ESCAPED = re.compile("[^\x00-\x7e]")
"""As the JSON writer of Python's standard library does it, the control character DEL too."""


def canonical_json(value: JsonValue) -> bytes:
    """Compact ASCII JSON with sorted keys; numbers as the log writes them, lone surrogates escaped too."""
    try:
        text = _encoder.encode(value)
    except UnicodeEncodeError:
        return _with_surrogates(value).encode("ascii")
    if text.isascii() and b"\x7f" not in text:
        return text
    return _ESCAPED.sub(_escaped, text.decode()).encode("ascii")


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found.group())[1:-1]


def _with_surrogates(value: JsonValue) -> str:
    """The same for a value that the encoder refuses; one frame a level, and a log has at most 512."""
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, Mapping):
        members = []
        for key in sorted(value):
            members.append(f"{json.dumps(key)}:{_with_surrogates(value[key])}")
        return "{" + ",".join(members) + "}"
    if isinstance(value, list | tuple):
        items = []
        for item in value:
            items.append(_with_surrogates(item))
        return "[" + ",".join(items) + "]"
    return _encoder.encode(value).decode("ascii")


class RequestDigest:
    """Digests of the requests of one session, in the order they are made.

    State: the hash over the messages so far, which belongs to one config and one generation of the surface,
    and the text of the last header.
    """

    def __init__(self) -> None:
        self._header: JsonObject | None = None
        self._hash = hashlib.sha256()
        self._prefix = self._suffix = b""
        self._generation = -1
        self._count = 0

    def of(self, header: JsonObject, messages: Sequence[JsonObject], generation: int) -> str:
        """The digest of one request, in hex. Costs as much as there are new messages.

        Args:
            header: the request header in canonical form; the same object has the same text.
            messages: what is derived from the log.
            generation: how many replacements there have been on the surface; while it stays, the messages
                of an earlier call are taken to be the first of these.
        """
        if header is not self._header:
            prefix = b'{"config":' + canonical_json(header["config"]) + b',"messages":['
            if prefix != self._prefix:
                self._prefix, self._generation = prefix, -1
            self._header, self._suffix = header, _after_messages(header)
        if generation != self._generation:
            self._hash = hashlib.sha256(self._prefix)
            self._generation, self._count = generation, 0
        for position in range(self._count, len(messages)):
            if position:
                self._hash.update(b",")
            self._hash.update(canonical_json(messages[position]))
        self._count = len(messages)
        closed = self._hash.copy()
        closed.update(self._suffix)
        return closed.hexdigest()


def _after_messages(header: JsonObject) -> bytes:
    parts = [b"]"]
    for key in ("system", "tools"):
        if header.get(key):
            parts.append(b',"%s":%b' % (key.encode(), canonical_json(header[key])))
    return b"".join(parts) + b"}"


def digest_payload(turn: int, step: int, attempt: int, digest: str, messages: int) -> dict[str, Any]:
    """The payload of `request/digest`, an ignorable event.

    Args:
        attempt: 1 for the first request of the step, one more for each retry.
        messages: how many messages the request holds.
    """
    return {
        "turn": turn,
        "step": step,
        "attempt": attempt,
        "algorithm": ALGORITHM,
        "digest": digest,
        "messages": messages,
    }
