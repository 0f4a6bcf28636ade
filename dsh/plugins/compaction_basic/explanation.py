"""What a person is told of a request that is too large and cannot be made smaller."""

from collections.abc import Sequence

from dsh.capabilities.token_meter import Measurement
from dsh.plugins.compaction_basic.span import Node
from dsh.session.log import Session


def explained(size: Measurement, nodes: Sequence[Node], session: Session) -> str:
    """What fills the request, and what can be done about it."""
    filled = f"{size.head_tokens} are system text and tools"
    largest = max(nodes, key=lambda node: node.tokens, default=None)
    remedy = "take a model with a larger window, or fewer tools"
    if largest is not None and largest.tokens > size.head_tokens:
        remedy = "shorten it, or take a model with a larger window"
    if largest is not None:
        filled += f", {largest.tokens} are {_named(largest, session)} (event {largest.seq})"
    return (
        f"a request was too large, and nothing more can be taken out of it: of about {size.total_tokens} "
        f"tokens {filled}; {remedy}"
    )


def _named(node: Node, session: Session) -> str:
    match session.event(node.seq).type:
        case "tool/result":
            return "one result of a tool"
        case "assistant/message":
            return "one reply of the model"
        case _:
            source = node.message["source"]["kind"] if node.message is not None else ""
            return "one prompt" if source == "user" else "one message"
