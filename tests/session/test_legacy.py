"""Import of what early builds wrote (`spec/session-log.md` §13)."""

from typing import Any

import pytest

from dsh.session.error import CorruptLog
from dsh.session.legacy import LegacyReader
from dsh.session.restore import restore
from tests.ids import readable
from tests.session.build import header, plain, prompt, result, stored

MINTED = "legacy-message:s:0"
TEXT = [{"type": "text", "text": "x"}]


def converted(kind: str, data: Any, **envelope: Any) -> dict[str, Any]:
    entry = LegacyReader("s").convert(stored(kind, 0, data, **envelope))
    assert isinstance(entry, dict)
    return entry


def test_a_trigger_goes() -> None:
    assert converted("turn/start", {"turn": 3, "trigger": {"kind": "message"}})["data"] == {"turn": 3}
    assert converted("turn/start", {"turn": 3, "extra": 1})["data"] == {"turn": 3, "extra": 1}


FAILURE = {"message": "m", "code": "C", "status": 500, "providerRetryAfterMs": 1.5, "requestId": "r"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"kind": "aborted"}, {"kind": "aborted", "reason": {"kind": "legacy"}}),
        ({"kind": "aborted", "reason": 7, "x": 1}, {"kind": "aborted", "reason": 7, "x": 1}),
        ({"kind": "disposed"}, {"kind": "aborted", "reason": {"kind": "disposed"}}),
        ({"kind": "error", "step": 0, "failure": FAILURE}, {"kind": "error", "error": FAILURE}),
        (
            {"kind": "error", "step": 1, "message": "m"},
            {"kind": "error", "error": {"message": "m", "code": "UNKNOWN"}},
        ),
        (
            {"kind": "error", "step": 1, "message": "m", "code": "C"},
            {"kind": "error", "error": {"message": "m", "code": "C"}},
        ),
        ({"kind": "error", "error": 1, "x": 2}, {"kind": "error", "error": 1, "x": 2}),
        ({"kind": "acme", "x": 2}, {"kind": "acme", "x": 2}),
        ({"kind": "completed"}, {"kind": "completed"}),
    ],
    ids=readable,
)
def test_old_reasons_become_current_ones(old: Any, new: Any) -> None:
    assert converted("turn/end", {"turn": 1, "reason": old})["data"] == {"turn": 1, "reason": new}


def test_steering_becomes_a_user_message() -> None:
    wrapped = converted("steering/message", {"turn": 1, "message": plain(prompt())}, surfaceOp="append")
    bare = converted("steering/message", {"turn": 1, "content": TEXT, "source": {"kind": "user"}})

    assert (wrapped["type"], wrapped["data"], wrapped["surfaceOp"]) == (
        "user/message",
        plain(prompt()),
        "append",
    )
    assert bare["data"] == {"content": TEXT, "source": {"kind": "user"}, "id": MINTED, "role": "user"}


def test_messages_without_identity_get_one() -> None:
    user = converted("user/message", {"content": TEXT, "source": {"kind": "user"}})
    assistant = converted(
        "assistant/message",
        {"turn": 1, "step": 2, "content": TEXT, "provenance": {"provider": "p", "model": "m"}, "usage": 5},
    )
    tool = converted(
        "tool/result", {"turn": 1, "step": 2, "callId": "c", "content": TEXT, "isError": False, "meta": 1}
    )

    assert user["data"] == {"content": TEXT, "source": {"kind": "user"}, "id": MINTED, "role": "user"}
    assert assistant["data"] == {
        "turn": 1,
        "step": 2,
        "usage": 5,
        "message": {
            "id": MINTED,
            "role": "assistant",
            "content": TEXT,
            "source": {"kind": "model", "provider": "p", "model": "m"},
        },
    }
    assert tool["data"] == {
        "turn": 1,
        "step": 2,
        "meta": 1,
        "message": {
            "id": MINTED,
            "role": "user",
            "source": {"kind": "tool", "callId": "c"},
            "content": [{"type": "tool-result", "toolCallId": "c", "content": TEXT, "isError": False}],
        },
    }


def test_an_old_replacement_of_a_result_keeps_the_id_of_its_target() -> None:
    old = {"turn": 1, "step": 1, "callId": "c", "content": TEXT, "isError": False}
    first = stored("tool/result", 0, {"turn": 1, "step": 1, "message": plain(result("c", id="kept"))})
    second = stored("tool/result", 1, old, surfaceOp={"op": "replace", "start": 0, "end": 0})

    reader = LegacyReader("s")
    reader.convert(first)
    replacement = reader.convert(second)

    assert replacement["data"]["message"]["id"] == "kept"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("request/header-delta", {}),
        ("mode/set", {}),
        ("request/header", {"header": {}, "reason": "fallback"}),
        ("turn/start", {"turn": 0, "trigger": {"kind": "x"}}),
        ("turn/start", {"turn": 1, "trigger": {"kind": "x"}, "more": 1}),
        ("turn/start", {"turn": 1, "trigger": {"kind": ""}}),
        ("turn/start", {"turn": 1, "trigger": None}),
        ("turn/end", None),
        ("turn/end", {"turn": 1}),
        ("turn/end", {"turn": 0, "reason": {"kind": "completed"}}),
        ("turn/end", {"turn": True, "reason": {"kind": "completed"}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "completed"}, "x": 1}),
        ("turn/end", {"turn": 1, "reason": "completed"}),
        ("turn/end", {"turn": 1, "reason": {}}),
        *(
            ("turn/end", {"turn": 1, "reason": {"kind": kind, "x": 1}})
            for kind in ("completed", "blocked", "max-tokens", "interrupted", "aborted", "disposed")
        ),
        ("turn/end", {"turn": 1, "reason": {"kind": "error"}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": -1, "message": "m"}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "message": "m", "x": 1}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "message": 1}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "failure": {"code": "C"}}}),
        ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "failure": {**FAILURE, "x": 1}}}),
        (
            "turn/end",
            {"turn": 1, "reason": {"kind": "error", "step": 1, "failure": {**FAILURE, "status": "5"}}},
        ),
        ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "failure": FAILURE, "message": "m"}}),
        ("steering/message", {"turn": 1}),
        ("steering/message", None),
        ("steering/message", {"turn": 1, "content": TEXT, "source": {"kind": "user"}, "x": 1}),
        ("user/message", {"content": TEXT, "source": {"kind": "user"}, "id": "m"}),
        ("user/message", {"content": TEXT, "source": {"kind": "user"}, "message": {}}),
        ("assistant/message", {"content": TEXT, "provenance": "p"}),
        ("assistant/message", {"content": TEXT}),
        ("tool/result", {"callId": "c", "content": TEXT}),
    ],
    ids=readable,
)
def test_damaged_old_shapes_are_corruption(kind: str, data: Any) -> None:
    with pytest.raises(CorruptLog) as caught:
        restore(header(), [stored("feedback/record", 0, {}), stored(kind, 1, data)])

    assert caught.value.index == 1


def test_retired_vocabulary_is_found_before_anything_else() -> None:
    log = [stored("turn/end", 0, {}), stored("acme/note", 1, {}), stored("mode/set", 2, {})]

    with pytest.raises(CorruptLog, match="retired"):
        restore(header(), log)


def test_what_was_read_is_not_changed() -> None:
    entry = stored("turn/start", 0, {"turn": 1, "trigger": {"kind": "x"}})

    restore(header(), [entry])

    assert "trigger" in entry["data"]
