"""Hook files as users write them, and all that is none."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.agent.hooks.dialect import CLAUDE_CODE, CODEX, Dialect
from dsh.agent.hooks.file import MAX_BYTES, HookFile, HookFileError, load, parse

RUN = {"type": "command", "command": "true"}
DIALECTS = pytest.mark.parametrize("dialect", [CLAUDE_CODE, CODEX], ids=lambda one: one.name)


def read(value: Any, dialect: Dialect = CLAUDE_CODE) -> HookFile:
    return parse(json.dumps(value).encode(), dialect)


def group(**fields: Any) -> dict[str, Any]:
    return {"PreToolUse": [{"hooks": [RUN], **fields}]}


def hook(**fields: Any) -> dict[str, Any]:
    return {"PreToolUse": [{"hooks": [{**RUN, **fields}]}]}


SETTINGS = """{
  "permissions": {"allow": ["Bash(npm run lint)"]},
  "env": {"FOO": "bar"},
  "hooks": {
    "PreToolUse": [
      {"matcher": "bash|edit", "hooks": [{"type": "command", "command": "./check.sh", "timeout": 30}]},
      {"hooks": [{"type": "command", "command": "a"}, {"type": "command", "command": "b"}]}
    ],
    "Stop": [{"hooks": [{"type": "command", "command": "make test", "onFailure": "deny"}]}]
  }
}"""


@DIALECTS
def test_a_whole_settings_file_is_a_hook_file(dialect: Dialect) -> None:
    found = parse(SETTINGS.encode(), dialect)

    assert found.notes == ()
    assert {point: [len(g.handlers) for g in groups] for point, groups in found.groups.items()} == {
        "PreToolUse": [1, 2],
        "Stop": [1],
    }
    [first, second], [stop] = found.groups["PreToolUse"], found.groups["Stop"]
    assert (first.matcher, second.matcher) == ("bash|edit", None)
    assert (first.handlers[0].command, first.handlers[0].timeout_ms) == ("./check.sh", 30_000)
    assert (stop.handlers[0].on_failure, stop.handlers[0].where) == ("deny", "Stop[0].hooks[0]")


def test_the_outer_object_may_be_left_out_and_a_byte_order_mark_is_nothing() -> None:
    bare = b"\xef\xbb\xbf" + json.dumps(group()).encode()

    assert list(parse(bare, CLAUDE_CODE).groups) == list(read({"hooks": group()}).groups) == ["PreToolUse"]


@pytest.mark.parametrize("value", [{}, {"hooks": {}}, {"PreToolUse": []}, group(hooks=[])])
def test_a_file_without_hooks_is_a_hook_file(value: Any) -> None:
    assert read(value) == HookFile({})


@pytest.mark.parametrize("key", ["timeout", "timeoutSec"])
def test_a_time_is_in_seconds_and_may_be_a_fraction(key: str) -> None:
    [one] = read(hook(**{key: 0.25})).groups["PreToolUse"]

    assert one.handlers[0].timeout_ms == 250


def test_a_program_with_arguments_is_a_command_line() -> None:
    [one] = read(hook(command="my tool", args=["a b", "$HOME"])).groups["PreToolUse"]

    assert one.handlers[0].command == "'my tool' 'a b' '$HOME'"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ([], "the file: expected an object, found a list"),
        (3, "the file: expected an object, found a number"),
        ({"hooks": []}, "hooks: expected an object, found a list"),
        ({"hooks": None}, "hooks: expected an object, found null"),
        ({"PreToolUse": {}}, "PreToolUse: expected a list, found an object"),
        ({"PreToolUse": ["x"]}, "PreToolUse[0]: expected an object, found a text"),
        (group(matcher=3), "PreToolUse[0].matcher: expected a text, found a number"),
        (group(matcher="(bash"), "PreToolUse[0].matcher: '(bash' is no regular expression"),
        (group(hooks={}), "PreToolUse[0].hooks: expected a list, found an object"),
        ({"PreToolUse": [RUN]}, "PreToolUse[0].hooks: expected a list, found nothing"),
        (group(hooks=["./x"]), "PreToolUse[0].hooks[0]: expected an object, found a text"),
        (hook(command=None), "PreToolUse[0].hooks[0].command: expected a command line, found null"),
        (hook(command=" "), "PreToolUse[0].hooks[0].command: expected a command line"),
        (hook(command="a\0b"), "PreToolUse[0].hooks[0].command: expected a command line"),
        (hook(args=["a", 1]), "PreToolUse[0].hooks[0].args: expected texts"),
        (hook(timeout="30"), "PreToolUse[0].hooks[0].timeout: expected seconds"),
        (hook(timeout=0), "PreToolUse[0].hooks[0].timeout: expected seconds"),
        (hook(timeout=10**400), "PreToolUse[0].hooks[0].timeout: expected seconds"),
        (hook(timeout=1e308), "PreToolUse[0].hooks[0].timeout: expected seconds"),
        (hook(timeout=2_147_484), "PreToolUse[0].hooks[0].timeout: expected seconds"),
        (hook(timeout=True), "PreToolUse[0].hooks[0].timeout: expected seconds"),
        (hook(onFailure="block"), "PreToolUse[0].hooks[0].onFailure: expected pass or deny, found 'block'"),
    ],
)
def test_a_mistake_is_told_with_its_place(value: Any, place: str) -> None:
    with pytest.raises(HookFileError) as raised:
        read(value)

    assert raised.value.message.startswith(place)


@pytest.mark.parametrize(
    ("value", "dialect", "note"),
    [
        (
            hook(type="prompt", prompt="x"),
            CLAUDE_CODE,
            "PreToolUse[0].hooks[0] is skipped: only hooks of type",
        ),
        (hook(**{"async": True}), CODEX, "PreToolUse[0].hooks[0] is skipped: async hooks do not run here"),
        (hook(**{"async": True}), CLAUDE_CODE, "PreToolUse[0].hooks[0]: `async` has no meaning here"),
        (hook(**{"if": "Bash(rm *)"}), CLAUDE_CODE, "PreToolUse[0].hooks[0]: `if` has no meaning here"),
        (hook(once=True), CLAUDE_CODE, "PreToolUse[0].hooks[0]: `once` has no meaning here"),
        (
            {"SessionStart": [{"matcher": "^compact$", "hooks": [RUN]}]},
            CODEX,
            "SessionStart[0].matcher meets no start of a session here, which is startup or resume",
        ),
        ({"hooks": {"PreCompact": []}}, CLAUDE_CODE, "no hooks run for 'PreCompact'; the events here are"),
        ({"SubagentStop": []}, CODEX, "no hooks run for 'SubagentStop'"),
        ({"disableAllHooks": True, **group()}, CLAUDE_CODE, "disableAllHooks is set, so no hook runs"),
        (group(matcher="Bash"), CLAUDE_CODE, "PreToolUse[0].matcher names tools that are called otherwise"),
        (
            group(matcher="^(Edit|Write)$"),
            CODEX,
            "PreToolUse[0].matcher names tools that are called otherwise",
        ),
        (group(matcher="apply_patch"), CODEX, "PreToolUse[0].matcher names tools that are called otherwise"),
    ],
)
def test_what_is_not_done_here_is_told(value: Any, dialect: Dialect, note: str) -> None:
    [said] = read(value, dialect).notes

    assert said.startswith(note)


@pytest.mark.parametrize(
    "matcher", ["bash", "bash|edit|write", "*", "", "(?i)^Bash$", "Bash|bash", "mcp__.*"]
)
def test_names_that_are_ours_are_not_remarked_on(matcher: str) -> None:
    assert read(group(matcher=matcher)).notes == ()


@pytest.mark.parametrize(
    ("dialect", "matcher", "met", "missed"),
    [
        (CLAUDE_CODE, None, ["bash", ""], []),
        (CLAUDE_CODE, "", ["bash"], []),
        (CLAUDE_CODE, "*", ["bash"], []),
        (CLAUDE_CODE, "bash|edit", ["bash", "edit"], ["bash_output", "ed", "bash|edit"]),
        (CLAUDE_CODE, "mcp__.*__write", ["mcp__fs__write", "x_mcp__a__write_b"], ["write"]),
        (CLAUDE_CODE, "^ba", ["bash", "bat"], ["abash"]),
        (CODEX, "bash", ["bash", "bash_output", "my_bash"], ["edit"]),
        (CODEX, "^bash$", ["bash"], ["bash_output"]),
        (CODEX, "startup|resume", ["startup", "resume"], ["clear"]),
    ],
)
def test_plain_words_are_exact_for_claude_and_patterns_for_codex(
    dialect: Dialect, matcher: str | None, met: list[str], missed: list[str]
) -> None:
    matches = dialect.matches(matcher)

    assert all(map(matches, met))
    assert not any(map(matches, missed))


def test_a_pattern_that_python_frowns_at_is_one(recwarn: pytest.WarningsRecorder) -> None:
    assert CODEX.matches("[[a]")("a")
    assert not list(recwarn)


def test_files_that_are_no_files_are_errors_and_nothing_waits(tmp_path: Path) -> None:
    fifo, big = tmp_path / "fifo", tmp_path / "big"
    os.mkfifo(fifo)
    with big.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "latin").write_bytes(b'{"hooks": "\xe9"}')
    (tmp_path / "empty").write_bytes(b"")
    for path, said in (
        (tmp_path / "missing", "cannot be read: No such file or directory"),
        (tmp_path, "cannot be read: Is a directory"),
        (fifo, "is no regular file"),
        (tmp_path / "dangling", "cannot be read: No such file or directory"),
        (big, "has more than"),
        (Path(f"{tmp_path}/a\0b"), "cannot be read: embedded null byte"),
        (tmp_path / "latin", "no JSON"),
        (tmp_path / "empty", "no JSON"),
    ):
        with pytest.raises(HookFileError) as raised:
            load(path, CLAUDE_CODE)
        assert str(path) in raised.value.message
        assert said in raised.value.message


@pytest.mark.parametrize(
    ("text", "wants"),
    [
        (json.dumps(hook(onFailure="deny", timeout="x")), True),
        (json.dumps(hook(onFailure="pass", timeout="x")), False),
        ('{"hooks": {"Stop": [{"hooks": [{"command": "x", "onFailure" : "deny"},]}]}}', True),
        ("{", False),
    ],
)
def test_a_broken_file_tells_whether_it_has_a_guard(tmp_path: Path, text: str, wants: bool) -> None:
    (path := tmp_path / "hooks.json").write_text(text)

    with pytest.raises(HookFileError) as raised:
        load(path, CLAUDE_CODE)

    assert raised.value.wants_deny is wants


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["hooks", "PreToolUse", "Stop", "matcher", "type", "command", "timeout", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.one_of(st.binary(max_size=64), JSON.map(lambda value: json.dumps(value).encode())))
def test_any_bytes_are_a_hook_file_or_a_named_error(raw: bytes) -> None:
    for dialect in (CLAUDE_CODE, CODEX):
        try:
            assert isinstance(parse(raw, dialect), HookFile)
        except HookFileError as error:
            assert error.message
