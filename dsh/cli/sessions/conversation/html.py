"""A conversation as one HTML page: no script, nothing fetched, all text escaped. Whole: nothing is cut.

Readable in light and dark; long results scroll on a screen and are printed in full.
"""

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
from dsh.cli.sessions.output import lines_of
from dsh.persistence.view import LogView

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --page: #fff; --soft: #59636e; --line: #d1d9e0;
  --box: #f6f8fa; --user: #0550ae; --model: #116329; --tool: #7d4e00; --bad: #b3141d; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --page: #0d1117; --soft: #9198a1;
  --line: #3d444d; --box: #151b23; --user: #79b8ff; --model: #7ee787; --tool: #e3b341; --bad: #ff8182; } }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 60rem; background: var(--page);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; }
h2 { font-size: 1.1rem; margin: 2.5rem 0 0; padding-top: .5rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; margin: 0; }
dt, small, .note, .end { color: var(--soft); }
dd { margin: 0; }
p { margin: .25rem 0; }
pre { margin: .25rem 0; white-space: pre-wrap; overflow-wrap: anywhere; font: inherit; }
pre.code { padding: .5rem .75rem; background: var(--box); border: 1px solid var(--line);
  border-radius: 6px; font: 13px/1.45 ui-monospace, monospace; max-height: 30rem; overflow: auto; }
pre.thought { padding-left: .75rem; border-left: 3px solid var(--line); color: var(--soft); }
.user h3 { color: var(--user); } .model h3 { color: var(--model); } .other h3 { color: var(--soft); }
.call { margin: .75rem 0 .75rem 1rem; } .call b { color: var(--tool); } .bad { color: var(--bad); }
@media print { body { max-width: none; } pre.code { max-height: none; overflow: visible; }
  h2, h3 { break-after: avoid; } }
"""


def page(view: LogView, items: Iterable[Item]) -> Iterator[str]:
    """The page, piece by piece."""
    told = dict(facts(view, is_utc=True))
    title = _escaped(told.pop("title", "Session"))
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<dl>\n"
    )
    for label, value in told.items():
        yield f"<dt>{_escaped(label)}</dt><dd>{_escaped(value)}</dd>\n"
    yield "</dl>\n"
    if view.request_header is not None and (system := text_at(view.request_header, "system")):
        yield f"<h2>System prompt</h2>\n{_pre(system, 'code')}"
    for item in items:
        yield from _item(item)
    yield "</body>\n</html>\n"


def _item(item: Item) -> Iterator[str]:
    match item:
        case TurnStart():
            when = moment(item.time, is_utc=True)
            yield f'<h2 id="turn-{item.turn}">Turn {item.turn} <small>{when}</small></h2>\n'
        case TurnEnd():
            yield f'<p class="{"bad" if item.is_failure else "end"}">{_row(end_facts(item))}</p>\n'
        case Said():
            who, *more = said_facts(item)
            yield f'<section class="{"user" if item.is_users else "other"}">\n{_head(who, more)}'
            for text in item.texts:
                yield _pre(text, "" if item.is_users else "code")
            yield "</section>\n"
        case Reply():
            route, *more = reply_facts(item)
            yield f'<section class="model">\n{_head(route, more)}'
            yield from _parts(item.parts)
            yield "</section>\n"
        case Lost():
            yield '<section class="model">\n<h3 class="bad">An attempt that was cut off</h3>\n'
            yield from _parts(item.parts)
            yield "</section>\n"
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
                yield _pre(text.strip("\n"), "")
            case Words(text, "reasoning"):
                yield _pre(text.strip("\n"), "thought")
            case Words(text, "other"):
                yield _pre(text, "code")


def _call(call: Call) -> Iterator[str]:
    failing = call.is_fragment or call.result is None or call.result.is_error
    state = _row(call_state(call))
    name = _escaped(call.name or f"call {call.id}")
    yield f'<div class="call">\n<p><b>{name}</b> <small{_BAD if failing else ""}>{state}</small></p>\n'
    arguments = "\n".join(argument_texts(call.arguments))
    if arguments:
        yield _pre(arguments, "code")
    for note in call.notes:
        yield from _note(note)
    if call.result is not None:
        yield _pre("\n".join(call.result.texts), "code")
    yield "</div>\n"


_BAD = ' class="bad"'


def _note(note: Note) -> Iterator[str]:
    yield f'<p class="{"note bad" if note.is_error else "note"}">{_escaped(note.text)}</p>\n'
    if note.detail:
        yield _pre(note.detail, "code")


def _head(who: str, more: list[str]) -> str:
    small = f" <small>{_row(more)}</small>" if more else ""
    return f"<h3>{_escaped(who)}{small}</h3>\n"


def _row(words: Iterable[str]) -> str:
    return " · ".join(map(_escaped, words))


def _pre(text: str, kind: str) -> str:
    """A text as it is. The line end after the tag is not part of it (HTML, section 13.2.6.4.7)."""
    return f"<pre{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>\n{_escaped(text)}</pre>\n"


def _escaped(text: str) -> str:
    return lines_of(text).translate(_ESCAPES)
