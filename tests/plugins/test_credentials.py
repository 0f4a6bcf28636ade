"""Tests of the credentials row: order of sources, strict document, nothing of a value in a message."""

import os
from pathlib import Path

import pytest

from dsh.capabilities.credentials import CREDENTIALS, Credentials
from dsh.capabilities.launch import HOME_PATH, LAUNCH_ENVIRONMENT
from dsh.composition.environment import load_environment
from dsh.composition.home import HomePaths
from dsh.errors import CredentialError
from dsh.kernel import Context
from dsh.plugins import credentials
from dsh.plugins.credentials.document import Keys, read_document
from tests.aio import aio

GOOD = "version: 1\nrefs:\n  DEEPSEEK_API_KEY: from-file\n"


async def mounted(home: Path, *, cwd: Path | None = None, **inherited: str) -> tuple[Context, Credentials]:
    root = Context()
    home.mkdir(exist_ok=True)
    environment, _ = load_environment(cwd or home, home, inherited)
    root.provide(LAUNCH_ENVIRONMENT, environment)
    root.provide(HOME_PATH, HomePaths(home))
    await root.plugin(credentials, {})
    found = root.get(CREDENTIALS)
    assert found is not None
    return root, found


def write(home: Path, text: str, mode: int = 0o600) -> Path:
    home.mkdir(exist_ok=True)
    path = home / ".credentials.yaml"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


@aio
async def test_environment_beats_document_beats_project_beats_home(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    project.mkdir()
    path = write(home, GOOD)
    (home / ".env").write_text("DEEPSEEK_API_KEY=from-home\n")
    (project / ".env").write_text("DEEPSEEK_API_KEY=from-project\n")

    _, found = await mounted(home, cwd=project, DEEPSEEK_API_KEY="from-env")
    first = found.resolve("DEEPSEEK_API_KEY")
    assert first is not None and (first.value, first.source) == ("from-env", "env")
    _, found = await mounted(home, cwd=project)
    second = found.resolve("DEEPSEEK_API_KEY")
    assert second is not None and (second.value, second.source) == ("from-file", "file")
    path.unlink()
    third = found.resolve("DEEPSEEK_API_KEY")
    assert third is not None and (third.value, third.source) == ("from-project", "project-env")
    assert third.where == str(project / ".env")
    (project / ".env").unlink()
    _, found = await mounted(home, cwd=project)
    fourth = found.resolve("DEEPSEEK_API_KEY")
    assert fourth is not None and (fourth.value, fourth.source) == ("from-home", "user-env")


@aio
async def test_blank_values_never_count(tmp_path: Path) -> None:
    write(tmp_path, "version: 1\nrefs: {A: '  ', B: x}\n")
    _, found = await mounted(tmp_path, A="", B=" ")
    assert found.resolve("A") is None
    assert found.resolve("C") is None
    value = found.resolve("B")
    assert value is not None and value.source == "file"


@aio
async def test_document_is_read_again_when_it_changes_and_the_last_good_one_stays(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    _, found = await mounted(tmp_path)
    write(tmp_path, GOOD.replace("from-file", "second"))
    value = found.resolve("DEEPSEEK_API_KEY")
    assert value is not None and value.value == "second"
    path.write_text("version: 1\nrefs: [broken\n")
    value = found.resolve("DEEPSEEK_API_KEY")
    assert value is not None and value.value == "second"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
@aio
async def test_document_that_others_may_touch_is_refused_before_it_is_parsed(
    tmp_path: Path, mode: int
) -> None:
    write(tmp_path, ": broken [", mode)
    with pytest.raises(CredentialError) as caught:
        await mounted(tmp_path)
    assert f"{mode:04o}" in caught.value.message
    assert "chmod 600" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("refs: {}\n", "version must be 1"),
        ("version: 2\n", ":1:10: version must be 1"),
        ("version: true\n", "version must be 1"),
        ("version: 1\nkeys: {}\n", ":2:1: unknown key; known are records, refs, version"),
        ("version: 1\nrefs: [a]\n", "refs must be a mapping"),
        ("version: 1\nrefs:\n  K: 12345\n", ":3:6: K must be a string, not a number"),
        ("version: 1\nrefs:\n  K: ''\n", "K is empty"),
        ("version: 1\nrefs:\n  K: hush-1\n  K: hush-2\n", ":4:3: a key stands there twice"),
        ("version: 1\nrefs:\n  a-b: hush\n", ":3:3: a name is letters, digits and _ only"),
        ("version: 1\nrecords:\n  Bad: {kind: api-key}\n", "scope/id"),
        ("version: 1\nrefs: {sk-hush: x}\n", ":2:8: a name is"),
        ("sk-hush: x\n", ":1:1: unknown key"),
        ("A: ''\n", ":1:4: A is empty"),
        ("A: {hush: 1}\n", ":1:4: A must be a string, not a mapping"),
        ("A: x\nrefs: {}\n", ":1:1: unknown key"),
        ("version: 1\nrecords: {sk-hush: {}}\n", ":2:11: a record"),
        ("version: 1\nrecords:\n  a/b: {kind: other}\n", "kind must be"),
        (
            "version: 1\nrecords:\n  a/b: {kind: api-key, key: x, payload: y}\n",
            ":3:32: unknown key; known are env, key, kind",
        ),
        ("version: 1\nrecords:\n  a/b: {kind: grant}\n", "needs a payload"),
        ("version: 1\nrefs: {K: hush\n", "the mapping that starts in line 2 needs"),
        ("version: 1\nrefs:\n  K: hush: hush\n", ":3:10: a colon where no key can stand"),
        ("version: 1\nrefs: !hush {}\n", ":2:7: this cannot be read as YAML"),
        ("- hush\n", "the document must be a mapping"),
        ('version: 1\nrefs: {K: !expr "env.hush"}\n', "K must be a string"),
    ],
)
def test_document_is_strict_and_messages_hold_no_value(text: str, words: str) -> None:
    with pytest.raises(CredentialError) as caught:
        read_document(text.encode(), "F")
    assert words in caught.value.message
    assert "hush" not in caught.value.message


@pytest.mark.parametrize(
    "text",
    ["", "# nothing\n", "version: 1\n", "version: 1\nrecords:\n  a/b: {kind: grant, payload: {x: 1}}\n"],
)
def test_document_without_references_has_none(text: str) -> None:
    assert read_document(text.encode(), "F").refs == {}


def test_the_flat_form_of_early_versions_is_read() -> None:
    found = read_document(b"# keys\nA: x\nB_2: 'y'\n", "F")
    assert found == Keys({"A": "x", "B_2": "y"}, {}, is_flat=True)


@aio
async def test_impossible_name_is_an_error(tmp_path: Path) -> None:
    _, found = await mounted(tmp_path)
    with pytest.raises(CredentialError) as caught:
        found.resolve("sk-123 456")
    assert "sk-123" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to a device"])
@aio
async def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ".credentials.yaml"
    match kind:
        case "folder":
            path.mkdir(mode=0o700)
        case "pipe":
            os.mkfifo(path, 0o600)
        case _:
            path.symlink_to("/dev/zero")
    with pytest.raises(CredentialError, match=f"{path}: not a file"):
        await mounted(tmp_path)


@aio
async def test_a_resolved_value_does_not_show_itself(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    _, found = await mounted(tmp_path)
    assert "from-file" not in repr(found.resolve("DEEPSEEK_API_KEY"))
