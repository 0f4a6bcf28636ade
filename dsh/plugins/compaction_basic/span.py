"""Which part of a history a summary takes the place of: always its beginning, never half of a call.

Pure. Everything here counts positions on the surface, for a seq says nothing of where a node stands.
"""

from collections.abc import Sequence

import msgspec

from dsh.capabilities.token_meter import PricedNode
from dsh.session.derive import project
from dsh.session.log import Session
from dsh.session.message import Message

CHECKPOINT_PLUGIN = "compact"
"""The plugin that the source of a checkpoint message names, in every log of format 0."""


class Node(msgspec.Struct, frozen=True):
    """One node of the surface."""

    seq: int
    message: Message | None
    """What it puts before the model; None for an empty reply."""
    tokens: int
    """Estimated."""
    log_tokens: int
    """Its log price."""


class Span(msgspec.Struct, frozen=True):
    """A beginning of the surface."""

    nodes: tuple[Node, ...]

    @property
    def seqs(self) -> tuple[int, ...]:
        """In model order, which need not be that of the log."""
        return tuple(node.seq for node in self.nodes)

    @property
    def tokens(self) -> int:
        return sum(node.tokens for node in self.nodes)

    @property
    def log_tokens(self) -> int:
        return sum(node.log_tokens for node in self.nodes)

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(node.message for node in self.nodes if node.message is not None)


def nodes_of(session: Session, priced: Sequence[PricedNode]) -> tuple[Node, ...]:
    """The surface with its messages, the very objects that requests are made of."""
    derived = iter(session.derive_messages())
    out = []
    for node in priced:
        shown = project(session.event(node.seq)) is not None
        out.append(Node(node.seq, next(derived) if shown else None, node.tokens, node.log_tokens))
    return tuple(out)


def choose(nodes: Sequence[Node], retain_tokens: int, *, turn_began: int | None = None) -> Span | None:
    """The longest beginning that leaves the end of the history alone; None where there is none.

    Args:
        retain_tokens: how much of the end stays; at least the last node does.
        turn_began: leave what waits for a reply in the turn that began at this seq as well.
    """
    cut, kept = len(nodes), 0
    while cut and (cut == len(nodes) or kept < retain_tokens):
        cut -= 1
        kept += nodes[cut].tokens
    if turn_began is not None:
        cut = min(cut, waiting_from(nodes, turn_began))
    return beginning(nodes, cut)


def beginning(nodes: Sequence[Node], cut: int) -> Span | None:
    """The nodes before `cut`, or before the nearest place to the left of it that splits no call.

    A checkpoint alone is none: there would be nothing to fold into it.
    """
    cut = _whole(nodes, cut)
    taken = tuple(nodes[:cut])
    if not taken or (len(taken) == 1 and is_checkpoint(taken[0].message)):
        return None
    return Span(taken)


def shorter(span: Span) -> Span | None:
    """The first half of a span by tokens, for a summary whose request was too large itself."""
    half, count, total = span.tokens / 2, 0, 0
    while count < len(span.nodes) - 1 and total + span.nodes[count].tokens <= half:
        total += span.nodes[count].tokens
        count += 1
    return beginning(span.nodes, max(count, 1) if len(span.nodes) > 1 else 0)


def is_checkpoint(message: Message | None) -> bool:
    """Whether a message is the summary of an earlier compaction."""
    if message is None:
        return False
    source = message["source"]
    return source.get("kind") == "plugin" and source.get("plugin") == CHECKPOINT_PLUGIN


def waiting_from(nodes: Sequence[Node], turn_began: int) -> int:
    """The position from which on all nodes came in the turn that began at a seq, and no reply followed."""
    for position in range(len(nodes) - 1, -1, -1):
        node = nodes[position]
        is_reply = node.message is not None and node.message["role"] == "assistant"
        if is_reply or node.seq < turn_began:
            return position + 1
    return 0


def _whole(nodes: Sequence[Node], cut: int) -> int:
    """The last position up to `cut` between a call and whose result nothing is cut.

    A call whose result is nowhere (a crash, a foreign log) binds nothing: it cannot be split.
    """
    while cut > 0:
        begun = _calls_before(nodes, cut)
        if begun is None:
            return cut
        position, waiting = begun
        if waiting.isdisjoint(_results_from(nodes, cut)):
            return cut
        cut = position
    return 0


def _calls_before(nodes: Sequence[Node], cut: int) -> tuple[int, set[str]] | None:
    """The last assistant message before `cut`: its position, and its calls that are not answered there."""
    answered: list[str] = []
    for position in range(cut - 1, -1, -1):
        message = nodes[position].message
        if message is None:
            continue
        if message["role"] == "assistant":
            waiting = [block["id"] for block in message["content"] if block["type"] == "tool-call"]
            for call_id in answered:
                if call_id in waiting:
                    waiting.remove(call_id)
            return position, set(waiting)
        answered += _results_in(message)
    return None


def _results_from(nodes: Sequence[Node], cut: int) -> set[str]:
    """The calls that are answered from `cut` on, up to the next assistant message."""
    found: set[str] = set()
    for node in nodes[cut:]:
        if node.message is None:
            continue
        if node.message["role"] == "assistant":
            break
        found.update(_results_in(node.message))
    return found


def _results_in(message: Message) -> list[str]:
    return [block["toolCallId"] for block in message["content"] if block["type"] == "tool-result"]
