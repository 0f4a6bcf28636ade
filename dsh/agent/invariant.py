"""A request equals the fold of the log: checked for every request of the loop, in every run.

What the builder remembers is not believed. The part of the surface that is new since the last check is
projected again from the log's events, mended and cleaned, and compared with the messages of the request; the
part before must be the very objects that were checked then. The head is compared with the last header event,
every field of it (`spec/agent-loop.md` §7.2). What fails here is a bug, never a user's mistake, and ends the
turn before anything is sent.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from itertools import islice
from operator import is_
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from dsh.agent.failure import InvariantError
from dsh.agent.transcript import Started, outgoing, settled_before
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.session.chunk import Chunk
from dsh.session.derive import project
from dsh.session.digest import REQUEST_DIGEST, canonical_json
from dsh.session.log import Session
from dsh.session.message import Message, ToolSchema
from dsh.session.request_header import canonical_header, headers_equal
from dsh.session.value import EMPTY, FrozenDict

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
    """Compare a request with what the session's log says it is. Costs as much as there is new in it.

    Raises:
        InvariantError: they differ; the message names the first difference.
    """
    checked = _checked.get(session)
    if checked is None:
        checked = _checked[session] = _Checked()
    _check_place(session)
    checked.check_messages(request, session)
    checked.check_head(request, session)


class _Checked:
    """What of one session has been checked. State: a part of the surface, the objects that went out for it,
    and the last header with what was sent under it."""

    def __init__(self) -> None:
        self._generation = -1
        self._nodes = 0
        """How many nodes of the surface are settled."""
        self._messages: tuple[Message, ...] = ()
        self._count = 0
        """How many of the messages they are."""
        self._header: tuple[int, FrozenDict] = (-1, EMPTY)
        """Seq of the last header event, and its canonical form."""
        self._head: tuple[LlmCallConfig, str | None, tuple[ToolSchema, ...]] | None = None

    def check_messages(self, request: LlmRequest, session: Session) -> None:
        messages = request.messages
        if type(messages) is not tuple:
            raise InvariantError("the messages of a request are not frozen")
        if session.replace_generation != self._generation:
            self._nodes, self._count, self._messages = 0, 0, ()
            self._generation = session.replace_generation
        nodes = session.surface_from(self._nodes)
        settled, expected, settled_nodes = _rebuilt(session, nodes)
        count = self._count + len(settled)
        if len(messages) != count + len(expected):
            raise InvariantError(
                f"a request of session {session.id} has {len(messages)} messages, its log makes "
                f"{count + len(expected)}"
            )
        if not all(map(is_, islice(self._messages, self._count), messages)):
            raise InvariantError(
                f"messages of a request of session {session.id} are not those that were sent before"
            )
        for position, wanted in enumerate((*settled, *expected), self._count):
            _compare(messages[position], wanted, position, session)
        self._messages, self._count = messages, count
        self._nodes += settled_nodes

    def check_head(self, request: LlmRequest, session: Session) -> None:
        event = session.last("request/header")
        if event is None:
            raise InvariantError(f"a request of session {session.id} leaves before any request/header")
        if event.seq != self._header[0]:
            self._header, self._head = (event.seq, canonical_header(event.data["header"])), None
        if self._head is None or not _is_same_head(request, self._head):
            _check_head(request, self._header[1], session)
            self._head = (request.config, request.system, request.tools)


_checked: "WeakKeyDictionary[Session, _Checked]" = WeakKeyDictionary()


def _check_place(session: Session) -> None:
    """A request leaves inside a step, with its digest on record."""
    if session.open_step is None:
        raise InvariantError(f"a request of session {session.id} leaves outside any step")
    digest = session.last(REQUEST_DIGEST)
    at = None if digest is None else (digest.data["turn"], digest.data["step"])
    if at != (session.open_turn, session.open_step):
        raise InvariantError(
            f"a request of session {session.id} leaves without a {REQUEST_DIGEST} of its own"
        )


def _rebuilt(session: Session, nodes: Sequence[int]) -> tuple[list[Message], list[Message], int]:
    """What goes out for these nodes: what is settled from now on and what is not; the nodes of the first."""
    places: list[int] = []
    projected: list[Message] = []
    for place, seq in enumerate(nodes):
        if (message := project(session.event(seq))) is not None:
            places.append(place)
            projected.append(message)
    boundary, started = settled_before(projected), Started(session)
    settled = outgoing(projected[:boundary], started)
    return settled, outgoing(projected[boundary:], started), places[boundary] if places else 0


def _compare(found: Message, wanted: Message, position: int, session: Session) -> None:
    if found is wanted:
        return
    if type(found) is not FrozenDict:
        raise InvariantError(f"message {position} of a request of session {session.id} is not frozen")
    if canonical_json(found) != canonical_json(wanted):
        raise InvariantError(
            f"message {position} of a request of session {session.id} is not what its log makes there"
        )


def _is_same_head(
    request: LlmRequest, checked: tuple[LlmCallConfig, str | None, tuple[ToolSchema, ...]]
) -> bool:
    """Whether the head is made of what was checked before. Only the objects tell: 1 equals true."""
    config, system, tools = checked
    return (
        type(request.config) is LlmCallConfig
        and request.config.to_json() == config.to_json()
        and request.system == system
        and len(request.tools) == len(tools)
        and all(map(_is_same_tool, request.tools, tools))
    )


def _is_same_tool(tool: ToolSchema, checked: ToolSchema) -> bool:
    return tool is checked or (
        tool.name == checked.name
        and tool.description == checked.description
        and tool.parameters is checked.parameters
        and type(tool.parameters) is FrozenDict
    )


def _check_head(request: LlmRequest, header: FrozenDict, session: Session) -> None:
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


def _first_difference(sent: dict[str, Any], header: FrozenDict) -> str:
    for field in sorted(_CONFIG_FIELDS):
        if sent["config"].get(field) != header["config"].get(field):
            return field
    return "system" if (sent["system"] or "") != header.get("system", "") else "tools"
