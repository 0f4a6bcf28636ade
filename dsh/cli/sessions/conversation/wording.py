"""What is said of sessions, replies and calls in a few words, wherever they are drawn."""

import time
from collections.abc import Iterator

from dsh.cli.sessions.conversation.foreign import integer_at, json_text, text_at
from dsh.cli.sessions.conversation.item import Call, Reply, Said, TurnEnd
from dsh.cli.sessions.output import one_line
from dsh.persistence.view import LogView
from dsh.session.error import SessionError
from dsh.session.value import JsonObject, decode_strict

UNSEEN = "the model no longer sees this"


def facts(view: LogView, *, is_utc: bool = False) -> Iterator[tuple[str, str]]:
    """What there is to say of a session as a whole, label and value."""
    header = view.header
    yield "session", header.id
    title = view.last("session/title")
    if title is not None and (text := text_at(title.data, "title")):
        yield "title", text
    yield "started", moment(header.created_at, is_utc=is_utc)
    if header.cwd is not None:
        yield "directory", header.cwd
    if (route := view.request_header) is not None:
        yield "model", f"{text_at(route, 'config', 'provider')}/{text_at(route, 'config', 'model')}"
    if header.parent_session is not None:
        begins = f", whose first {header.seed_length} events it begins with" if header.seed_length else ""
        yield "parent", f"{header.parent_session}{begins}"
    if header.agent_preset is not None:
        yield "preset", header.agent_preset


def moment(ms: int, *, is_utc: bool = False) -> str:
    """A point in time for people, local or UTC; the number itself where the calendar does not reach."""
    try:
        if is_utc:
            return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(ms / 1000))
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000))
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def usage_text(usage: JsonObject) -> str:
    """What a reply consumed, in a few words."""
    names = {
        "inputTokens": "in",
        "cacheReadTokens": "cached",
        "cacheWriteTokens": "cache written",
        "outputTokens": "out",
        "reasoningTokens": "reasoning",
    }
    counts = ((integer_at(usage, key), name) for key, name in names.items())
    return ", ".join(f"{count:,} {name}" for count, name in counts if count)


def call_state(call: Call) -> Iterator[str]:
    """How a call went, in a few words."""
    result = call.result
    if call.is_fragment:
        yield "never made"
    elif result is None:
        yield "no result" if call.started_ms is not None else "not started, no result"
    else:
        if result.is_error or result.code:
            yield f"failed{f' ({one_line(result.code)})' if result.code else ''}"
        if call.duration_ms is not None:
            yield seconds(call.duration_ms)
        if result.is_made_up:
            yield "result made up when the session was opened"
        if result.is_replaced:
            yield UNSEEN


def reply_facts(reply: Reply) -> list[str]:
    """Route, step, duration and tokens of a reply, and what is special about it."""
    facts = [one_line(reply.route), f"step {reply.step}"]
    if reply.duration_ms is not None:
        facts.append(seconds(reply.duration_ms))
    if reply.usage is not None and (used := usage_text(reply.usage)):
        facts.append(used)
    if reply.is_cut:
        facts.append("broken off")
    if reply.is_replaced:
        facts.append(UNSEEN)
    return facts


def said_facts(said: Said) -> list[str]:
    """Who put a message in, and what is special about it."""
    facts = [one_line(said.who)]
    if said.fate:
        facts.append(said.fate)
    if said.is_summary:
        facts.append("in place of earlier messages")
    if said.is_replaced:
        facts.append(UNSEEN)
    return facts


def end_facts(end: TurnEnd) -> list[str]:
    """Why a turn ended, and what it consisted of."""
    facts = [
        f"turn {end.turn}: {one_line(end.reason)}",
        f"{end.steps} step{'' if end.steps == 1 else 's'}",
        seconds(end.duration_ms),
    ]
    if end.is_made_up:
        facts.append("closed when opened, not stored")
    return facts


def argument_texts(arguments: str) -> Iterator[str]:
    """`name: value` of each argument, a longer text on lines of its own; what is no object as it is."""
    try:
        value = decode_strict(arguments)
    except (SessionError, UnicodeEncodeError):
        value = None
    if not isinstance(value, dict):
        if arguments:
            yield arguments
        return
    for name, item in value.items():
        text = item if type(item) is str else json_text(item)
        yield f"{name}:\n{text}" if "\n" in text else f"{name}: {text}"


def seconds(ms: int) -> str:
    """A duration for people: `12 ms`, `3.4 s`, `2 min 5 s`, `1 h 2 min`. Below zero it is told as zero."""
    ms = max(ms, 0)
    if ms < 1000:
        return f"{ms} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    minutes, rest = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"
