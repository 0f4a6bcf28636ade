"""Recordings as files: stored logs, packed and compressed, and fixtures without seq and time."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from dsh.llm.adapter import RetryPolicy
from dsh.llm.retry import policy_key
from dsh.llm.script.error import ScriptError
from dsh.llm.script.recording import read_recording
from dsh.llm.script.route import policy_from_key, recorded_policies
from dsh.persistence.jsonl.frames import encode_frame
from dsh.session.chunk import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    chunk_to_json,
)
from dsh.session.chunk_row import pack
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.value import encode
from tests.corpus import CORPUS, needs_corpus

HEADER = {"type": "session", "version": 0, "id": "s", "createdAt": 5, "delegationDepth": 0}
CONFIG = {"provider": "p", "model": "m", "maxTokens": 9}


def chunk(piece: dict[str, Any]) -> dict[str, Any]:
    return {"type": "assistant/chunk", "data": {"turn": 1, "step": 1, "chunk": piece}}


def packed(*texts: str) -> dict[str, Any]:
    data = {"turn": 1, "step": 1, "index": 0, "dt": [0] * (len(texts) - 1), "texts": list(texts)}
    return {"type": "text-chunks", "data": data}


ROWS: list[dict[str, Any]] = [
    {
        "type": "request/header",
        "data": {
            "header": {"config": CONFIG, "system": "{{system}}", "tools": "{{tools}}"},
            "reason": "initial",
        },
    },
    chunk({"type": "block-start", "index": 0, "blockType": "text"}),
    packed("a", "b", "c"),
    chunk({"type": "block-end", "index": 0, "block": {"type": "text", "text": "abc"}}),
    chunk({"type": "finish", "reason": {"kind": "stop"}}),
]


def complete(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    out, seq = [], 0
    for row in rows:
        is_packed = row["type"] == "text-chunks"
        place = {"seq0": seq, "time0": 7} if is_packed else {"seq": seq, "time": 7}
        out.append({**row, **place})
        seq += len(row["data"]["texts"]) if is_packed else 1
    return out


def written(path: Path, rows: Sequence[dict[str, Any]], header: dict[str, Any] = HEADER) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in (header, *rows)))
    return path


def texts(path: Path) -> list[str]:
    [call] = read_recording(path).calls
    return [str(chunk_to_json(piece).get("text", "")) for piece in call.entry.chunks]


@pytest.mark.parametrize("rows", [ROWS, complete(ROWS)], ids=["projected", "complete"])
def test_stored_logs_and_fixtures_give_the_same_calls(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    recording = read_recording(written(tmp_path / "s.jsonl", rows))

    assert texts(tmp_path / "s.jsonl") == ["", "a", "b", "c", "", ""]
    assert (recording.session_id, recording.created_at, recording.calls[0].seq) == ("s", 5, 1)
    assert [(model.provider, model.id) for model in recording.models] == [("p", "m")]


def test_a_compressed_log_is_read(tmp_path: Path) -> None:
    lines = written(tmp_path / "s.jsonl", complete(ROWS)).read_bytes().splitlines(keepends=True)
    path = tmp_path / "s.jsonl.zstd"
    path.write_bytes(encode_frame(lines[0]) + encode_frame(b"".join(lines[1:])))

    assert texts(path) == ["", "a", "b", "c", "", ""]


def test_a_torn_compressed_log_is_refused(tmp_path: Path) -> None:
    lines = written(tmp_path / "s.jsonl", complete(ROWS)).read_bytes().splitlines(keepends=True)
    whole = encode_frame(lines[0])
    path = tmp_path / "s.jsonl.zstd"
    path.write_bytes(whole + encode_frame(b"".join(lines[1:]))[:-3])

    with pytest.raises(ScriptError, match=f"ends inside the zstd frame at byte {len(whole)}"):
        read_recording(path)


def test_a_header_that_opens_no_log_is_enough(tmp_path: Path) -> None:
    assert texts(written(tmp_path / "s.jsonl", ROWS, {"type": "session", "id": "x"})) == [
        "", "a", "b", "c", "", "",
    ]  # fmt: skip


def test_a_child_begins_behind_its_seed(tmp_path: Path) -> None:
    more = [*ROWS, chunk({"type": "finish", "reason": {"kind": "stop"}})]
    path = written(tmp_path / "s.jsonl", more, {**HEADER, "seedLength": 7})

    assert [call.seq for call in read_recording(path, is_child=True).calls] == [7]
    assert [call.seq for call in read_recording(path).calls] == [1, 7]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", ":3: "),
        ("[]", ":3: an object is expected"),
        ("", ":3: the line is empty"),
        ('{"type":"x","seq":1,"time":0,"data":1}', ":3: this row is with seq, others are not"),
        ('{"data":1}', ":3: an event has a type"),
        ('{"type":"x"}', ":3: an event has a type"),
        ('{"type":"text-chunks","data":{}}', ":3: chunk row"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join((json.dumps(HEADER), json.dumps(ROWS[0]), line, json.dumps(ROWS[1]), "")))

    with pytest.raises(ScriptError) as caught:
        read_recording(path)
    assert caught.value.code == "SCRIPT_INVALID"
    assert f"{path}{told}" in str(caught.value)


def test_a_gap_and_a_missing_file_are_named(tmp_path: Path) -> None:
    rows = complete(ROWS)
    rows[1]["seq"] = 4
    with pytest.raises(ScriptError, match="expected seq 1, found 4"):
        read_recording(written(tmp_path / "s.jsonl", rows))
    with pytest.raises(ScriptError, match="No such file"):
        read_recording(tmp_path / "none.jsonl")
    with pytest.raises(ScriptError, match=r"seq 0: assistant/chunk"):
        read_recording(written(tmp_path / "s.jsonl", [{"type": "assistant/chunk", "data": {}}]))


@pytest.mark.parametrize("data", [None, {}, {"header": {}}, {"header": {"config": {"provider": 1}}}])
def test_a_header_that_was_cut_short_says_nothing(tmp_path: Path, data: Any) -> None:
    recording = read_recording(
        written(tmp_path / "s.jsonl", [{"type": "request/header", "data": data}, *ROWS[1:]])
    )

    assert recording.models == ()
    assert len(recording.calls) == 1


def message(words: str, **source: Any) -> dict[str, Any]:
    data = {"content": [{"type": "text", "text": words}], "source": source, "role": "user", "id": words}
    return {"type": "user/message", "data": data}


@pytest.mark.parametrize(
    ("before", "opening"),
    [
        ([message("a", kind="user"), message("b", kind="user"), message("now", kind="plugin")], "b"),
        ([message("a", kind="user"), message("told", kind="coordinator", form="relay")], "told"),
        ([message("now", kind="plugin")], None),
        ([], None),
        ([{"type": "user/message", "data": {"content": 1}}], None),
        ([{"type": "user/message", "data": [1]}], None),
    ],
)
def test_a_recording_knows_what_was_said_before_its_first_call(
    tmp_path: Path, before: list[dict[str, Any]], opening: str | None
) -> None:
    rows = [*before, *ROWS, message("later", kind="user"), *ROWS]

    assert read_recording(written(tmp_path / "s.jsonl", rows)).opening == opening
    assert read_recording(written(tmp_path / "s.jsonl", before)).opening is None


@needs_corpus
def test_every_recording_of_the_corpus_gives_its_calls() -> None:
    """Every finish of the log ends a call. Two were cancelled; one fixture is cut short."""
    cut, count = [], 0
    for path in sorted((CORPUS / "fixtures").glob("*.jsonl")) + sorted((CORPUS / "runs").glob("*.jsonl")):
        calls = read_recording(path, is_child=True).calls
        turns = [call for call in calls if call.purpose == "turn"]
        rows = [json.loads(line) for line in path.read_bytes().splitlines()]
        start = rows[0].get("seedLength", 0)
        ends = [
            row
            for row in rows[1:]
            if row["type"] == "assistant/chunk"
            and row["data"]["chunk"]["type"] == "finish"
            and row["seq"] >= start
        ]
        count += len(turns)
        cut += [(path.name, call.cut) for call in turns if call.cut]
        assert len(turns) == len(ends) + sum(call.cut is not None for call in turns), path.name
    assert count > 200
    prefix = "packages-test-support-acp-snapshot-tests-fixtures-suite-"
    assert [(name.removesuffix("-session.jsonl"), why) for name, why in cut] == [
        ("acp-agent-cancel", "cancelled"),
        ("acp-agent-tests-goal-snapshots-goal-round-driver-session-expected.jsonl", "cancelled"),
        (f"{prefix}plain-turn", "crashed"),
    ]


@needs_corpus
def test_a_damaged_recording_gives_calls_or_one_named_error() -> None:
    for path in sorted((CORPUS / "variants").glob("*.jsonl*")):
        try:
            read_recording(path)
        except ScriptError as error:
            assert str(error).startswith(str(path)), error
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(),
        RetryPolicy(mode="always", initial_delay_ms=1.5),
        RetryPolicy(max_retries=0, retryable_codes=("A", "B"), jitter_ratio=0),
    ],
)
def test_a_policy_is_read_from_its_key(policy: RetryPolicy) -> None:
    found = policy_from_key(policy_key(policy))

    assert found is not None
    assert policy_key(found) == policy_key(policy)


@pytest.mark.parametrize("key", ["", "[]", "{}", "7", '["normal",1,2,3]', '["always",0,0,0]', '["x",1,1,1]'])
def test_what_is_no_key_of_a_policy_names_none(key: str) -> None:
    assert policy_from_key(key) is None


def test_no_failure_says_nothing_of_the_policy(tmp_path: Path) -> None:
    assert recorded_policies([]) == {}
    assert read_recording(written(tmp_path / "s.jsonl", ROWS)).policies == {}


BLOCKS = st.one_of(
    st.builds(lambda t: ("text", {"type": "text", "text": t}), st.text(max_size=9)),
    st.builds(lambda t: ("reasoning", {"type": "reasoning", "text": t}), st.text(max_size=9)),
    st.builds(
        lambda t: ("tool-call", {"type": "tool-call", "id": "c", "name": "n", "arguments": t}),
        st.text(max_size=9),
    ),
)
ENDS = st.sampled_from(
    [
        {"kind": "stop"},
        {"kind": "max-tokens"},
        {"kind": "error", "failure": {"message": "m", "code": "SERVER"}},
    ]
)


def streamed(blocks: Sequence[tuple[str, dict[str, Any]]], end: dict[str, Any], size: int) -> list[Chunk]:
    """A reply in deltas of so many characters."""
    out: list[Chunk] = []
    for index, (kind, block) in enumerate(blocks):
        out.append(BlockStart(index, kind))
        text = block.get("text", block.get("arguments", ""))
        for piece in (text[at : at + size] for at in range(0, len(text), size)):
            if kind == "tool-call":
                out.append(ToolCallDelta(index, "c", named(piece), piece))
            else:
                out.append(TextDelta(index, piece) if kind == "text" else ReasoningDelta(index, piece))
        out.append(BlockEnd(index, block))
    return [*out, Finish(end)]


def named(piece: str) -> str | UnsetType:
    """A name on some deltas only, as providers do."""
    return "n" if len(piece) % 2 else UNSET


@given(st.lists(st.tuples(st.lists(BLOCKS, max_size=3), ENDS, st.integers(1, 4)), max_size=4))
def test_what_was_streamed_is_what_is_read_from_a_log_and_from_a_fixture(
    tmp_path_factory: pytest.TempPathFactory, replies: list[Any]
) -> None:
    """Packed or not, with seq and time or without."""
    live = [streamed(*reply) for reply in replies]
    session = Session(SessionHeader(id="s", created_at=0))
    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    for chunks in live:
        for piece in chunks:
            session.append_chunk(1, 1, piece)
    rows = list(pack(session.entries()))
    bare = [{k: v for k, v in row.items() if k not in ("seq", "time", "seq0", "time0")} for row in rows]
    path = tmp_path_factory.mktemp("r") / "s.jsonl"

    for written_rows in (rows, bare, [event.to_json() for event in session.events()]):
        path.write_bytes(b"".join(encode(row) + b"\n" for row in (HEADER, *written_rows)))
        calls = read_recording(path).calls
        read = [[encode(chunk_to_json(piece)) for piece in call.entry.chunks] for call in calls]
        assert read == [[encode(chunk_to_json(piece)) for piece in chunks] for chunks in live]
