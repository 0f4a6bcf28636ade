"""A log as a conversation: turns, messages, replies, calls with their results, and what happened beside them.

One pass over the log, in its order. A reply is given when its calls are answered, or when the next step
begins; so no more than a step is held at a time. Whatever a log that opens may hold, nothing here raises.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from dsh.cli.sessions.conversation.event_note import ending, note_of, retry_note
from dsh.cli.sessions.conversation.foreign import at, integer_at, json_text, object_at, objects_at, text_at
from dsh.cli.sessions.conversation.item import (
    Call,
    Item,
    Lost,
    Note,
    Part,
    Pieces,
    Reply,
    Result,
    Said,
    TurnEnd,
    TurnStart,
    Words,
)
from dsh.cli.sessions.conversation.streamed import Streamed
from dsh.cli.sessions.conversation.waiting import Waiting
from dsh.persistence.view import LogView
from dsh.session.chunk_run import ChunkRun
from dsh.session.event import SessionEvent
from dsh.session.value import JsonObject


def conversation(view: LogView, *, pieces: bool = False, is_running: bool = False) -> Iterator[Item]:
    """What a log tells, in its order.

    Args:
        pieces: also each piece of each reply, as it was streamed.
        is_running: somebody goes on with it, so that what repair would add is left out.
    """
    reading = _Reading(view)
    for entry in view.stored() if is_running else view.walk():
        if isinstance(entry, ChunkRun):
            reading.streamed.add_run(entry)
            if pieces:
                yield from reading.ready(force=True)
                yield _pieces(entry, reading.began)
        else:
            reading.see(entry)
            if pieces and entry.type == "assistant/chunk":
                reading.out.append(_piece(entry, reading.began))
            yield from reading.ready()
    reading.end()
    yield from reading.ready(force=True)


def _words(content: Iterable[JsonObject]) -> Iterator[Words]:
    """The blocks of a message, tool calls and results left out."""
    for block in content:
        match text_at(block, "type"):
            case "text":
                yield Words(text_at(block, "text"))
            case "reasoning":
                yield Words(text_at(block, "text"), "reasoning")
            case "image":
                yield Words(_image(object_at(block, "attachment")), "other")
            case "tool-call" | "tool-result":
                continue
            case _:
                yield Words(json_text(block), "other")


def _texts(message: JsonObject) -> tuple[str, ...]:
    return tuple(words.text for words in _words(objects_at(message, "content")))


class _Reading:
    """State of the pass: what is not given out yet, the open turn and step, and the calls that wait."""

    def __init__(self, view: LogView) -> None:
        self.out: list[Item] = []
        self.streamed = Streamed()
        """Since the last message or failure."""
        self.began = view.header.created_at
        """When the open step or retry began."""
        self._stored = view.stored_length
        self._seed = view.header.seed_length if view.header.parent_session else None
        self._parent = view.header.parent_session or ""
        self._shown = frozenset(view.surface_nodes)
        self._waiting: dict[str, Call] = {}
        self._calls: dict[str, Call] = {}
        self._subjects: dict[str, tuple[str, str]] = {}
        """Of approvals and commands that are open, by id: what it is about, and its call."""
        self._inbox = Waiting()
        self._inherited = view.header.seed_length or 0
        """Up to here the inbox was that of another session."""
        self._turn_began = self._now = view.header.created_at
        self._steps = 0
        self._cuts: Counter[str] = Counter()
        """What was shortened for the model, one right behind the other."""

    def ready(self, *, force: bool = False) -> Iterator[Item]:
        """What can be given out now."""
        if force:
            self._tell_cuts()
            self._waiting.clear()
        if not self._waiting and self.out:
            done, self.out = self.out, []
            yield from done

    def see(self, event: SessionEvent) -> None:
        """Take the next event into account."""
        self._now = event.time
        if not _is_cut(event):
            self._tell_cuts()
        if self._seed is not None and event.seq >= self._seed:
            self._seed = None
            self.out.append(
                Note(event.time, "fork", f"from here on new; before this, session {self._parent}")
            )
        data = event.data
        match event.type:
            case "turn/start":
                self._begin(event)
                self._turn_began, self._steps = event.time, 0
                self._calls.clear()
                self.out.append(TurnStart(event.time, integer_at(data, "turn") or 0))
            case "step/start":
                self._begin(event)
                self._steps += 1
            case "step/end":
                self._lose(event.time)
            case "turn/end":
                self._end(event)
            case "user/message":
                self._say(event)
            case "assistant/message":
                self._reply(event)
            case "assistant/chunk":
                self.streamed.add(object_at(event.data, "chunk"))
            case "agent/inbox/spliced" if event.seq >= self._inherited:
                self._tell(self._inbox.splice(data), "dropped")
            case "tool/call":
                self._start(event)
            case "tool/result":
                self._answer(event)
            case "llm/retry":
                self._lose(event.time)
                self.out.append(retry_note(event))
            case "llm/retry-started":
                self.began = event.time
            case _:
                self._note(event)

    def _begin(self, event: SessionEvent) -> None:
        self._lose(event.time)
        self._waiting.clear()
        self.began = event.time

    def _end(self, event: SessionEvent) -> None:
        self._lose(event.time)
        self._waiting.clear()
        reason, is_failure = ending(object_at(event.data, "reason"))
        duration = max(event.time - self._turn_began, 0)
        turn = integer_at(event.data, "turn") or 0
        self._tell(self._inbox.left_out(), "did not reach the model in this turn")
        made_up = event.seq >= self._stored
        self.out.append(TurnEnd(event.time, turn, reason, is_failure, self._steps, duration, made_up))

    def _say(self, event: SessionEvent) -> None:
        if _is_cut(event):
            self._cuts["prompt"] += 1
            return
        self._inbox.enter(text_at(event.data, "id"))
        said = _said(event.data, event.time, event.seq)
        said.is_replaced = event.seq not in self._shown
        said.is_summary = event.surface != "append"
        self.out.append(said)

    def _tell(self, messages: Iterable[JsonObject], fate: str) -> None:
        """Messages that are in no step, at the place of the event that says so."""
        self.out.extend(_said(message, self._now, None, fate) for message in messages)

    def end(self) -> None:
        """The log ends here."""
        self._tell(self._inbox.still(), "waits for the agent")

    def _tell_cuts(self) -> None:
        if self._cuts:
            counts = (what if count == 1 else f"{count} × {what}" for what, count in self._cuts.items())
            said = f"from here on shortened for the model: {', '.join(counts)}"
            self.out.append(Note(self._now, "compaction/prune", said))
            self._cuts.clear()

    def _reply(self, event: SessionEvent) -> None:
        self.streamed = Streamed()
        message = object_at(event.data, "message")
        parts: list[Part] = []
        for block in objects_at(message, "content"):
            if text_at(block, "type") == "tool-call":
                parts.append(self._asked(block))
            else:
                parts.extend(_words((block,)))
        usage = object_at(event.data, "usage")
        self.out.append(
            Reply(
                time=event.time,
                seq=event.seq,
                turn=integer_at(event.data, "turn") or 0,
                step=integer_at(event.data, "step") or 0,
                route=f"{text_at(message, 'source', 'provider')}/{text_at(message, 'source', 'model')}",
                parts=tuple(parts),
                usage=usage or None,
                duration_ms=max(event.time - self.began, 0),
                is_cut=at(event.data, "interrupted") is True,
                is_replaced=event.seq not in self._shown,
            )
        )

    def _asked(self, block: JsonObject) -> Call:
        call = Call(text_at(block, "id"), text_at(block, "name"), text_at(block, "arguments"))
        self._waiting[call.id] = self._calls[call.id] = call
        return call

    def _start(self, event: SessionEvent) -> None:
        call_id = text_at(event.data, "callId")
        call = self._calls.get(call_id)
        if call is None or call.result is not None:
            call = Call(call_id, text_at(event.data, "name"), text_at(event.data, "arguments"))
            self._waiting[call_id] = self._calls[call_id] = call
            self.out.append(call)
        call.started_ms = event.time

    def _answer(self, event: SessionEvent) -> None:
        message = object_at(event.data, "message")
        call_id = text_at(message, "source", "callId")
        call = self._calls.get(call_id)
        if event.surface != "append":
            self._cuts[f"result of {call.name}" if call is not None and call.name else "result"] += 1
            return
        if call is None or self._waiting.pop(call_id, None) is not call:  # it has been given out already
            call = Call(call_id, "" if call is None else call.name, "")
            self.out.append(call)
        block = next(objects_at(message, "content"), {})
        call.result = Result(
            texts=_texts(block),
            time=event.time,
            is_error=block.get("isError") is True,
            code=text_at(event.data, "error", "code"),
            is_made_up=text_at(message, "id") == f"interrupted-tool-result-{call_id}-{event.seq}",
            is_replaced=event.seq not in self._shown,
        )

    def _note(self, event: SessionEvent) -> None:
        data = event.data
        call_id = text_at(data, "callId") or text_at(data, "rootCallId")
        subject = ""
        match event.type:
            case "approval/asked":
                self._subjects[text_at(data, "id")] = text_at(data, "toolName"), call_id
            case "approval/decided":
                subject, call_id = self._subjects.pop(text_at(data, "id"), ("", ""))
            case "command/run":
                self._subjects[text_at(data, "commandId")] = f"/{text_at(data, 'name')}", ""
            case "command/done":
                subject, call_id = self._subjects.pop(text_at(data, "commandId"), ("", ""))
        note = note_of(event, subject)
        if note is None:
            return
        call = self._waiting.get(call_id) if call_id else None
        if call is not None:
            call.notes.append(note)
        else:
            self.out.append(note)

    def _lose(self, time: int) -> None:
        """An attempt ends without a message."""
        parts = tuple(self.streamed.parts())
        self.streamed = Streamed()
        if parts:
            self.out.append(Lost(time, parts))


def _is_cut(event: SessionEvent) -> bool:
    """A result or a prompt that takes its own place, shorter; or what announces one."""
    if event.type == "user/message":
        return event.surface != "append" and text_at(event.data, "source", "kind") == "user"
    return event.type == "compaction/prune" or (event.type == "tool/result" and event.surface != "append")


def _said(message: JsonObject, time: int, seq: int | None, fate: str = "") -> Said:
    source = object_at(message, "source")
    is_users = text_at(source, "kind") == "user"
    return Said(time, seq, _who(source), _texts(message), is_users, fate=fate)


def _pieces(run: ChunkRun, began: int) -> Pieces:
    return Pieces(run.kind, run.index, began, run.time0, run.dt, run.texts)


def _piece(event: SessionEvent, began: int) -> Pieces:
    chunk = object_at(event.data, "chunk")
    kind = text_at(chunk, "type")
    if kind.endswith("-delta"):
        kind, text = kind.removesuffix("-delta"), text_at(chunk, "text") or text_at(chunk, "argumentsDelta")
    else:
        text = " ".join(json_text(value) for key, value in chunk.items() if key not in ("type", "index"))
    return Pieces(kind, integer_at(chunk, "index") or 0, began, event.time, (), (text,))


def _who(source: JsonObject) -> str:
    """Who put a message in: `user`, `plugin dsh-system-prompt (snapshot)`, `goal` …"""
    kind = text_at(source, "kind")
    name = text_at(source, "plugin").rpartition("/")[2] or text_at(source, "name")
    name = name or text_at(source, "senderName") or text_at(source, "senderSessionId")
    form = text_at(source, "form")
    return " ".join(filter(None, (kind, name, f"({form})" if form else "")))


def _image(attachment: JsonObject) -> str:
    size = f"{integer_at(attachment, 'width') or '?'}×{integer_at(attachment, 'height') or '?'}"
    return " ".join(
        filter(None, ("image", text_at(attachment, "mediaType"), size, text_at(attachment, "name")))
    )
