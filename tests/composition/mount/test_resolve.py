"""From a row's name to its plugin."""

import sys
from pathlib import Path

import pytest

from dsh.composition.mount.resolve import find_plugin
from dsh.composition.plugin_name import normalise
from dsh.errors import CompositionError
from tests.composition.layers import write

PLUGIN = "def apply(ctx, config):\n    return None\n"


@pytest.mark.parametrize(
    ("written", "ours"),
    [
        ("tool-bash", "tool-bash"),
        ("dsh-tool-bash", "tool-bash"),
        ("@deepseek-ai/dsh-tool-bash", "tool-bash"),
        ("dsh-headless/startup", "headless-startup"),
        ("@deepseek-ai/dsh-tool-subagent/list-agents", "tool-subagent-list-agents"),
        ("cordis:group", "cordis:group"),
        ("package.module:attr", "package.module:attr"),
        ("./dsh-x.py", "./dsh-x.py"),
        ("/a/dsh-x.py", "/a/dsh-x.py"),
        ("file:///a/x.py", "file:///a/x.py"),
        ("other/name", "other/name"),
    ],
)
def test_names_of_the_original_become_ours(written: str, ours: str) -> None:
    assert normalise(written) == ours


def refused(name: str, folder: Path = Path("/")) -> CompositionError:
    with pytest.raises(CompositionError) as caught:
        find_plugin(name, folder)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "name", ["subprocess", "dsh-subprocess", "@deepseek-ai/dsh-subprocess", "dsh.plugins.subprocess"]
)
def test_a_built_in_module_is_found_by_its_spelling(name: str) -> None:
    assert find_plugin(name, Path("/")).__name__ == "dsh.plugins.subprocess"


def test_an_attribute_of_a_module() -> None:
    assert find_plugin("dsh.plugins.subprocess:apply", Path("/")).__name__ == "apply"
    assert "has no 'nope'" in str(refused("dsh.plugins.subprocess:nope"))


def test_files_are_relative_to_the_composition_file_absolute_or_a_url(tmp_path: Path) -> None:
    path = write(tmp_path / "tools/mine one.py", PLUGIN)
    found = find_plugin("./tools/mine one.py", tmp_path)
    assert found.__file__ == str(path)
    assert find_plugin(str(path), Path("/")) is found
    assert find_plugin(path.as_uri(), Path("/")) is found
    assert "plugin file not found" in str(refused("./absent.py", tmp_path))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere:x", "there is no module 'nowhere'"),
        ("nowhere.deep.x", "there is no module 'nowhere'"),
        ("os.nowhere:x", "there is no module 'os.nowhere'"),
        (":x", "'' is no module name"),
        ("a b:x", "'a b' is no module name"),
        ("./a\0b.py", "plugin file not found: "),
        ("./" + "x" * 300, "plugin file not found: "),
        (".", "plugin file not found: /"),
    ],
)
def test_names_of_nothing_are_refused_without_a_place_in_our_code(name: str, says: str) -> None:
    error = refused(name)
    assert str(error).startswith(says)
    assert ".py:" not in str(error)


def test_what_is_not_there_is_answered_with_what_is_close() -> None:
    error = refused("subproces")
    assert str(error) == "there is no plugin 'subproces'"
    assert "subprocess" in error.hint
    assert refused("zzzzzzzz").hint == "install the package that brings it"


def test_an_entry_point_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "their_plugin.py", PLUGIN)
    info = tmp_path / "their_plugin-1.0.dist-info"
    write(info / "METADATA", "Metadata-Version: 2.1\nName: their-plugin\nVersion: 1.0\n")
    write(info / "entry_points.txt", "[dsh.plugins]\ntheirs = their_plugin\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_plugin("theirs", Path("/")).__name__ == "their_plugin"
    assert find_plugin("dsh-theirs", Path("/")).__name__ == "their_plugin"
    del sys.modules["their_plugin"]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise ValueError('two\\nlines')", "failed to import: ValueError: two lines ("),
        (
            "import nothing_like_this",
            "failed to import: ModuleNotFoundError: No module named 'nothing_like_this'",
        ),
        ("raise SystemExit(3)", "failed to import: SystemExit: 3"),
        ("raise KeyboardInterrupt", "failed to import: KeyboardInterrupt ("),
        ("class Own(BaseException): ...\nraise Own('x')", "failed to import: Own: x ("),
        ("import json\njson.loads('{')", "bad.py:2)"),
        ("def broken(:\n", "failed to import: SyntaxError: invalid syntax ("),
        ("x = 1\n", "exports no plugin"),
        (PLUGIN + "default = apply\n", "exports both apply and default"),
        (PLUGIN + "plugin = apply\n", "exports both apply and plugin"),
        ("def f(ctx): pass\nplugin = f\ndefault = f\n", "exports both plugin and default"),
    ],
)
def test_a_module_that_fails_or_is_no_plugin_names_itself(tmp_path: Path, code: str, says: str) -> None:
    path = write(tmp_path / "bad.py", code)
    error = refused("./bad.py", tmp_path)
    assert says in str(error)
    assert "bad.py" in str(error) + error.hint
    assert str(path) in str(error) + error.hint or "exports" in str(error)


@pytest.mark.parametrize("name", ["plugin", "default"])
def test_a_module_may_name_its_plugin(tmp_path: Path, name: str) -> None:
    write(tmp_path / f"{name}_only.py", f"def body(ctx):\n    return None\n{name} = body\n")
    assert find_plugin(f"./{name}_only.py", tmp_path).__name__ == "body"


def test_a_failed_import_is_tried_again(tmp_path: Path) -> None:
    path = write(tmp_path / "again.py", "raise ValueError('x')")
    refused("./again.py", tmp_path)
    path.write_text(PLUGIN)
    assert find_plugin("./again.py", tmp_path).__file__ == str(path)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "class E(Exception):\n    def __str__(self):\n        raise ValueError\nraise E",
            "failed to import: E: its text cannot be had (ValueError) (",
        ),
        ("raise ValueError('x' * 10_000_000)", "xxx… ("),
        ("raise ValueError('a\\n\\n b')", "failed to import: ValueError: a b ("),
    ],
)
def test_whatever_an_error_says_of_itself_it_is_one_line_of_a_bounded_length(
    tmp_path: Path, code: str, says: str
) -> None:
    write(tmp_path / "bad.py", code)
    text = str(refused("./bad.py", tmp_path))
    assert says in text
    assert "\n" not in text
    assert len(text) < 2_500


def test_the_members_of_a_group_of_errors_are_told(tmp_path: Path) -> None:
    write(
        tmp_path / "bad.py", "raise ExceptionGroup('two', [ValueError('a'), OSError('b')] + [KeyError()] * 5)"
    )
    text = str(refused("./bad.py", tmp_path))
    assert "two (7 sub-exceptions): ValueError: a; OSError: b; KeyError; KeyError; KeyError; 2 more" in text
