"""What providers refuse in a request, written down from their side: nothing here is the program's own.

Of messages before they are put on a wire, the strictest rules of any provider; of a chat-completions body,
those of its format.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]


def problems(messages: Sequence[Json]) -> list[str]:
    """Why a provider would refuse a request of these messages; empty where none would."""
    return [*_unanswered(messages), *_contents(messages)]


def wire_problems(body: bytes) -> list[str]:
    """The same of a chat-completions body as it was sent."""
    try:
        messages = json.loads(body.decode("utf-8"))["messages"]
    except ValueError as error:
        return [f"the body is no JSON in UTF-8: {error}"]
    return list(_chat(messages))


def _unanswered(messages: Sequence[Json]) -> Iterator[str]:
    owed: list[str] = []
    for position, message in enumerate(messages):
        answered = [b["toolCallId"] for b in message["content"] if b["type"] == "tool-result"]
        if answered and answered != owed[: len(answered)]:
            yield f"message {position} answers {answered}, owed are {owed}"
        if not answered and owed:
            yield f"message {position} stands before the answers to {owed}"
        owed = owed[len(answered) :] if answered else []
        if message["role"] == "assistant":
            owed = [block["id"] for block in message["content"] if block["type"] == "tool-call"]
    if owed:
        yield f"{owed} are not answered"


def _contents(messages: Sequence[Json]) -> Iterator[str]:
    for position, message in enumerate(messages):
        content = message["content"]
        inner = [b for block in content if block["type"] == "tool-result" for b in block["content"]]
        if not content or not any(_weighs(block) for block in content):
            yield f"message {position} has no content"
        for block in (*content, *inner):
            if block["type"] == "text" and not block["text"].strip():
                yield f"message {position} has a blank text"
        for block in content:
            if block["type"] == "tool-result" and not block["content"]:
                yield f"message {position} has a result without content"
        try:
            json.dumps(message, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            yield f"message {position} holds half a character"


def _weighs(block: Json) -> bool:
    return block["type"] not in ("text", "reasoning") or bool(block["text"].strip())


def _chat(messages: Sequence[Json]) -> Iterator[str]:
    owed: list[str] = []
    for position, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            if not owed or message["tool_call_id"] != owed.pop(0):
                yield f"{position}: a result for {message['tool_call_id']}, which is not asked for here"
            if not message["content"].strip():
                yield f"{position}: a result without content"
            continue
        if owed:
            yield f"{position}: {role} before the results of {owed}"
        owed = [call["id"] for call in message.get("tool_calls", ())]
        if role == "assistant":
            if not (message["content"].strip() or message.get("reasoning_content") or owed):
                yield f"{position}: an assistant message without anything"
        elif not message["content"].strip():
            yield f"{position}: a {role} message without content"
    if owed:
        yield f"the results of {owed} are missing"
