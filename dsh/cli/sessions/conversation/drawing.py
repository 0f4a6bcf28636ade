"""A conversation drawn for a terminal or a pipe: long results cut, what no person wrote kept short."""

from collections.abc import Iterable, Iterator, Sequence

from dsh.cli.sessions.conversation.item import (
    Call,
    Item,
    Lost,
    Note,
    Part,
    Pieces,
    Reply,
    Said,
    TurnEnd,
    TurnStart,
    Words,
)
from dsh.cli.sessions.conversation.wording import (
    argument_texts,
    call_state,
    end_facts,
    facts,
    moment,
    reply_facts,
    said_facts,
)
from dsh.cli.sessions.output import common_length, line, lines_of, one_line
from dsh.cli.sessions.terminal import Look, Style
from dsh.masking import MASK, masked
from dsh.persistence.view import LogView

RESULT_LINES = 20
"""Lines of a tool result or an argument that are shown."""
CONTEXT_LINES = 6
"""Lines of a message that no person wrote."""


def heading(view: LogView, place: str, look: Look) -> Iterator[str]:
    """Where the session comes from, a line for each fact."""
    for label, value in (*facts(view), ("log", place)):
        yield look.styled("dim", f"{label:<9} ") + one_line(value) + "\n"


def drawn(items: Iterable[Item], look: Look) -> Iterator[str]:
    """The items as text for a terminal."""
    streamed: list[Pieces] = []
    for item in items:
        if streamed and not (isinstance(item, Pieces) and _is_same_block(item, streamed[0])):
            yield from _pieces(streamed, look)
            streamed = []
        match item:
            case Pieces():
                streamed.append(item)
            case TurnStart():
                yield f"\n{look.styled('head', look.rule(f'turn {item.turn} · {moment(item.time)}'))}\n"
            case TurnEnd():
                yield from _end(item, look)
            case Said():
                yield from _said(item, look)
            case Reply():
                yield from _reply(item, look)
            case Lost():
                yield f"\n{look.styled('bad', 'an attempt that was cut off')}\n"
                yield from _parts(item.parts, look)
            case Call():
                yield "\n"
                yield from _call(item, look)
            case Note():
                yield from _note(item, look, "")
    yield from _pieces(streamed, look)


def _end(end: TurnEnd, look: Look) -> Iterator[str]:
    yield "\n"
    yield from look.lines(" · ".join(end_facts(end)), "", "bad" if end.is_failure else "dim")


def _said(said: Said, look: Look) -> Iterator[str]:
    yield f"\n{look.styled('user' if said.is_users else 'dim', ' · '.join(said_facts(said)))}\n"
    for text in said.texts:
        shown = lines_of(text)
        if said.is_users or said.is_summary:
            yield from look.lines(shown, "  ")
        else:
            yield from look.excerpt(shown, "  ", "dim", most=CONTEXT_LINES)


def _reply(reply: Reply, look: Look) -> Iterator[str]:
    route, *more = reply_facts(reply)
    yield f"\n{look.styled('model', route)}{look.styled('dim', ' · ' + ' · '.join(more))}\n"
    yield from _parts(reply.parts, look)
    if not reply.parts:
        yield look.styled("dim", "  (nothing)") + "\n"


def _parts(parts: Iterable[Part], look: Look) -> Iterator[str]:
    for part in parts:
        match part:
            case Call():
                yield from _call(part, look)
            case Words(text, "text"):
                yield from look.lines(lines_of(text).strip("\n"), "  ")
            case Words(text, "reasoning"):
                yield from look.lines(lines_of(text).strip("\n"), "  │ ", "dim")
            case Words(text, "other"):
                yield from look.excerpt(lines_of(text), "  ", "dim", most=1)


def _call(call: Call, look: Look) -> Iterator[str]:
    result = call.result
    state = " · ".join(call_state(call))
    failing = call.is_fragment or result is None or result.is_error
    name = one_line(call.name or f"call {call.id}")
    yield f"  {look.styled('tool', '▸ ' + name)} {look.styled('bad' if failing else 'dim', state)}\n"
    for text in argument_texts(call.arguments):
        yield from look.excerpt(lines_of(text), "    ", "tool", most=RESULT_LINES)
    for note in call.notes:
        yield from _note(note, look, "    ")
    if result is not None:
        for text in result.texts:
            yield from look.excerpt(lines_of(text), "    │ ", most=RESULT_LINES)


def _note(note: Note, look: Look, indent: str) -> Iterator[str]:
    style: Style = "bad" if note.is_error else "dim"
    yield from look.lines(f"· {one_line(note.text)}", indent or "  ", style)
    if note.detail:
        yield from look.excerpt(lines_of(note.detail), f"{indent}    ", "dim", most=RESULT_LINES)


def _is_same_block(pieces: Pieces, other: Pieces) -> bool:
    return (pieces.kind, pieces.index) == (other.kind, other.index)


def _pieces(streamed: Sequence[Pieces], look: Look) -> Iterator[str]:
    """All pieces of one block, each with its time since the step or the retry began."""
    hidden = _hidden("".join(text for pieces in streamed for text in pieces.texts))
    at = 0
    for pieces in streamed:
        kind = f"{one_line(pieces.kind):<11}"
        for offset_ms, text in pieces.timed():
            shown = MASK if at < hidden.stop and at + len(text) > hidden.start else line(text)
            at += len(text)
            yield f"{look.styled('dim', f'  +{offset_ms / 1000:.3f} s  {kind}')} {shown}".rstrip() + "\n"


def _hidden(text: str) -> range:
    """From where to where a text is not shown: from the beginning of its first key to the end of its last."""
    shown = masked(text)
    if shown == text:
        return range(0)
    start = common_length(text, shown)
    return range(start, len(text) - common_length(text[:start:-1], shown[:start:-1]))
