"""A log that holds events of a plugin opens where the plugin is installed, in whatever profile."""

from pathlib import Path

import pytest

from dsh.session.value import JsonValue, encode
from dsh.testing.workspace import Workspace
from tests.composition.test_bundle import package
from tests.session.build import header, stored


@pytest.mark.parametrize("is_installed", [True, False])
def test_a_log_with_a_plugins_events_opens_where_the_plugin_is_installed(
    tmp_path: Path, is_installed: bool
) -> None:
    space = Workspace(tmp_path)
    log = tmp_path / "session.jsonl"
    lines = [header().to_line(), stored("acme/note", 0, {"text": "a"})]
    log.write_bytes(b"".join(encode(line) + b"\n" for line in lines))
    if is_installed:
        site = space.home / "profiles/notes/site"
        package(site, "acme_notes", "[dsh.events]\nacme/note = acme_notes.types:Note\n")

    done = space.run("sessions", "inspect", str(log))

    if is_installed:
        assert (done.code, done.stderr) == (0, "")
    else:
        assert done.code == 1
        assert "acme/note" in done.stderr


TYPES = "from typing import TypedDict\n\n\nclass Note(TypedDict):\n    text: str\n"


@pytest.mark.parametrize(
    ("kind", "data", "code", "found"),
    [
        ("acme/note", {"text": "a"}, 0, ": ok ("),
        (
            "acme/note",
            {"text": 5},
            1,
            "error  IRREGULAR  line 2, seq 0: acme/note: data.text: expected `str`",
        ),
        (
            "acme/torn",
            {},
            0,
            "warning  PAYLOAD_UNCHECKED  line 2, seq 0: the payload type of event 'acme/torn'",
        ),
    ],
)
def test_verify_holds_a_plugins_events_against_the_types_of_its_package(
    tmp_path: Path, kind: str, data: dict[str, JsonValue], code: int, found: str
) -> None:
    space = Workspace(tmp_path)
    log = tmp_path / "session.jsonl"
    lines = [header().to_line(), stored(kind, 0, data), stored(kind, 1, data)]
    log.write_bytes(b"".join(encode(line) + b"\n" for line in lines))
    points = "[dsh.events]\nacme/note = acme_notes.types:Note\nacme/torn = acme_notes.nowhere:Note\n"
    made = package(space.home / "profiles/notes/site", "acme_notes", points, types__py=TYPES)
    (made / "__init__.py").write_text("")

    done = space.run("sessions", "verify", str(log))

    assert (done.code, done.stderr) == (code, "")
    assert found in done.stdout
    assert done.stdout.count("PAYLOAD_UNCHECKED") == (kind == "acme/torn")
