"""The words of a package manager: options, requirements, and the projects that are meant."""

from pathlib import Path

import pytest

from dsh.composition.requirement import (
    canonical,
    is_archive,
    is_place,
    place_of,
    project_of,
    split_words,
    without_version,
)
from dsh.errors import UsageError


@pytest.mark.parametrize(
    ("spec", "project"),
    [
        ("Some_Name", "some-name"),
        ("a.b--c>=1,<2", "a-b-c"),
        ("x[http2,cli] ~= 1.0 ; python_version > '3'", "x"),
        ("x@ https://example.org/x.zip", "x"),
        ("x @ file:///tmp/y-1.0.zip", "x"),
        ("./dist/my_tool-1.0-py3-none-any.whl", "my-tool"),
        ("my_tool-1.0.whl", "my-tool"),
        ("https://example.org/a/my-tool-2.0.1.tar.gz#sha256=00", "my-tool"),
        ("git+https://example.org/r.git#egg=my_tool", "my-tool"),
        ("git+https://example.org/r.git", None),
        ("./tests", None),
        ("./nowhere", None),
        (">=1", None),
    ],
)
def test_the_project_of_a_requirement(spec: str, project: str | None) -> None:
    assert project_of(spec) == project


def test_a_source_folder_says_its_name_itself(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "My.Tool"\n')
    for spec in (str(tmp_path), f"{tmp_path}[extra]", tmp_path.as_uri()):
        assert project_of(spec) == "my-tool"
    (tmp_path / "pyproject.toml").write_text('project = "?"\n')
    assert project_of(str(tmp_path)) is None


def test_options_with_their_values_are_told_from_requirements() -> None:
    words = split_words("--find-links dir -U a --index-url=u -i v ./b --pre -rfile".split())  # noqa: SIM905
    assert words.options == ["--find-links", "dir", "--index-url=u", "-i", "v", "--pre", "-rfile"]
    assert words.specs == ["a", "./b"]
    assert words.is_upgrade


@pytest.mark.parametrize("flag", ["-t", "--target=x", "--prefix", "--user", "-e", "--editable=."])
def test_nothing_is_installed_elsewhere(flag: str) -> None:
    with pytest.raises(UsageError, match="does not fit here"):
        split_words([flag, "x"])


def test_names_paths_and_what_is_left_without_a_version() -> None:
    assert canonical("A__b.-C") == "a-b-c"
    assert [is_place(one) for one in ("a", "a @ file:///b", "./a", "..", "file:a", "a/b", "a.whl")] == [
        False,
        False,
        True,
        True,
        True,
        True,
        True,
    ]
    assert without_version("a[x, y]>=1; python_version > '3'") == "a[x, y]"
    assert without_version("a @ file:///b") == "a"


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ("lone", None),
        ("lone>=1; python_version > '3'", None),
        ("lone @ file:///a/b%20c/", "file:///a/b c"),
        ("lone[x] @ https://host/lone-1.0.tar.gz#sha256=0", "https://host/lone-1.0.tar.gz"),
        ("git+https://host/a/lone.git@v2#egg=lone", "git+https://host/a/lone.git"),
        ("lone @ git+ssh://git@host/a/lone@main", "git+ssh://git@host/a/lone"),
    ],
)
def test_the_place_of_a_requirement_has_no_revision(spec: str, place: str | None) -> None:
    assert place_of(spec) == place


def test_a_path_and_the_url_of_it_are_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for spec in (".", "./", "../" + tmp_path.name, f".{'[extra]'}", f"x @ {tmp_path.as_uri()}"):
        assert place_of(spec) == f"file://{tmp_path}"


def test_what_is_built_and_kept_by_its_name_is_a_source_archive() -> None:
    assert is_archive("./lone-1.0.tar.gz")
    assert is_archive("lone @ https://host/lone.zip#sha256=0")
    assert not any(map(is_archive, (".", "./lone-1.0-py3-none-any.whl", "lone", "git+https://host/lone")))
