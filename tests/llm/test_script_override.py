"""Override files: whole lists, patches, and what is wrong with one."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dsh.llm.failure import LlmFailure
from dsh.llm.script.call import Call, check_whole
from dsh.llm.script.entry import PARTIAL, Chunks, Hang, Throw
from dsh.llm.script.error import ScriptError
from dsh.llm.script.override import overridden, read_override
from dsh.session.chunk import BlockStart, Finish

STOP = {"type": "finish", "reason": {"kind": "stop"}}
A, B = Call(entry=Chunks(()), seq=1, purpose="turn"), Call(entry=Hang(()), seq=2, cut="raised")
CHUNKS = {"kind": "chunks", "chunks": [STOP]}
DELTA = {"type": "text-delta", "index": 0, "text": "x"}
STOPPED = Chunks((Finish({"kind": "stop"}),))


def test_a_bare_list_replaces_every_call() -> None:
    throw = {"kind": "throw", "chunks": [{"type": "block-start", "index": 0, "blockType": "text"}]}
    document = [CHUNKS, {**throw, "message": "no", "code": "SERVER"}, {"kind": "hang", "readyFile": "/r"}]

    assert [call.entry for call in overridden([A], document)] == [
        STOPPED,
        Throw((BlockStart(0, "text"),), LlmFailure("no", "SERVER")),
        Hang(PARTIAL, "/r"),
    ]
    assert overridden([A, B], []) == []


def test_ours_may_say_more_of_a_failure_and_of_a_silence() -> None:
    throw = {"kind": "throw", "chunks": [], "message": "no", "code": "RATE_LIMIT"}
    facts = {"status": 429, "providerRetryAfterMs": 1500, "requestId": "r"}

    made, silent = overridden([], [{**throw, **facts}, {"kind": "hang", "chunks": []}])
    assert made.entry == Throw((), LlmFailure("no", "RATE_LIMIT", 429, 1500, "r"))
    assert silent.entry == Hang(())


def test_patches_exchange_calls_and_append_one() -> None:
    patches = {"patches": [{"at": 2, "entry": CHUNKS}, {"at": 1, "entry": CHUNKS}]}

    made = overridden([A, B], patches)
    assert made[0] == A
    assert (made[1].entry, made[1].seq, made[1].cut) == (STOPPED, 2, None)
    assert made[2] == Call(entry=STOPPED)
    check_whole(made)
    more = overridden([A, B], {"patches": [{"at": at, "entry": CHUNKS} for at in (3, 2)]})
    assert more == [A, B, Call(entry=STOPPED), Call(entry=STOPPED)]


def test_what_may_not_have_been_called_and_titles_are_not_counted() -> None:
    title = Call(entry=Chunks(()), purpose="session-title")
    perhaps = Call(entry=Chunks(()), purpose="compaction", is_needed=False)

    made = overridden([title, perhaps, A], {"patches": [{"at": 0, "entry": CHUNKS}]})
    assert made[:2] == [title, perhaps]
    assert made[2].entry == STOPPED
    with pytest.raises(ScriptError) as caught:
        check_whole([title, perhaps, A, B])
    assert caught.value.hint == "give an override for call 1"


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"patches": [{"at": 0, "entry": CHUNKS}] * 2}, "`at` 0 stands twice"),
        ({"patches": [{"at": 3, "entry": CHUNKS}]}, "are 2: 0 to 2"),
        ({"patches": [{"at": -1, "entry": CHUNKS}]}, "`at` is -1"),
        ({"patches": [{"at": 0}]}, "entry"),
        ({"patches": [], "more": 1}, "more"),
        ({}, "patches"),
        (7, "object"),
        ([{"kind": "other"}], "other"),
        ([{**CHUNKS, "more": 1}], "more"),
        ([{"kind": "chunks", "chunks": [{"type": "other"}]}], "stream chunk"),
        ([{"kind": "throw", "chunks": [], "message": "", "code": "X"}], "message is empty"),
        ([{"kind": "throw", "chunks": [], "message": "m", "code": "X", "status": 7}], "100 to 599"),
        ([{"kind": "hang", "readyfile": "x"}], "readyfile"),
        ([CHUNKS, {"kind": "chunks", "chunks": []}], "1: the model stream ended without a finish"),
        ([{"kind": "chunks", "chunks": [STOP, STOP]}], "0: the model stream breaks its grammar"),
        ([{"kind": "hang", "chunks": [DELTA]}], "no text block is open"),
        ([{"kind": "throw", "chunks": [STOP], "message": "m", "code": "X"}], "breaks off has no finish"),
        ({"patches": [{"at": 0, "entry": {"kind": "chunks", "chunks": [DELTA]}}]}, "patches.0.entry: "),
        ([{"kind": "chunks", "chunks": [{**DELTA, "text": "{{fromRequest:x"}]}], "has no end"),
        ([{"kind": "throw", "chunks": [], "message": "{{fromRequest:(}}", "code": "X"}], "no regular"),
    ],
)
def test_what_is_wrong_with_an_override_is_named(tmp_path: Path, document: Any, told: str) -> None:
    path = tmp_path / "o.json"
    path.write_text(json.dumps(document))

    with pytest.raises(ScriptError) as caught:
        read_override(path, [A, B])
    assert caught.value.code == "SCRIPT_INVALID"
    assert str(caught.value).startswith(f"{path}: ")
    assert told in str(caught.value)


def test_a_file_that_does_not_exist_changes_nothing(tmp_path: Path) -> None:
    assert read_override(tmp_path / "none.json", [A, B]) == [A, B]


@pytest.mark.parametrize("text", ["{", "\xff", "NaN"])
def test_a_file_that_is_no_json_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "o.json"
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(ScriptError, match=r"o\.json"):
        read_override(path, [])
    with pytest.raises(ScriptError, match="cannot be read"):
        read_override(tmp_path, [])
    with pytest.raises(ScriptError, match="no regular file"):
        read_override(Path(os.devnull), [])
