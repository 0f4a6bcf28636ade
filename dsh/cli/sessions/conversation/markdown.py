"""A conversation as a Markdown document. Whole: nothing is cut.

What users, tools and plugins said stands in fences longer than any in it. What the model said is Markdown
already: it stands in block quotes, out of which no fence, heading or list of it can come; HTML and pictures
in it are shown as their source.
"""

import re
from collections.abc import Iterable, Iterator

from dsh.cli.sessions.conversation.foreign import text_at
from dsh.cli.sessions.conversation.item import (
    Call,
    Item,
    Lost,
    Note,
    Part,
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
from dsh.cli.sessions.output import block, lines_of, one_line
from dsh.masking import masked
from dsh.persistence.view import LogView

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!])")
_TICKS = re.compile("`+")
_FENCE = re.compile(r"(`{3,}[^`]*|~{3,}.*)$")
_UNSURE_FENCE = re.compile(r"^(?:[ \t>*+\-\d.)]+(?:```|~~~)|(?:```|~~~).*\|)", re.MULTILINE)
"""Part of a list, a quote or a table, perhaps: where such a fence ends is for its reader to say."""


def markdown(view: LogView, items: Iterable[Item]) -> Iterator[str]:
    """The document, piece by piece."""
    told = dict(facts(view, is_utc=True))
    yield f"# {inline(told.pop('title', 'Session'))}\n\n"
    for label, value in told.items():
        yield f"- {label}: {inline(value)}\n"
    if view.request_header is not None and (system := text_at(view.request_header, "system")):
        yield "\n## System prompt\n\n"
        yield from _fenced(system)
    for item in items:
        match item:
            case TurnStart():
                yield f"\n## Turn {item.turn} · {moment(item.time, is_utc=True)}\n"
            case TurnEnd():
                yield f"\n*{inline(' · '.join(end_facts(item)))}*\n"
            case Said():
                yield f"\n### {inline(' · '.join(said_facts(item)))}\n\n"
                for text in item.texts:
                    yield from _fenced(text)
            case Reply():
                yield f"\n### {inline(' · '.join(reply_facts(item)))}\n"
                yield from _parts(item.parts)
            case Lost():
                yield "\n### An attempt that was cut off\n"
                yield from _parts(item.parts)
            case Call():
                yield from _call(item)
            case Note():
                yield from _note(item)


def _parts(parts: Iterable[Part]) -> Iterator[str]:
    for part in parts:
        match part:
            case Call():
                yield from _call(part)
            case Words(text, "text"):
                if text.strip():
                    yield f"\n{quoted(masked(text))}"
            case Words(text, "reasoning"):
                yield "\nReasoning:\n\n"
                yield from _fenced(text)
            case Words(text, "other"):
                yield "\n"
                yield from _fenced(text)


def _call(call: Call) -> Iterator[str]:
    state = " · ".join(call_state(call))
    yield f"\n**{inline(call.name or f'call {call.id}')}**{f' · {inline(state)}' if state else ''}\n\n"
    yield from _fenced("\n".join(argument_texts(call.arguments)))
    for note in call.notes:
        yield from _note(note)
    if call.result is not None:
        yield "\nResult:\n\n"
        yield from _fenced("\n".join(call.result.texts))


def _note(note: Note) -> Iterator[str]:
    yield f"\n*{inline(note.text)}*\n"
    if note.detail:
        yield "\n"
        yield from _fenced(note.detail)


def _fenced(text: str) -> Iterator[str]:
    text = lines_of(text)
    fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
    yield f"{fence}text\n{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{fence}\n"


def inline(text: str) -> str:
    """A text of one line in which nothing is Markdown."""
    return _SPECIAL.sub(r"\\\1", one_line(text))


def quoted(text: str) -> str:
    """Markdown of somebody else as a block quote, in which HTML and pictures are text."""
    text = block(text).strip("\n")
    lines = text.split("\n")
    fenced = [False] * len(lines) if _UNSURE_FENCE.search(text) else list(_in_fence(lines))
    codes = [_CodeSpans("" if is_fenced else shown) for shown, is_fenced in zip(lines, fenced, strict=True)]
    is_trusted = all(code.is_balanced for code in codes)
    out: list[str] = []
    for shown, code, is_fenced in zip(lines, codes, fenced, strict=True):
        shown = shown if is_fenced else code.escaped(is_trusted)
        out.append(f"> {shown}\n" if shown else ">\n")
    return "".join(out)


def _in_fence(lines: Iterable[str]) -> Iterator[bool]:
    """For each line whether it is part of a fenced block; fences stand at the beginning of their lines."""
    fence = ""
    for shown in lines:
        if fence:
            yield True
            if shown.startswith(fence) and not shown.strip(fence[0] + " \t"):
                fence = ""
        elif _FENCE.match(shown):
            yield True
            fence = shown[: len(shown) - len(shown.lstrip(shown[0]))]
        else:
            yield False


class _CodeSpans:
    """One line of Markdown, told apart into code and the rest, as far as that is certain."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._spans: list[tuple[int, int]] = []
        self.is_balanced = "\\`" not in text
        """Each run of backticks has its partner on this line, so none reaches into another."""
        runs = [found.span() for found in _TICKS.finditer(text)]
        first = 0
        while first < len(runs):
            start, end = runs[first]
            partner = first + 1
            while partner < len(runs) and runs[partner][1] - runs[partner][0] != end - start:
                partner += 1
            if partner == len(runs):
                self.is_balanced = False
                return
            self._spans.append((start, runs[partner][1]))
            first = partner + 1

    def escaped(self, is_trusted: bool) -> str:
        """The line with HTML and pictures made text, in code only where it cannot be trusted to be that."""
        if not is_trusted or "|" in self._text:  # a cell of a table ends a code span
            return _escaped(self._text)
        out, at = [], 0
        for start, end in self._spans:
            out += [_escaped(self._text[at:start]), self._text[start:end]]
            at = end
        return "".join((*out, _escaped(self._text[at:])))


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("![", "!\\[")
