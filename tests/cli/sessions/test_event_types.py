"""A log that holds events of a plugin opens where the plugin is installed, in whatever profile."""

from pathlib import Path

import pytest

from dsh.session.value import encode
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
