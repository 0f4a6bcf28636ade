"""What was changed in a recorded log is found by a replay, or is said not to count in docs/replay.md."""

import copy
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dsh.testing.workspace import Workspace, log_rows
from tests.e2e.model import serve
from tests.e2e.reply import bash, failure, text
from tests.replaying import Rows, replayed, rewritten, without_digests

At = tuple[str | int, ...]
Change = tuple[str, At]
"""What is done (`value`, `without`, `more`, `twice`), and where in a row."""

IGNORABLE = {"composition/mounted", "request/digest", "request/usage"}
GIVEN = {"permission/preset", "sandbox/mode", "approval/policy"}
TITLES = {"session/title", "session/title-llm-request"}
NOT_COMPARED: set[tuple[str, str]] = {
    ("agent/inbox/spliced", "data.inserted.*.id"),
    ("assistant/message", "data.message.id"),
    ("llm/retry", "data.delayMs"),
    ("llm/retry", "data.maxRetries"),
    ("llm/retry", "data.policyKey"),
    ("llm/retry", "data.retryId"),
    ("llm/retry-started", "data.retryId"),
}
"""Ids, times, and what a retry policy says of itself."""
SAID_BY_MODEL: set[tuple[str, str]] = {
    ("assistant/chunk", "data"),
    ("assistant/chunk", "data.chunk"),
    ("assistant/chunk", "data.chunk.argumentsDelta"),
    ("assistant/chunk", "data.chunk.block.id"),
    ("assistant/chunk", "data.chunk.id"),
    ("assistant/chunk", "data.chunk.name"),
    ("assistant/chunk", "data.chunk.reason"),
    ("assistant/chunk", "data.chunk.reason.failure"),
    ("assistant/chunk", "data.chunk.reason.failure.message"),
    ("assistant/chunk", "data.chunk.reason.kind"),
    ("assistant/chunk", "data.chunk.text"),
    ("tool-call-chunks", "data.args.*"),
    ("tool-call-chunks", "data.dt.*"),
    ("tool-call-chunks", "data.id"),
}
"""The pieces of a reply, where the block or the message that they end as says the same as before."""
SAID_AROUND: set[tuple[str, str]] = {
    ("request/context", "data.contextWindow"),
    ("request/header", "data"),
    ("request/header", "data.header"),
}
"""What is known of the model."""
HARMLESS = NOT_COMPARED | SAID_BY_MODEL | SAID_AROUND
WHOLE = {("tool/result", "data.meta"), ("request/header", "data.header.adapterDefaults")}
"""Where nothing inside counts either."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A turn with a failed attempt, a tool call and an answer."""
    space = Workspace(tmp_path_factory.mktemp("recorded"))
    with serve([failure(500, "oops"), bash("echo one"), text("the answer is 41")]) as model:
        space.use_model(model.base_url)
        assert space.run("run", "DO THE TASK").code == 0
    [path] = space.logs()
    return path


def first(rows: Rows, kind: str) -> dict[str, Any]:
    return next(row for row in rows if row["type"] == kind)


def last(rows: Rows, kind: str) -> dict[str, Any]:
    return first(rows[::-1], kind)


def places(value: Any, at: At = ()) -> Iterator[Change]:
    """Every change of one thing in a row."""
    if isinstance(value, dict):
        yield "more", at
        for key, one in value.items():
            yield "without", (*at, key)
            yield from places(one, (*at, key))
    elif isinstance(value, list):
        if value:
            yield "twice", at
        for number, one in enumerate(value[:2]):
            yield from places(one, (*at, number))
    else:
        yield "value", at


def changed(row: dict[str, Any], change: Change) -> dict[str, Any]:
    """The row with that change."""
    made = copy.deepcopy(row)
    what, at = change
    inside: Any = made
    for key in at[: len(at) - (what in ("value", "without"))]:
        inside = inside[key]
    if what == "more":
        inside["more"] = "X"
    elif what == "twice":
        inside.append(copy.deepcopy(inside[-1]))
    elif what == "without":
        del inside[at[-1]]
    else:
        inside[at[-1]] = other(inside[at[-1]])
    return made


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value}X" if isinstance(value, str) else "X"


def is_harmless(kind: str, at: At) -> bool:
    if at[:1] in (("time",), ("time0",)) or kind in IGNORABLE | TITLES | GIVEN:
        return True
    named = ".".join("*" if isinstance(key, int) else key for key in at)
    if any((kind, beginning) in WHOLE for beginning in (named, named.rpartition(".")[0])):
        return True
    return (kind, named) in HARMLESS


def put(rows: Rows, *, at: int, row: dict[str, Any]) -> None:
    rows[at] = row


def is_schema(at: At) -> bool:
    """Deep inside a tool's parameters, of which there are many: one digest covers them all."""
    return at[:3] == ("data", "header", "tools") and len(at) > 5


def test_every_changed_field_is_found_or_does_not_count(log: Path) -> None:
    passed: list[tuple[str, Change]] = []
    seen: set[tuple[Any, ...]] = set()
    for number, row in enumerate(log_rows(log)[1:], 1):
        kind = str(row["type"])
        chunk = row["data"]["chunk"]["type"] if kind == "assistant/chunk" else None
        for what, at in places(row):
            shape = (kind, chunk, what, *("*" if isinstance(key, int) else key for key in at))
            if shape in seen or is_harmless(kind, at) or is_schema(at):
                continue
            seen.add(shape)
            made = changed(row, (what, at))
            if replayed(rewritten(log, partial(put, at=number, row=made))).code == 0:
                passed.append((kind, (what, at)))

    assert len(seen) > 300
    assert passed == []


def moved(rows: Rows, by: int) -> Rows:
    """Rows that stand so much later in the log, and cite each other there."""
    first_seq = min(int(rows[0][key]) for key in ("seq", "seq0") if key in rows[0]) if rows else 0

    def place(seq: int) -> int:
        return seq + by if seq >= first_seq else seq

    for row in rows:
        for key in ("seq", "seq0"):
            if key in row:
                row[key] += by
        if "sourceEventSeqs" in row:
            row["sourceEventSeqs"] = [place(seq) for seq in row["sourceEventSeqs"]]
    return rows


def events_of(log: Path) -> list[tuple[int, str]]:
    """The rows that a replay has to make again, without pieces of replies."""
    left_out = IGNORABLE | TITLES | GIVEN | {"assistant/chunk"}
    rows = enumerate(log_rows(log))
    return [(n, row["type"]) for n, row in rows if n and "seq" in row and row["type"] not in left_out]


def test_every_dropped_event_is_found_but_the_end_of_a_turn_that_a_crash_may_have_cut_off(log: Path) -> None:
    def drop(rows: Rows, *, at: int) -> None:
        rows[at:] = moved(rows[at + 1 :], -1)

    found = [(kind, replayed(rewritten(log, partial(drop, at=at))).code) for at, kind in events_of(log)]

    assert [kind for kind, code in found if code == 0] == ["turn/end"]


def test_every_doubled_event_is_found(log: Path) -> None:
    def double(rows: Rows, *, at: int) -> None:
        rows[at + 1 :] = moved(copy.deepcopy(rows[at:]), 1)

    found = [(kind, replayed(rewritten(log, partial(double, at=at))).code) for at, kind in events_of(log)]

    assert [kind for kind, code in found if code == 0] == []


def test_a_log_that_says_less_than_its_types_is_refused_with_the_place(log: Path) -> None:
    def change(rows: Rows) -> None:
        del first(rows, "tool/call")["data"]["callId"]

    done = replayed(rewritten(log, change))

    seq = first(log_rows(log), "tool/call")["seq"]
    assert (done.code, done.report) == (1, None)
    assert done.told.startswith("INVALID_EVENT: ")
    assert f"seq {seq}: tool/call: " in done.told


def test_a_changed_reply_is_found_where_it_stands(log: Path) -> None:
    def change(rows: Rows) -> None:
        last(rows, "assistant/message")["data"]["message"]["content"][0]["text"] = "the answer is 42"

    done = replayed(rewritten(log, change))
    found, row = done.difference, last(log_rows(log), "assistant/message")

    assert done.code == 1
    assert (found.seq, found.turn, found.step) == (row["seq"], 1, 2)
    assert (found.recorded, found.replayed) == ("the answer is 42", "the answer is 41")
    assert found.path == "data.message.content[0].text"
    assert f"diverges at seq {row['seq']}, turn 1, step 2: assistant/message differs" in done.told


def test_a_changed_result_is_found_by_the_digest_of_the_next_request(log: Path) -> None:
    def change(rows: Rows) -> None:
        result = first(rows, "tool/result")["data"]["message"]["content"][0]
        result["content"][0]["text"] = "two\n"

    found = replayed(rewritten(log, change)).difference

    digest = last(log_rows(log), "request/digest")
    assert (found.type, found.seq) == ("request/digest", digest["seq"])
    assert (found.turn, found.step) == (1, 2)


def test_a_changed_prompt_is_found_where_it_enters(log: Path) -> None:
    def change(rows: Rows) -> None:
        without_digests(rows)
        first(rows, "agent/inbox/spliced")["data"]["inserted"][0]["content"][0]["text"] = "DO THE TASK!"

    found = replayed(rewritten(log, change)).difference

    row = first(log_rows(log), "user/message")
    assert (found.seq, found.type) == (row["seq"], "user/message")
    assert (found.recorded, found.replayed) == ("DO THE TASK", "DO THE TASK!")


def test_a_prompt_that_stands_twice_is_found_without_digests_too(log: Path) -> None:
    def change(rows: Rows) -> None:
        without_digests(rows)
        at = rows.index(first(rows, "user/message"))
        rows[at + 1 :] = moved(copy.deepcopy(rows[at:]), 1)

    found = replayed(rewritten(log, change)).difference

    assert found.seq == first(log_rows(log), "user/message")["seq"] + 1


def test_a_result_that_is_missing_is_found_without_digests_too(log: Path) -> None:
    def change(rows: Rows) -> None:
        without_digests(rows)
        at = rows.index(first(rows, "tool/result"))
        rows[at:] = moved(rows[at + 1 :], -1)

    assert replayed(rewritten(log, change)).code == 1


def test_a_changed_piece_of_a_reply_is_found_before_the_digest_that_it_breaks(log: Path) -> None:
    def change(rows: Rows) -> None:
        block = first(rows, "assistant/message")["data"]["message"]["content"][0]
        block["arguments"] = block["arguments"].replace("echo one", "echo two")

    found = replayed(rewritten(log, change)).difference

    row = first(log_rows(log), "assistant/message")
    assert (found.seq, found.path) == (row["seq"], "data.message.content[0].arguments")


def test_a_contradiction_in_what_is_not_compared_is_a_difference_too(log: Path) -> None:
    def change(rows: Rows) -> None:
        first(rows, "request/usage")["data"]["usage"]["outputTokens"] += 1

    found = replayed(rewritten(log, change)).difference

    assert found.problem.startswith("the log contradicts itself: USAGE_")
    assert found.seq is not None


def test_other_words_around_a_snapshot_are_noted_where_no_digest_holds_them(log: Path) -> None:
    def change(rows: Rows) -> None:
        without_digests(rows)
        [snapshot] = [row for row in rows if row.get("data", {}).get("source", {}).get("form") == "snapshot"]
        snapshot["data"]["content"][0]["text"] += "!"

    done = replayed(rewritten(log, change))

    assert done.divergence is None
    assert "note: the runtime context of this composition is not the recorded one" in done.told


def test_a_missing_event_is_a_difference(log: Path) -> None:
    def change(rows: Rows) -> None:
        first(rows, "request/context").update(type="acme/nothing", ignorable=True)

    found = replayed(rewritten(log, change)).difference

    assert "the replay request/context" in found.problem
    assert found.seq is not None
    assert found.seq > first(log_rows(log), "request/context")["seq"]
