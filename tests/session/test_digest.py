"""The digest of a request: its text to the byte, and that it is the same however it is come by."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.session.digest import RequestDigest, canonical_json, digest_payload
from dsh.session.value import freeze

HEADER = {"config": {"provider": "acme", "model": "acme-1", "temperature": 0.5}}
SCALARS = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text()
VALUES = st.recursive(
    SCALARS, lambda item: st.lists(item, max_size=3) | st.dictionaries(st.text(), item, max_size=3)
)


def message(text: str) -> dict[str, Any]:
    return {
        "id": text,
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "user"},
    }


def digest(header: dict[str, Any], messages: list[dict[str, Any]], generation: int = 0) -> str:
    return RequestDigest().of(header, messages, generation)


def test_the_text_that_is_hashed_is_compact_sorted_ascii() -> None:
    header = {**HEADER, "system": "é", "tools": [{"parameters": {}, "name": "ls", "description": "d"}]}

    found = digest(header, [message("hi")])

    text = (
        '{"config":{"model":"acme-1","provider":"acme","temperature":0.5},'
        '"messages":[{"content":[{"text":"hi","type":"text"}],"id":"hi","role":"user","source":{"kind":"user"}}],'
        '"system":"\\u00e9","tools":[{"description":"d","name":"ls","parameters":{}}]}'
    )
    assert found == hashlib.sha256(text.encode("ascii")).hexdigest()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('\x00\x1f\x7f"\\/\n', r'"\u0000\u001f' + r"\u007f" + r'\"\\/\n"'),
        ("ü한🏷", r'"\u00fc\ud55c\ud83c\udff7"'),
        ("lone \ud83d", r'"lone \ud83d"'),
        (
            {"b": 1, "B": 2, "é": 3, "\U0001f3f7": 4, "\uffff": 5},
            r'{"B":2,"b":1,"\u00e9":3,"\uffff":5,"\ud83c\udff7":4}',
        ),
        ([1e-7, 12345678901234567000, -1, 0.1], "[1e-7,12345678901234567000,-1,0.1]"),
        ({"\ud83d": [1e-7, None, True]}, r'{"\ud83d":[1e-7,null,true]}'),
    ],
)
def test_one_text_a_value(value: Any, text: str) -> None:
    assert canonical_json(value) == text.encode("ascii")


@given(VALUES)
def test_it_is_the_json_of_the_standard_library_with_sorted_keys(value: Any) -> None:
    """Nothing but floats is written in more than one way."""
    expected = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    assert canonical_json(value) == expected.encode("ascii")
    assert canonical_json(freeze(value, "value")) == expected.encode("ascii")


def test_the_deepest_value_with_a_lone_surrogate_is_written() -> None:
    deep: Any = "\ud83d"
    for _ in range(500):
        deep = [deep]
    assert canonical_json(deep) == b"[" * 500 + rb'"\ud83d"' + b"]" * 500


def test_empty_system_and_tools_are_as_good_as_none() -> None:
    assert digest({**HEADER, "system": "", "tools": []}, []) == digest(HEADER, [])
    assert digest({**HEADER, "system": "x"}, []) != digest(HEADER, [])


def test_what_no_request_holds_does_not_count() -> None:
    assert digest({**HEADER, "adapterDefaults": {"maxTokens": True}}, []) == digest(HEADER, [])


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 1), st.booleans()), max_size=12)
)
def test_a_digest_made_bit_by_bit_is_the_digest_of_the_whole(steps: list[tuple[int, int, int, bool]]) -> None:
    """Whatever changes from request to request: messages added, some replaced, another model, other tools."""
    kept, messages, generation = RequestDigest(), list[dict[str, Any]](), 0
    for count, model, tools, is_replaced in steps:
        if is_replaced and messages:
            messages, generation = [message("short"), *messages[2:]], generation + 1
        messages += [message(f"m{len(messages)}-{n}") for n in range(count)]
        header = {"config": {"provider": "a", "model": f"m{model}"}, "tools": [{"name": "t"}] * tools}
        assert kept.of(header, tuple(messages), generation) == digest(header, messages)


def test_the_payload_names_everything() -> None:
    assert list(digest_payload(1, 2, 3, "ff", 4)) == [
        "turn",
        "step",
        "attempt",
        "algorithm",
        "digest",
        "messages",
    ]
