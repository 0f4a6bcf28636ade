"""Tasks that are longer than the model's window, through the whole program and a provider that has one.

Whatever the meter thinks and the summariser does: the run ends, each request is valid, system text and tools
stay as they are to the byte, and the log verifies.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from dsh.testing.mock_server import MockModelServer
from dsh.testing.workspace import Finished, Workspace, log_rows
from tests.e2e.provider import Provider, is_valid
from tests.e2e.reply import Reply, bash, failure, text
from tests.e2e.sound import errors_in
from tests.e2e.test_compaction import AGAIN
from tests.e2e.test_kill import RESUMER

WINDOW = 8_000
STEPS = 14
TASK = "THE-TASK: do it"
PATCH = """
- id: llm-deepseek
  config:
    models: [{id: deepseek-v4-flash, WINDOWmaxTokens: 2000}]
    retryPolicy: {maxRetries: 1, backoff: {initialDelayMs: 1, maxDelayMs: 1}}
"""
PRINT = "yes '{words}' | head -n {times} # {number}"


def printing(words: str, times: int, steps: int = STEPS) -> Callable[[int], Reply]:
    """Each step prints so much; then the task is done."""

    def turn(number: int) -> Reply:
        if number > steps:
            return text("all done")
        return bash(PRINT.format(words=words, times=times, number=number), f"call_{number}")

    return turn


def gist(number: int) -> Reply:
    return text(f"## Goal: THE-TASK, gist {number}.")


class Sessions:
    """Runs of one workspace against a provider."""

    def __init__(self, space: Workspace, stack: ExitStack) -> None:
        self.space, self._stack = space, stack
        self.provider: Provider

    def run(
        self, provider: Provider, *, window: int | None = WINDOW, task: str = TASK, patch: str = ""
    ) -> Finished:
        self.provider = provider
        server = self._stack.enter_context(MockModelServer([provider], repeat_last=True).in_thread())
        self.space.use_model(server.base_url)
        named = "" if window is None else f"contextWindow: {window}, "
        self.space.write("window.yml", PATCH.replace("WINDOW", named) + patch)
        return self.space.run("run", "--patch", "window.yml", task)

    def rows(self) -> list[dict[str, Any]]:
        [path] = self.space.logs()
        return log_rows(path)

    def check(self) -> None:
        """What holds of every session here."""
        bodies = self.provider.bodies
        assert all(is_valid(body) for body in bodies)
        assert len({json.dumps((body["tools"], body["messages"][0])) for body in bodies}) == 1
        assert errors_in(self.space) == []

    def lost(self, words: str = "THE-TASK") -> Sequence[int]:
        """The requests of turns that say nothing of the task."""
        return [n for n, body in enumerate(self.provider.turns) if words not in str(body["messages"])]


@pytest.fixture
def sessions(space: Workspace) -> Iterator[Sessions]:
    with ExitStack() as stack:
        yield Sessions(space, stack)


CASES: dict[str, tuple[Callable[[int], Reply], dict[str, Any], int | None]] = {
    "prose": (printing("lorem ipsum", 300), {}, WINDOW),
    "Chinese": (printing("这是一个中文测试句子", 150), {"bytes_per_token": 2.6}, WINDOW),
    "results larger than the window": (printing("lorem ipsum", 5000), {}, WINDOW),
    "a window that nobody knows": (printing("lorem ipsum", 300), {"tells_usage": False}, None),
    "a window that is told too large": (printing("lorem ipsum", 300), {"tells_usage": False}, 1_000_000),
}


@pytest.mark.parametrize("case", CASES)
def test_a_task_longer_than_the_window_gets_done(sessions: Sessions, case: str) -> None:
    turn, options, window = CASES[case]
    done = sessions.run(Provider(turn, gist, window=WINDOW, **options), window=window)

    assert (done.code, done.stdout) == (0, "all done\n"), done.stderr
    assert len(sessions.provider.turns) == STEPS + 1
    assert len(sessions.provider.summaries) >= 3
    assert sessions.provider.refused <= 3  # one, of a request and of its summary, shows the window
    assert sessions.lost() == []
    sessions.check()


BAD: list[Reply] = [
    {"reasoning": ["hm"], "text": []},
    text(""),
    text("half", finish="length"),
    bash("true", "call_s"),
    failure(403, "not you"),
    failure(500, "oops"),
    text("x" * 40_000),
    {"raw": ["data: {garbage\n\n"]},
    failure(400, "This model's maximum context length is 10 tokens."),
]


def test_a_summariser_that_is_bad_in_every_way_ends_no_task(sessions: Sessions) -> None:
    """What cannot be summarised is cut; each kind of failure is told once."""
    provider = Provider(printing("lorem ipsum", 300), lambda n: BAD[n % len(BAD)], window=WINDOW)
    done = sessions.run(provider)

    assert (done.code, done.stdout) == (0, "all done\n"), done.stderr
    assert "compaction/summary" not in {row.get("type") for row in sessions.rows()}
    assert sessions.lost() == []
    assert len(done.errors) == len(set(done.errors)) <= len(BAD)
    assert "Traceback" not in done.stderr
    sessions.check()


def test_a_session_goes_on_behind_two_compactions_and_is_compacted_again(sessions: Sessions) -> None:
    words = printing("lorem ipsum", 300, 10)
    assert sessions.run(Provider(words, gist, window=WINDOW)).code == 0
    assert len(sessions.provider.summaries) >= 2
    session_id = sessions.rows()[0]["id"]
    head = sessions.provider.bodies[0]["tools"], sessions.provider.bodies[0]["messages"][0]
    sessions.space.write("resumer.py", RESUMER)

    again = Provider(words, lambda n: text(f"## Goal: THE-TASK, later gist {n}."), window=WINDOW)
    done = sessions.run(again, patch=AGAIN.replace("ID", session_id))

    assert done.code == 0, done.stderr
    assert len(again.turns) == 11
    assert "gist" in str(again.turns[0]["messages"])
    assert len(again.summaries) >= 2
    assert f"later gist {len(again.summaries)}" in str(again.turns[-1]["messages"])
    assert str(again.turns[-1]["messages"]).count("<compacted-summary>") == 1
    assert (again.bodies[0]["tools"], again.bodies[0]["messages"][0]) == head
    assert sessions.lost() == []
    sessions.check()


def test_a_prompt_larger_than_the_window_ends_the_run_and_says_what_fills_it(sessions: Sessions) -> None:
    provider = Provider(printing("x", 1), gist, window=WINDOW)
    done = sessions.run(provider, task=TASK + " lorem ipsum" * 4000)

    assert (done.code, done.stdout.strip()) == (1, "")
    assert (len(provider.bodies), provider.refused) == (1, 1)
    why, end = done.errors
    assert "are one prompt (event" in why
    assert "shorten it, or take a model with a larger window" in why
    assert end.startswith("dsh: CONTEXT_WINDOW_EXCEEDED: ")
    sessions.check()


def test_a_window_smaller_than_system_text_and_tools_is_told(sessions: Sessions) -> None:
    provider = Provider(printing("x", 1), gist, window=1_000)
    done = sessions.run(provider, window=1_000)

    assert (done.code, len(provider.bodies)) == (1, 1)
    why, end = done.errors
    assert "are system text and tools" in why
    assert "take a model with a larger window, or fewer tools" in why
    assert end.startswith("dsh: CONTEXT_WINDOW_EXCEEDED: ")
    sessions.check()
