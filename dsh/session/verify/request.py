"""What requests were sent with: headers and their reasons, routes, and the recorded digests."""

from collections.abc import Callable, Mapping
from typing import Any

from dsh.session.derive import Derivation
from dsh.session.digest import ALGORITHM, REQUEST_DIGEST, RequestDigest
from dsh.session.error import SurfaceError
from dsh.session.event import SURFACE_TYPES, SessionEvent
from dsh.session.request_header import canonical_header, headers_equal
from dsh.session.surface import SurfaceState
from dsh.session.value import FrozenDict, encode, json_equal, safe_int
from dsh.session.verify.finding import Findings, quoted


class Requests:
    """Follows the request header, the route and the surface, so that each request can be computed again."""

    def __init__(self, findings: Findings, lookup: Callable[[int], SessionEvent]) -> None:
        self._findings = findings
        self._lookup = lookup
        self._header: FrozenDict | None = None
        self._is_new_loop = False
        """`session/end-seed` came after the last header: another process goes on from here."""
        self._route: Any = None
        self._surface = SurfaceState()
        self._derivation = Derivation()
        self._digest = RequestDigest()
        self._step: tuple[int | None, int | None] | None = None
        """Turn and number of the open step."""
        self._retry: Mapping[str, Any] | None = None
        """The payload of the `llm/retry` that has not started."""
        self._attempt = 0
        """How many requests of the open step have a digest."""
        self.checked = 0
        """Digests that were computed again."""
        self._has_digests = False
        """This writer records a digest of each request."""

    def see(self, event: SessionEvent) -> None:
        """Take the next event; packed deltas say nothing here."""
        if event.type in SURFACE_TYPES:
            if event.type == "assistant/message":
                self._check_reply(event)
            self._commit(event)
            return
        match event.type:
            case "session/end-seed":
                self._is_new_loop, self._has_digests = True, False
            case "request/header":
                self._check_header(event)
            case "request/context":
                self._check_route(event)
            case "step/start":
                self._step, self._retry, self._attempt = _place(event.data), None, 0
            case "step/end" | "turn/end":
                self._step = self._retry = None
            case "llm/retry":
                self._check_place("RETRY", event)
                self._retry = _object(event.data)
            case "llm/retry-started":
                self._check_retry(event)
            case "request/digest":
                self._check_digest(event)

    def _commit(self, event: SessionEvent) -> None:
        keys: dict[str, Any] = {"surfaceOp": event.surface}
        if event.sources is not None:
            keys["sourceEventSeqs"] = event.sources
        try:
            plan = self._surface.plan(event.type, event.seq, event.data, keys, self._lookup)
        except SurfaceError as error:  # such a log does not open; the surface here follows the same rules
            self._findings.error("SURFACE", event.seq, error.message)
        else:
            self._surface.commit(event.seq, plan)

    def _check_header(self, event: SessionEvent) -> None:
        logged, reason = event.data["header"], event.data.get("reason")
        header, before = canonical_header(logged), self._header
        if before is None:
            implied = "initial"
        elif self._is_new_loop:
            implied = "resume"
        else:
            implied = "change"
        # A loop that is built anew in one process resumes too, and leaves no mark.
        if reason != implied and not (implied == "change" and reason == "resume"):
            said = (
                f"request/header: the reason is {quoted(reason)}, what stands before it implies {implied!r}"
            )
            self._findings.error("HEADER_REASON", event.seq, said)
        elif reason == "change" and before is not None and headers_equal(header, before):
            if encode(header) == encode(before):
                said = "request/header: nothing has changed since the one before"
                self._findings.error("HEADER_UNCHANGED", event.seq, said)
            else:
                said = "request/header: only the order of keys has changed since the one before"
                self._findings.warning("HEADER_REORDERED", event.seq, said)
        self._header, self._is_new_loop = header, False

    def _check_route(self, event: SessionEvent) -> None:
        if self._route is not None and json_equal(self._route, event.data):
            said = "request/context: the same route as before is recorded again"
            self._findings.warning("CONTEXT_UNCHANGED", event.seq, said)
        self._route = event.data
        if self._header is not None:
            self._check_route_of("CONTEXT_DIFFERS", event, _object(event.data))

    def _check_route_of(self, code: str, event: SessionEvent, found: Mapping[str, Any]) -> None:
        """Whether provider and model are those that the request header names."""
        asked = self._header["config"] if self._header is not None else {}
        for key in ("provider", "model"):
            if found.get(key) != asked.get(key):
                said = (
                    f"{event.type}: the {key} is {quoted(found.get(key))}, "
                    f"the request went to {quoted(asked.get(key))}"
                )
                self._findings.error(code, event.seq, said)

    def _check_place(self, code: str, event: SessionEvent) -> None:
        """Whether an event about a request names the step that is open."""
        named = _place(event.data)
        if named != self._step:
            where = (
                "none is open" if self._step is None else f"open is {self._step[1]} of turn {self._step[0]}"
            )
            said = f"{event.type} names step {quoted(named[1])} of turn {quoted(named[0])}, {where}"
            self._findings.error(code, event.seq, said)

    def _check_retry(self, event: SessionEvent) -> None:
        announced, self._retry = self._retry, None
        started = _object(event.data)
        keys = ("retryId", "turn", "step", "retry")
        if announced is None or any(announced.get(key) != started.get(key) for key in keys):
            said = "llm/retry-started: no llm/retry right before it announces this attempt"
            self._findings.error("RETRY", event.seq, said)

    def _check_reply(self, event: SessionEvent) -> None:
        if event.surface != "append":
            return
        if self._header is None:
            said = "assistant/message: no request/header stands before it"
            self._findings.warning("REPLY_WITHOUT_HEADER", event.seq, said)
            return
        if self._has_digests and self._attempt == 0:
            said = "assistant/message: no digest of its request is recorded, those before have one"
            self._findings.warning("DIGEST_MISSING", event.seq, said)
        self._check_route_of("REPLY_FROM_OTHER", event, event.data["message"]["source"])

    def _check_digest(self, event: SessionEvent) -> None:
        data = _object(event.data)
        self._has_digests = True
        self._check_place("DIGEST_PLACE", event)
        self._attempt += 1
        if data.get("algorithm") != ALGORITHM:
            said = (
                f"{REQUEST_DIGEST}: algorithm {quoted(data.get('algorithm'))} is unknown, it was not checked"
            )
            self._findings.warning("DIGEST_UNCHECKED", event.seq, said)
            return
        if self._header is None:
            said = f"{REQUEST_DIGEST}: no request/header stands before it"
            self._findings.error("DIGEST_DIFFERS", event.seq, said)
            return
        messages = self._derivation.messages(self._surface, self._lookup)
        if safe_int(data.get("messages")) != len(messages):
            said = (
                f"{REQUEST_DIGEST}: recorded are {quoted(data.get('messages'))} messages, "
                f"the log derives {len(messages)}"
            )
            self._findings.error("DIGEST_DIFFERS", event.seq, said)
            return
        self.checked += 1
        found = self._digest.of(self._header, messages, self._surface.generation)
        if data.get("digest") != found:
            said = (
                f"{REQUEST_DIGEST}: recorded is {quoted(data.get('digest'))}, "
                f"the request that the log derives has {found!r}"
            )
            self._findings.error("DIGEST_DIFFERS", event.seq, said)
        if safe_int(data.get("attempt")) != self._attempt:
            said = f"{REQUEST_DIGEST}: attempt {quoted(data.get('attempt'))}, this is number {self._attempt}"
            self._findings.error("DIGEST_ATTEMPT", event.seq, said)


def _object(data: Any) -> Mapping[str, Any]:
    """A payload, which may be of any shape."""
    return data if isinstance(data, Mapping) else {}


def _place(data: Any) -> tuple[int | None, int | None]:
    found = _object(data)
    return safe_int(found.get("turn")), safe_int(found.get("step"))
