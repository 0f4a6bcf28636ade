"""The two directories of a live replay."""

import json

import pytest

from dsh.plugins.replay_runner.places import SAME, masks, moves


def test_calls_are_sent_to_the_other_directory() -> None:
    move = moves("/tmp/w", "/copy")

    assert move is not None
    assert move('{"path": "/tmp/w/a.txt", "command": "cd /tmp/w && ls"}') == (
        '{"path": "/copy/a.txt", "command": "cd /copy && ls"}'
    )


@pytest.mark.parametrize("text", ["/tmp/wider/a", "/tmp/w-2/a", "/tmp/w.bak", "/tmp/w_old"])
def test_another_name_that_only_begins_so_stays(text: str) -> None:
    move = moves("/tmp/w", "/copy")

    assert move is not None
    assert move(text) == text
    assert masks("/tmp/w", "/copy")(text) == text


def test_a_name_that_ends_a_sentence_is_found() -> None:
    assert masks("/tmp/w", "/copy")("not in /tmp/w.") == f"not in {SAME}."


@pytest.mark.parametrize("recorded", ['/tmp/a "b"', "/tmp/é", "/tmp/back\\slash"])
@pytest.mark.parametrize("directory", ['/copy/"x"', "/copy/ü", "/copy/\\1"])
def test_names_that_json_escapes_are_moved_and_the_same(recorded: str, directory: str) -> None:
    move, mask = moves(recorded, directory), masks(recorded, directory)
    assert move is not None
    for ascii_only in (True, False):
        text = json.dumps({"path": f"{recorded}/a"}, ensure_ascii=ascii_only)

        assert json.loads(move(text)) == {"path": f"{directory}/a"}
        assert mask(move(text)) == mask(text) == f'{{"path": "{SAME}/a"}}'
    assert mask(f"{recorded}/a") == mask(f"{directory}/a") == f"{SAME}/a"


def test_a_copy_inside_of_the_recorded_directory_is_the_same_place() -> None:
    assert masks("/tmp/w", "/tmp/w/copy")("/tmp/w/copy/a") == f"{SAME}/a"


def test_the_root_directory_is_not_moved() -> None:
    assert moves("/", "/copy") is None
    assert masks("/", "/copy")("/etc /copy/a") == f"/etc {SAME}/a"
    assert masks("/", "/")("/etc a") == "/etc a"


@pytest.mark.parametrize(("recorded", "directory"), [(None, "/copy"), ("/tmp/w", None), ("/copy", "/copy")])
def test_without_two_directories_nothing_is_moved(recorded: str | None, directory: str | None) -> None:
    assert moves(recorded, directory) is None


def test_where_output_was_spilled_to_is_chance() -> None:
    mask = masks("/tmp/w", "/copy")

    assert mask("in /var/dsh-spill-ab/c.txt)") == mask("in /tmp/dsh-spill-xy/d.txt)") == "in <spilled>)"


def test_recorded_tools_are_compared_as_they_are() -> None:
    assert masks("/tmp/w", None)("/tmp/w/a") == "/tmp/w/a"
