"""Names on disk, as tables."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.persistence.jsonl.layout import log_path, project_name, session_name


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        (None, "_no-cwd"),
        ("/srv/app", "--srv-app--"),
        ("/home/ann/My Proj", "--home-ann-My~0020Proj--"),
        ("D:\\x\\y", "--D-x-y--"),
        ("/a-b/c/", "--a-b-c---"),
        ("/", "--root--"),
        ("/~ann", "--~007Eann--"),
        ("/été", "--~00E9t~00E9--"),
        ("/" + "x" * 400, "--" + "x" * 251 + "--"),
    ],
)
def test_a_project_folder_is_a_slug_of_its_working_directory(cwd: str | None, name: str) -> None:
    assert project_name(cwd) == name


@pytest.mark.parametrize(
    ("session_id", "name"),
    [
        ("demo.1", "demo.1"),
        ("a/b", "a~002Fb"),
        ("s 1", "s~00201"),
        ("été", "~00E9t~00E9"),
        ("🙂", "~D83D~DE42"),  # two UTF-16 units, two escapes
        ("\ud83d", "~D83D"),
        (".", "~002E"),
        ("..", "~002E~002E"),
        ("...", "..."),
    ],
)
def test_a_session_folder_escapes_its_id_by_utf16_units(session_id: str, name: str) -> None:
    assert session_name(session_id) == name


def test_an_empty_id_has_no_folder() -> None:
    with pytest.raises(ValueError, match="empty"):
        session_name("")


@given(st.text(st.characters(exclude_categories=()), min_size=1), st.text(min_size=1))
def test_different_ids_have_different_folders(one: str, other: str) -> None:
    assert (session_name(one) == session_name(other)) == (one == other)


def test_both_encodings_have_their_fixed_name() -> None:
    root = Path("/r")

    assert str(log_path(root, "demo.1", "/srv/app", "plain")) == "/r/--srv-app--/demo.1/session.jsonl"
    assert str(log_path(root, "demo.1", "/srv/app", "zstd")) == "/r/--srv-app--/demo.1/session.jsonl.zstd"
