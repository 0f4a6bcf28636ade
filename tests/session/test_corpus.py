"""Recorded logs of the original, read and derived as its own reader does (`spec/session-log.md` §16)."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dsh.session.chunk_row import pack
from dsh.session.chunk_run import ChunkRun, expand
from dsh.session.envelope import event_from_json
from dsh.session.error import SessionError
from dsh.session.header import header_from_line
from dsh.session.restore import Restored, restore
from dsh.session.value import decode_strict, encode, json_equal
from tests.corpus import CORPUS, needs_corpus
from tests.session.build import decode_lines

LOGS = sorted(path for folder in ("fixtures", "runs") for path in CORPUS.glob(f"{folder}/*.jsonl"))
"""Plain and whole logs; torn and compressed ones are the business of the storage tests."""
EXPECTED_REFUSALS = 8
CHUNKS_OUTSIDE_A_STEP = 5

pytestmark = needs_corpus


def expected(log: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(log.with_name(log.stem + ".expected.json").read_text())
    return value


SOUND = [log for log in LOGS if "error" not in expected(log)]


def read(log: Path) -> Restored:
    head, *body = log.read_bytes().split(b"\n")[:-1]
    return restore(header_from_line(head), decode_lines(body))


def masked(value: Any) -> Any:
    """The wording of results that repair makes up is free."""
    if isinstance(value, dict):
        if str(value.get("id", "")).startswith("interrupted-tool-result-"):
            return json.loads(re.sub(r'"text": "(?:[^"\\]|\\.)*"', '"text": "*"', json.dumps(value)))
        return {key: masked(item) for key, item in value.items()}
    return [masked(item) for item in value] if isinstance(value, list) else value


def derived(restored: Restored) -> dict[str, Any]:
    view = restored.view
    found: dict[str, Any] = {
        "events": view.length,
        "header": view.header.to_json(),
        "messages": view.derive_messages(),
        "surface": view.surface_nodes,
        "requestHeader": view.request_header,
    }
    if view.length:
        found["last"] = view.event(view.length - 1).to_json()
        found["lastType"] = found["last"]["type"]
    answer: dict[str, Any] = decode_strict(encode(found))
    return answer


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_a_recorded_log_reads_as_the_original_reads_it(log: Path) -> None:
    want = expected(log)
    if "error" in want:
        with pytest.raises(SessionError):
            read(log)
        return

    got = derived(read(log))

    assert got.keys() == want.keys()
    for key, value in want.items():
        assert json_equal(masked(got[key]), masked(value)), key


def test_as_many_are_refused_as_the_original_refuses() -> None:
    assert sum("error" in expected(log) for log in LOGS) == EXPECTED_REFUSALS


def test_the_rules_of_turns_and_steps_hold_but_for_logs_of_chunks_alone() -> None:
    views = [read(log).view for log in SOUND]
    odd = [view for view in views if view.irregularities]

    assert all(message.startswith("assistant/chunk") for view in odd for _, message in view.irregularities)
    assert len(odd) == CHUNKS_OUTSIDE_A_STEP


@pytest.mark.parametrize("log", SOUND, ids=lambda log: log.stem)
def test_each_stored_line_is_written_back_byte_for_byte(log: Path) -> None:
    for line in log.read_bytes().split(b"\n")[1:-1]:
        entry = decode_lines([line])[0]
        written = entry.to_row() if isinstance(entry, ChunkRun) else event_from_json(entry).to_json()
        assert encode(written) == line


@pytest.mark.parametrize("log", SOUND, ids=lambda log: log.stem)
def test_packing_a_whole_log_again_loses_nothing(log: Path) -> None:
    entries = decode_lines(log.read_bytes().split(b"\n")[1:-1])
    held = [entry if isinstance(entry, ChunkRun) else event_from_json(entry) for entry in entries]

    again = decode_lines([encode(row) for row in pack(held)])

    back = [entry if isinstance(entry, ChunkRun) else event_from_json(entry) for entry in again]
    assert list(expand(back)) == list(expand(held))
