"""Histories that providers refuse, resumed through the whole program: what goes out is a sound request.

Calls that lost their results or results their calls (RF-01), and messages that say nothing (AN-03).
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dsh.session.message import assistant_message, text_block, tool_result_message, user_message
from dsh.session.value import encode
from dsh.testing.workspace import Workspace, log_rows
from tests.agent.provider_check import wire_problems
from tests.e2e.model import Model
from tests.e2e.reply import text
from tests.e2e.test_compaction import AGAIN
from tests.e2e.test_kill import RESUMER

Row = tuple[str, dict[str, Any]]

ON_SURFACE = ("user/message", "assistant/message", "tool/result")


def says(turn: int, *blocks: Any) -> Row:
    message = assistant_message(blocks, provider="deepseek-official", model="deepseek-v4-flash")
    return "assistant/message", {"turn": turn, "step": 1, "message": message}


def asks(turn: int, *call_ids: str) -> Row:
    calls = [{"type": "tool-call", "id": name, "name": "bash", "arguments": "{}"} for name in call_ids]
    return says(turn, *calls)


def call(turn: int, call_id: str) -> Row:
    return "tool/call", {"turn": turn, "step": 1, "callId": call_id, "name": "bash", "arguments": "{}"}


def result(turn: int, call_id: str, *words: str) -> Row:
    message = tool_result_message(call_id, [text_block(one) for one in words])
    return "tool/result", {"turn": turn, "step": 1, "message": message}


def open_turn(turn: int, *rows: Row) -> list[Row]:
    asked = ("user/message", {**user_message(f"prompt {turn}")})
    return [("turn/start", {"turn": turn}), ("step/start", {"turn": turn, "step": 1}), asked, *rows]


def whole_turn(turn: int, *rows: Row) -> list[Row]:
    end: Row = ("turn/end", {"turn": turn, "reason": {"kind": "completed"}})
    return [*open_turn(turn, *rows), ("step/end", {"turn": turn, "step": 1}), end]


class Histories:
    """A session whose log is as somebody says, and processes that go on with it."""

    def __init__(self, space: Workspace, answering: Callable[..., Model]) -> None:
        self._space, self._answering = space, answering
        space.write("resumer.py", RESUMER)
        space.write("plain.yml", "- {id: session-persistence-jsonl, merge: {compression: none}}\n")

    def write(self, rows: Sequence[Row]) -> None:
        """Put these rows in the place of those of a real session."""
        self._answering(text("done"))
        assert self._space.run("run", "--patch", "plain.yml", "x").code == 0
        [log] = self._space.logs()
        header = log_rows(log)[0]
        lines: list[Any] = [header]
        for seq, (kind, data) in enumerate(rows):
            row = {"type": kind, "seq": seq, "time": header["createdAt"] + seq, "data": data}
            if kind == "assistant/message":
                row["sourceEventSeqs"] = []
            if kind in ON_SURFACE:
                row["surfaceOp"] = "append"
            lines.append(row)
        log.write_bytes(b"".join(encode(line) + b"\n" for line in lines))
        again = (self._space.work / "plain.yml").read_text() + AGAIN.replace("ID", header["id"])
        self._space.write("again.yml", again)

    def go_on(self) -> list[dict[str, Any]]:
        """The messages that the next process sends behind the system text."""
        model = self._answering(text("well"))
        done = self._space.run("run", "--patch", "again.yml", "ignored")
        assert done.code == 0, done.stderr
        [body] = model.bodies()
        assert wire_problems(json.dumps(body).encode()) == []
        assert body["messages"][0]["role"] == "system"
        return body["messages"][1:]  # type: ignore[no-any-return]

    def repairs(self) -> int:
        """How many results the log holds that a repair has made up."""
        [log] = self._space.logs()
        results = [row["data"] for row in log_rows(log) if row["type"] == "tool/result"]
        return sum("error" in data for data in results)


@pytest.fixture
def histories(space: Workspace, answering: Callable[..., Model]) -> Histories:
    return Histories(space, answering)


NOT_RUN, UNKNOWN = "recorded as started", "outcome is unknown"


@pytest.mark.parametrize(
    ("rows", "answers", "repairs"),
    [
        (open_turn(1, asks(1, "c1", "c2")), [NOT_RUN, NOT_RUN], 2),
        (
            open_turn(1, asks(1, "c1", "c2"), call(1, "c1"), call(1, "c2"), result(1, "c1", "one")),
            ["one", UNKNOWN],
            1,
        ),
        (
            [
                *whole_turn(1, asks(1, "c1"), call(1, "c1")),
                *(row for n in range(2, 12) for row in whole_turn(n, says(n, text_block(f"reply {n}")))),
            ],
            [UNKNOWN],
            0,
        ),
        (whole_turn(1, says(1, text_block("a reply")), result(1, "c9", "of nobody")), [], 0),
        (
            whole_turn(
                1,
                asks(1, "c1", "c2", "c3"),
                *(call(1, name) for name in ("c1", "c2", "c3")),
                result(1, "c1", "one"),
                result(1, "c3", "three"),
            ),
            ["one", UNKNOWN, "three"],
            0,
        ),
    ],
    ids=["none started", "one of two done", "deep in the history", "a result alone", "the middle one lost"],
)
def test_each_call_is_answered_once_and_a_second_resume_adds_nothing(
    histories: Histories, rows: list[Row], answers: list[str], repairs: int
) -> None:
    histories.write(rows)

    first = histories.go_on()

    found = [message["content"] for message in first if message["role"] == "tool"]
    assert len(found) == len(answers)
    assert [words for words, content in zip(answers, found, strict=True) if words not in content] == [], found
    assert "of nobody" not in str(first)
    assert first[-1] == {"role": "user", "content": "go on"} or "go on" in str(first[-2:])
    assert histories.repairs() == repairs
    second = histories.go_on()
    assert second[: len(first)] == first, "what was made up once stays as it is"
    assert histories.repairs() == repairs


@pytest.mark.parametrize(
    ("rows", "sent"),
    [
        ([asks(1, "c1"), call(1, "c1"), result(1, "c1", "one")], ["assistant", "tool one"]),
        ([says(1, text_block(""))], []),
        ([says(1, text_block(" \n"))], []),
        ([asks(1, "c1"), call(1, "c1"), result(1, "c1", "")], ["assistant", "tool (no output)"]),
        ([asks(1, "c1"), call(1, "c1"), result(1, "c1")], ["assistant", "tool (no output)"]),
        ([says(1)], []),
    ],
    ids=["only calls", "empty text", "blank text", "an empty result", "a result of nothing", "no content"],
)
def test_nothing_blank_goes_out(histories: Histories, rows: list[Row], sent: list[str]) -> None:
    histories.write(whole_turn(1, *rows))

    prompt, *between = histories.go_on()

    assert prompt == {"role": "user", "content": "prompt 1"}
    replies = [message for message in between if message["role"] != "user"]
    told = [m["role"] + (f" {m['content']}" if m["role"] == "tool" else "") for m in replies]
    assert told == sent
