"""Tests of the headless app's command line: what it publishes, what it refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.capabilities.headless import (
    HEADLESS_STARTUP,
    HeadlessOptions,
    parse_arguments,
    requested_directory,
)
from dsh.capabilities.launch import APP_EXIT, APP_OUTPUT, CMDLINE_ARGS
from dsh.errors import UsageError
from dsh.kernel import Context
from dsh.plugins import headless_startup
from tests.aio import aio


class Arguments:
    def __init__(self, *words: str) -> None:
        self._words = words

    def get(self) -> tuple[str, ...]:
        return self._words


class Streams:
    def __init__(self) -> None:
        self.out, self.err = "", ""

    def answer(self, text: str) -> None:
        self.out += text

    def notice(self, text: str) -> None:
        self.err += text + "\n"


async def started(*words: str) -> tuple[HeadlessOptions | None, Streams, list[int]]:
    root, streams, codes = Context(), Streams(), list[int]()

    def end(code: int) -> None:
        codes.append(code)

    root.provide(CMDLINE_ARGS, Arguments(*words))
    root.provide(APP_OUTPUT, streams)
    root.provide(APP_EXIT, end)
    await root.plugin(headless_startup, {})
    return root.get(HEADLESS_STARTUP), streams, codes


@pytest.mark.parametrize(
    ("words", "task"),
    [
        (["fix", "it"], "fix it"),
        (["  fix  ", "it"], "  fix   it"),
        (["--", "--help"], "--help"),
        (["fix", "--", "-x"], "fix -x"),
        (["--", "--", "x"], "-- x"),
        (["检查", "é ✓"], "检查 é ✓"),
        (["caf\udce9"], "caf\ufffd"),
    ],
)
def test_words_are_joined_by_one_blank_and_kept(words: list[str], task: str) -> None:
    options = parse_arguments(words).options
    assert options is not None and options.task == task


@pytest.mark.parametrize("words", [[], [""], ["", " "], ["\n\t"], ["--"], ["--", " "]])
def test_blank_task_is_a_usage_error(words: list[str]) -> None:
    with pytest.raises(UsageError, match="a task is required, for example: "):
        parse_arguments(words)


@pytest.mark.parametrize("words", [["--model", "x"], ["-x", "task"], ["task", "--json=1"], ["-"]])
def test_unknown_flag_is_a_usage_error(words: list[str]) -> None:
    with pytest.raises(UsageError, match="unknown option"):
        parse_arguments(words)


def test_an_unknown_flag_that_is_like_one_of_the_launcher_names_it() -> None:
    with pytest.raises(UsageError) as caught:
        parse_arguments(["--dumpconfig", "x"])
    assert caught.value.hint.startswith("did you mean '--dump-config'?")


@pytest.mark.parametrize(
    ("words", "directory"),
    [
        (["task", "-C", "d"], "d"),
        (["--cwd=d", "task"], "d"),
        (["--cwd", "d", "task"], "d"),
        (["--", "-C", "d"], None),
        (["task"], None),
        (["task", "-C"], None),
        ([], None),
    ],
)
def test_launcher_finds_the_directory_among_the_app_flags(words: list[str], directory: str | None) -> None:
    assert requested_directory(words) == directory


@given(st.lists(st.text(st.characters())))
def test_reading_arguments_is_total_and_gives_valid_unicode(words: list[str]) -> None:
    try:
        options = parse_arguments(words).options
    except UsageError as error:
        error.message.encode()
        return
    if options is not None:
        options.task.encode()


@aio
async def test_task_is_published() -> None:
    options, streams, codes = await started("do", "it")
    assert options == HeadlessOptions("do it")
    assert (streams.out, streams.err, codes) == ("", "", [])


@aio
async def test_help_goes_to_output_and_publishes_nothing() -> None:
    options, streams, codes = await started("--help")
    assert options is None
    assert streams.out.startswith("Usage: dsh run ")
    assert (streams.err, codes) == ("", [0])


@aio
async def test_usage_error_goes_to_standard_error_and_publishes_nothing() -> None:
    options, streams, codes = await started(" ")
    assert options is None
    assert streams.err == 'error: a task is required, for example: dsh run "fix the failing test"\n'
    assert (streams.out, codes) == ("", [2])
