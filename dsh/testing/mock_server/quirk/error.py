"""Refusals: HTTP errors as servers and what stands before them word them."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import get_args

import msgspec

from dsh.testing.mock_server.dialect.base import Behaviour, Dialect, refused
from dsh.testing.mock_server.part import Fault, FaultKind
from dsh.testing.mock_server.plan import JSON_HEADERS, MockOptions, Plan


def _fault(kind: FaultKind) -> Behaviour:
    return lambda d, o: refused(d, Fault(kind), o)


def _limited(headers: Callable[[Dialect, MockOptions], Mapping[str, str]]) -> Behaviour:
    """A rate limit that tells its end in another way than whole seconds."""

    def plan(d: Dialect, o: MockOptions) -> Plan:
        refusal = refused(d, Fault("rate_limit"), o)
        return msgspec.structs.replace(refusal, headers={**JSON_HEADERS, **headers(d, o)})

    return plan


def _reset(d: Dialect, o: MockOptions) -> Mapping[str, str]:
    """When the limit is lifted: a duration in OpenAI's headers, a time of day in Anthropic's."""
    if d.name != "anthropic":
        return {
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-requests": f"{o.retry_after_ms:g}ms",
        }
    end = datetime.now(UTC) + timedelta(milliseconds=o.retry_after_ms)
    until = end.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": until,
    }


def _date(d: Dialect, o: MockOptions) -> Mapping[str, str]:
    end = datetime.now(UTC) + timedelta(milliseconds=o.retry_after_ms)
    return {"retry-after": format_datetime(end, usegmt=True)}


def _json_error(d: Dialect, o: MockOptions) -> Plan:
    """A 200 whose body is an error, plainly."""
    return Plan(headers=JSON_HEADERS, steps=refused(d, Fault("server_error", "internal error"), o).steps)


def _page(status: int, body: bytes, charset: str = "utf-8") -> Behaviour:
    headers = {"content-type": f"text/html; charset={charset}"}
    return lambda d, o: Plan(status=status, headers=headers, steps=(body,) if body else ())


LOGIN = b"<!doctype html><html><head><title>Log in</title></head><body><p>Welcome to the WiFi.</p></body>"
GATEWAY = (
    b"<html><head><title>502 Bad Gateway</title></head><body>" + b"<p>nginx</p>" * 3400 + b"</body></html>"
)
FORBIDDEN = "<html><body><h1>Zugriff verweigert</h1><p>Prüfen Sie Ihren Schlüssel.</p></body></html>"
NOT_FOUND = b"<html><head><title>404 Not Found</title></head><body>nothing here</body></html>"

ERRORS: Mapping[str, Behaviour] = {
    **{kind: _fault(kind) for kind in get_args(FaultKind)},
    "rate_limit_ms": _limited(lambda d, o: {"retry-after-ms": f"{o.retry_after_ms:g}"}),
    "rate_limit_date": _limited(_date),
    "rate_limit_reset": _limited(_reset),
    "rate_limit_untold": _limited(lambda d, o: {}),
    "json_error": _json_error,
    "error_without_message": lambda d, o: Plan(
        status=500, headers=JSON_HEADERS, steps=(b'{"error":{"detail":7}}',)
    ),
    "error_as_text": lambda d, o: Plan(
        status=500, headers=JSON_HEADERS, steps=(b'{"error":"out of order"}',)
    ),
    "empty_unavailable": _page(503, b""),
    "html_page": _page(200, LOGIN),
    "gateway_page": _page(502, GATEWAY),
    "latin1_page": _page(403, FORBIDDEN.encode("latin-1"), "iso-8859-1"),
    "wrong_path": _page(404, NOT_FOUND),
    "redirect": lambda d, o: Plan(status=307, headers={"location": "http://127.0.0.1:9/elsewhere"}),
}
