"""The Messages wire, outwards: the messages of a conversation as the `messages` member of a request.

What the format asks for and a history does not have by itself is made here: roles alternate, the first and
the last message are the user's, every call is answered in the very next message, no text is blank.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from dsh.llm.anthropic.replay import read_entries, wire_thinking
from dsh.llm.anthropic.tool_id import WireIds
from dsh.llm.failure import LlmError
from dsh.llm.memo import Seen
from dsh.llm.transport.body import encode_wire
from dsh.llm.transport.clean_json import clean_json
from dsh.session.message import Block, Message, ToolResultBlock, text_in
from dsh.unicode import valid

NO_OUTPUT = "(no output)"
NO_RESULT = "(no result)"
CONTINUE = "(continue)"
"""Stands where the format wants a message of the user and there is none."""
LOST_RESULT = "Result of a tool call that is no longer part of this conversation:\n"
MAX_NAME_CHARS = 128
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")

_USER = b'{"role":"user","content":['
_ASSISTANT = b'{"role":"assistant","content":['
_STAND_IN = encode_wire({"type": "text", "text": CONTINUE})
_NO_INPUT = msgspec.Raw(b"{}")


class WireHistory:
    """The `messages` of one conversation as JSON. State: the text of all but the last message of the user,
    and what that one holds so far.

    The text for a longer history begins with that for a shorter one, but for the cache markers and for a
    last message of the user that goes on growing. What is new is put into words once.
    """

    def __init__(self) -> None:
        self._seen = Seen()
        self._for = ("", "")
        self._frame: bytes | None = None
        self._forget()

    def _forget(self) -> None:
        self._digest = hashlib.sha256(self._frame or b"")
        """Of the frame and the closed messages; kept where there is a frame."""
        self._ids = WireIds()
        self._head = bytearray()
        """Closed messages up to where a marker of the user's last closed one belongs."""
        self._tail = bytearray()
        """What follows there, with a comma after each message."""
        self._calls: list[tuple[str, str]] = []
        """Id and wire id of the calls that are not answered yet."""
        self._results: list[bytes] = []
        """Of the user's last message: the answers to calls."""
        self._rest: list[bytes] = []
        """Of the user's last message: all else."""
        self._thinks = True
        """Whether the first reply after the user's last words begins with thinking."""

    @property
    def can_think(self) -> bool:
        """Whether a thinking budget may be given. Not while a tool loop is under way whose first reply does
        not begin with thinking, as that of another model: the API refuses it."""
        return self._thinks or not self._is_in_loop

    @property
    def digest(self) -> str | None:
        """What stands for the frame and all messages as they were sent last; None where there is no frame."""
        if self._frame is None:
            return None
        whole = self._digest.copy()
        whole.update(b",".join(self._last()))
        return whole.hexdigest()[:32]

    @property
    def _is_in_loop(self) -> bool:
        """Whether the user's last message answers calls."""
        return bool(self._results or self._calls)

    def members(
        self,
        messages: tuple[Message, ...],
        provider: str,
        model: str,
        marker: bytes,
        frame: bytes | None = None,
    ) -> list[bytes | bytearray]:
        """The members of the array in pieces, compact in UTF-8, which are not the caller's to keep.

        Args:
            provider, model: who is asked; thinking of others is left out.
            marker: the member that marks a block for the cache, with its comma; empty for none.
            frame: what else the model sees, if it takes thinking back only behind all that it was thought
                behind: other thinking is then left out.

        Raises:
            LlmError: `UNSUPPORTED_CONTENT`, a message holds an image.
        """
        is_same = (self._for, self._frame) == ((provider, model), frame)
        self._for, self._frame = (provider, model), frame
        count = self._seen.count(messages) if is_same else 0
        if not count:
            self._forget()
        self._seen.note(())  # as long as only a part of them is in
        for message in messages[count:]:
            if message["role"] == "assistant":
                self._assistant(message)
            else:
                self._user(message)
        self._seen.note(messages)
        last = _USER + b",".join(self._last())
        return [self._head, marker if self._head else b"", self._tail, last[:-1], marker, b"}]}"]

    def _last(self) -> list[bytes]:
        """The blocks of the user's last message as it stands, results first."""
        missing = [_result(wire_id, NO_RESULT, is_error=True) for _, wire_id in self._calls]
        return [*self._results, *missing, *self._rest] or [_STAND_IN]

    def _user(self, message: Message) -> None:
        for block in message["content"]:
            if block["type"] == "tool-result":
                self._answer(block)
            elif block["type"] == "text" and block["text"].strip():
                self._rest.append(_text(block["text"]))
            elif block["type"] == "image":
                raise _no_image()

    def _answer(self, block: ToolResultBlock) -> None:
        content = _joined(block["content"])
        content = content if content.strip() else NO_OUTPUT
        for at, (call_id, wire_id) in enumerate(self._calls):
            if call_id == block["toolCallId"]:
                del self._calls[at]
                self._results.append(_result(wire_id, content, is_error=block.get("isError") is True))
                return
        self._rest.append(_text(LOST_RESULT + content))

    def _assistant(self, message: Message) -> None:
        source, blocks = message["source"], message["content"]
        is_own = (source.get("provider"), source.get("model")) == self._for
        state = source.get("replayState") if is_own else None
        entries = read_entries(state, len(blocks), self.digest if state is not None else None)
        kept = [(block, entry) for block, entry in zip(blocks, entries, strict=True) if _says(block, entry)]
        while kept and kept[-1][0]["type"] == "reasoning":
            kept.pop()  # no message may end with thinking
        if not kept:
            return
        if not self._is_in_loop:
            self._thinks = kept[0][0]["type"] == "reasoning"
        self._end_user()
        wire = [self._block(block, entry) for block, entry in kept]
        said = b",".join(wire)
        self._tail += _ASSISTANT + said + b"]},"
        if self._frame is not None:
            self._digest.update(_ASSISTANT + said)

    def _block(self, block: Block, entry: Any) -> bytes:
        """A block of an assistant message that has something to say."""
        if block["type"] == "text":
            return _text(block["text"])
        if block["type"] == "reasoning":
            return encode_wire(wire_thinking(block["text"], entry))
        assert block["type"] == "tool-call"
        wire_id = self._ids.give(block["id"])
        self._calls.append((block["id"], wire_id))
        name = _FOREIGN.sub("_", block["name"])[:MAX_NAME_CHARS] or "unknown"
        return encode_wire(
            {"type": "tool_use", "id": wire_id, "name": name, "input": _input(block["arguments"])}
        )

    def _end_user(self) -> None:
        """End the user's message: an assistant's follows."""
        said = b",".join(self._last())
        if self._frame is not None:
            self._digest.update(said)
        self._head += self._tail
        self._head += _USER + said
        del self._head[-1]
        self._tail = bytearray(b"}]},")
        self._calls.clear()
        self._results.clear()
        self._rest.clear()


def _says(block: Block, entry: Any) -> bool:
    """Whether a block of an assistant message comes out as anything; kinds that nobody knows do not."""
    if block["type"] == "text":
        return bool(block["text"].strip())
    if block["type"] == "reasoning":
        return wire_thinking(block["text"], entry) is not None
    if block["type"] == "image":
        raise _no_image()
    return block["type"] == "tool-call"


def _text(text: str) -> bytes:
    return encode_wire({"type": "text", "text": text})


def _result(wire_id: str, content: str, *, is_error: bool) -> bytes:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": wire_id, "content": content}
    if is_error:
        result["is_error"] = True
    return encode_wire(result)


def _input(arguments: str) -> msgspec.Raw:
    """The arguments as they were, if they are an object that can be sent; else an empty one."""
    try:
        raw = arguments.encode()
        value = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        try:
            raw = clean_json(valid(arguments).encode())
            value = msgspec.json.decode(raw)
        except (ValueError, RecursionError):
            return _NO_INPUT
    return msgspec.Raw(raw) if isinstance(value, dict) else _NO_INPUT


def _joined(blocks: Sequence[Block]) -> str:
    """The text of a tool's result, joined without anything between; unknown kinds are skipped."""
    if any(block["type"] == "image" for block in blocks):
        raise _no_image()
    return text_in(blocks)


def _no_image() -> LlmError:
    return LlmError.of("UNSUPPORTED_CONTENT", "the history holds an image, and this model takes text only")
