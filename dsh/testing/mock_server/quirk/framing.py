"""One and the same reply in every framing that server-sent events and HTTP allow."""

import re
from collections.abc import Callable, Mapping

from dsh.testing.mock_server.dialect.base import Behaviour, Dialect, replying, streamed
from dsh.testing.mock_server.part import Part, Text, said, whole
from dsh.testing.mock_server.plan import JSON_HEADERS, MockOptions, Pause, Plan

HUGE_CHARS = 1_000_000
MIXED = "héllo wörld 🏷 한국어"
SEPARATORS = "line\u2028paragraph\u2029next\x85tab\x0bfeed\x0c"


def _success(o: MockOptions) -> list[Part]:
    return whole(*said(o.success_text, o))


def _sent(d: Dialect, o: MockOptions) -> bytes:
    return streamed(d, _success(o)).sent()


def _cut(sent: bytes, size: int) -> Plan:
    return Plan(steps=tuple(sent[at : at + size] for at in range(0, len(sent), size)))


def _recast(cast: Callable[[bytes], bytes]) -> Behaviour:
    """The bytes of a plain reply, changed."""
    return lambda d, o: Plan(steps=(cast(_sent(d, o)),))


def _bare_fields(sent: bytes) -> bytes:
    """No blank after the colon, and fields that nobody asked for."""
    return sent.replace(b"data: ", b"id:7\nretry: 10\nx\ndata:").replace(b"event: ", b"event:")


def _two_data_lines(sent: bytes) -> bytes:
    """Each payload on two lines of data, cut where JSON allows a line end."""
    return re.sub(rb'(?m)^data: (\{"[^"]*":)', rb"data: \1\ndata: ", sent)


def _mixed_line_ends(sent: bytes) -> bytes:
    """CRLF, CR and LF take turns, event by event."""
    events = sent.split(b"\n\n")
    ends = (b"\r\n", b"\r", b"\n")
    return b"".join(
        event.replace(b"\n", ends[at % 3]) + ends[at % 3] * 2 for at, event in enumerate(events) if event
    )


def _keep_alive_comments(d: Dialect, o: MockOptions) -> Plan:
    parts: list[Part] = [b": keep-alive\n\n"]
    for part in _success(o):
        parts += [part, Pause(o.chunk_delay_ms), b": keep-alive\n\n", Pause(o.chunk_delay_ms)]
    return streamed(d, parts[:-3])


def _invalid_utf8(d: Dialect, o: MockOptions) -> Plan:
    sent = streamed(d, whole(Text("bad @@ byte"))).sent()
    return Plan(steps=(sent.replace(b"@@", b"\xff"),))


FRAMINGS: Mapping[str, Behaviour] = {
    "wrong_content_type": lambda d, o: Plan(headers=JSON_HEADERS, steps=(_sent(d, o),)),
    "unicode_separators": replying(lambda o: whole(Text(SEPARATORS))),
    "split_utf8": lambda d, o: _cut(streamed(d, whole(Text(MIXED))).sent(), 7),
    "byte_by_byte": lambda d, o: _cut(streamed(d, whole(Text(MIXED))).sent(), 1),
    "lone_surrogate": replying(lambda o: whole(Text("half \ud83d pair"))),
    "invalid_utf8": _invalid_utf8,
    "huge_event": replying(lambda o: whole(Text("x" * HUGE_CHARS))),
    "keep_alive_comments": _keep_alive_comments,
    "crlf": _recast(lambda sent: sent.replace(b"\n", b"\r\n")),
    "mixed_line_ends": _recast(_mixed_line_ends),
    "bare_fields": _recast(_bare_fields),
    "two_data_lines": _recast(_two_data_lines),
    "one_piece": _recast(lambda sent: sent),
    "byte_order_mark": _recast(lambda sent: b"\xef\xbb\xbf" + sent),
    "done_without_blank_line": _recast(lambda sent: sent.rstrip(b"\n")),
}
"""Every one is a whole reply. All but those about characters and size say `success_text`."""
