"""A request equals the fold of the log: checked for every request of the loop, in every run.

The messages are compared by identity with what the session derives at the moment of dispatch, and every
field of the head with the folded header (`spec/agent-loop.md` §7.2). What fails here is a bug, never a
user's mistake, and ends the turn before anything is sent.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any
from weakref import WeakSet

from dsh.agent.failure import InvariantError
from dsh.agent.transcript import answered
from dsh.llm.request import LlmRequest
from dsh.session.chunk import Chunk
from dsh.session.log import Session
from dsh.session.request_header import canonical_header, headers_equal
from dsh.session.value import FrozenDict

_built: "WeakSet[LlmRequest]" = WeakSet()


def mark(request: LlmRequest) -> LlmRequest:
    """Note that the loop built this request, so that `guard` checks it."""
    _built.add(request)
    return request


def is_marked(request: LlmRequest) -> bool:
    """Whether the loop built it; titles, summaries and foreign requests are not checked."""
    return request in _built


def guard(
    request: LlmRequest, following: Callable[[], AsyncIterator[Chunk]], live: Callable[[str], Session | None]
) -> AsyncIterator[Chunk]:
    """The listener around `llm/stream`: checks a marked request, then lets it go."""
    if is_marked(request):
        session = live(request.session_id) if request.session_id else None
        if session is None:
            raise InvariantError(f"a request names session {request.session_id!r}, which is not live")
        check_request(request, session)
    return following()


def check_request(request: LlmRequest, session: Session) -> None:
    """Compare a request with what the session's log says it is.

    Raises:
        InvariantError: they differ; the message names the first difference.
    """
    if session.open_step is None:
        raise InvariantError(f"a request of session {session.id} leaves outside any step")
    header = session.request_header
    if header is None:
        raise InvariantError(f"a request of session {session.id} leaves before any request/header")
    _compare_messages(request, session)
    config = request.config.to_json()
    if unknown := config.keys() - _CONFIG_FIELDS:
        raise InvariantError(f"the request's config has unknown fields: {', '.join(sorted(unknown))}")
    sent: dict[str, Any] = {
        "config": config,
        "adapterDefaults": header.get("adapterDefaults"),
        "system": request.system,
        "tools": [tool.to_json() for tool in request.tools],
    }
    if not headers_equal(canonical_header(sent), header):
        field = _first_difference(sent, header)
        raise InvariantError(f"{field} of a request differs from the request/header of {session.id}")


_CONFIG_FIELDS = {"provider", "model", "reasoningEffort", "temperature", "maxTokens", "stop"}


def _compare_messages(request: LlmRequest, session: Session) -> None:
    derived = session.derive_messages()
    if type(request.messages) is not tuple:
        raise InvariantError("the messages of a request are not frozen")
    if request.messages is derived or _same(request.messages, derived):
        return
    mended = answered(derived, lambda _: True)
    if [m["id"] for m in request.messages] != [m["id"] for m in mended]:
        raise InvariantError(
            f"a request of session {session.id} has {len(request.messages)} messages that are not the "
            f"{len(derived)} its log derives"
        )


def _same(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))


def _first_difference(sent: dict[str, Any], header: FrozenDict) -> str:
    for field in sorted(_CONFIG_FIELDS):
        if sent["config"].get(field) != header["config"].get(field):
            return field
    return "system" if (sent["system"] or "") != header.get("system", "") else "tools"
