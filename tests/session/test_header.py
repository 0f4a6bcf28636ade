"""The first line of a log (`spec/session-log.md` §2)."""

from typing import Any

import pytest

from dsh.session.error import InvalidHeader, UnsupportedLog
from dsh.session.header import SessionHeader, header_from_json, header_from_line
from dsh.session.value import encode
from tests.ids import readable
from tests.session.build import T0, header

FULL: dict[str, Any] = {
    "cwd": "/srv/app",
    "parent_session": "p",
    "seed_length": 3,
    "origin": "subagent",
    "delegation_depth": 2,
    "agent_preset": "coder",
}


def line(**changes: Any) -> bytes:
    value = {"type": "session", "version": 0, "id": "a", "createdAt": 1, "delegationDepth": 0, **changes}
    return encode({key: item for key, item in value.items() if item != "ABSENT"})


@pytest.mark.parametrize("fields", [{}, FULL, *({key: value} for key, value in FULL.items())], ids=readable)
def test_a_header_survives_its_line(fields: dict[str, Any]) -> None:
    made = header(**fields)

    back = header_from_line(encode(made.to_line()))

    assert back == header(**{"delegation_depth": 0, **fields})


def test_the_line_has_its_keys_in_written_order() -> None:
    assert list(header(**FULL).to_line()) == [
        "type",
        "version",
        "id",
        "createdAt",
        "cwd",
        "parentSession",
        "seedLength",
        "origin",
        "delegationDepth",
        "agentPreset",
    ]
    assert encode(header(cwd="/srv/app").to_line()) == (
        b'{"type":"session","version":0,"id":"demo.1","createdAt":1700000000000,"cwd":"/srv/app","delegationDepth":0}'
    )


def test_absent_fields_are_absent_in_memory() -> None:
    assert header().to_json() == {"version": 0, "id": "demo.1", "createdAt": T0}


def test_unknown_keys_are_dropped() -> None:
    assert header_from_line(line(colour="red")) == SessionHeader(id="a", created_at=1, delegation_depth=0)


@pytest.mark.parametrize("version", [1, 7, -1, 0.5, 10**30])
def test_another_version_is_unsupported_before_anything_else_is_looked_at(version: float) -> None:
    with pytest.raises(UnsupportedLog, match="newer" if version > 0 else "no way"):
        header_from_line(encode({"version": version}))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (b"[]", ""),
        (b"null", ""),
        (b"{}", "type"),
        (line(type="log"), "type"),
        (line(version="ABSENT"), "version"),
        (line(version=True), "version"),
        (line(version="0"), "version"),
        (line(id=7), "id"),
        (line(id=""), "id"),
        (line(createdAt=True), "createdAt"),
        (line(createdAt=-1), "createdAt"),
        (line(createdAt=1.5), "createdAt"),
        (line(createdAt=2**53), "createdAt"),
        (line(createdAt=None), "createdAt"),
        (line(delegationDepth="ABSENT"), "delegationDepth"),
        (line(delegationDepth=None), "delegationDepth"),
        (line().replace(b'"createdAt":1', b'"createdAt":-0'), "createdAt"),
        (line().replace(b'"delegationDepth":0', b'"delegationDepth":-0'), "delegationDepth"),
        (line().replace(b'"delegationDepth":0', b'"delegationDepth":-0.0'), "delegationDepth"),
        (line(origin="root"), "origin"),
        (line(origin=None), "origin"),
        (line(agentPreset=None), "agentPreset"),
        (line(sandboxMode="read-only"), "sandboxMode"),
        (line(approvalPolicy=None), "approvalPolicy"),
        (line(cwd=None), "cwd"),
        (line(cwd="srv/app"), "cwd"),
        (line(parentSession=None), "parentSession"),
        (line(seedLength=-1), "seedLength"),
        (line(seedLength=None), "seedLength"),
    ],
    ids=lambda value: value.decode()[-60:] if isinstance(value, bytes) else value,
)
def test_a_bad_line_names_the_field(text: bytes, field: str) -> None:
    with pytest.raises(InvalidHeader) as caught:
        header_from_line(text)

    assert caught.value.field == field


def test_integral_floats_are_integers() -> None:
    made = header_from_line(line().replace(b'"createdAt":1', b'"createdAt":1.0'))

    assert (made.created_at, type(made.created_at)) == (1, int)


@pytest.mark.parametrize("value", [None, [], "x", type("D", (dict,), {})()], ids=repr)
def test_in_memory_only_a_plain_record_is_a_header(value: object) -> None:
    with pytest.raises(InvalidHeader):
        header_from_json(value)


def test_a_header_carries_the_id_of_its_session() -> None:
    with pytest.raises(InvalidHeader, match="id of the session"):
        header_from_json(header().to_json(), "other")


def test_a_line_with_the_header_of_windows_is_read() -> None:
    assert header_from_line(line(cwd="C:\\work")).cwd == "C:\\work"
