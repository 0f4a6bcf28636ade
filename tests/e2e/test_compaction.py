"""Histories that grow too large, through the whole program: a local model, real tools, a stored log."""

import json
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dsh.testing.workspace import Finished, Workspace, finish, log_rows
from tests.e2e.model import Model
from tests.e2e.provider import is_for_summary, is_valid
from tests.e2e.reply import Reply, bash, failure, text
from tests.e2e.sound import errors_in
from tests.e2e.test_kill import RESUMER
from tests.process import wait_until

SMALL = """
- id: llm-deepseek
  config:
    models: [{id: deepseek-v4-flash, contextWindow: WINDOW, maxTokens: 4000}]
    retryPolicy: {maxRetries: 2, backoff: {initialDelayMs: 1, maxDelayMs: 1}}
- id: tool-result-pruner
  config: {thresholdChars: 3000, headChars: 1000, tailChars: 500}
- id: spill-policy
  disabled: true
"""
PRINT = "yes 'lorem ipsum' | head -n {words} | tr '\\n' ' ' # {number}"
OVERFLOW = failure(400, "This model's maximum context length is 20000 tokens.")


class Runs:
    """Runs with a small window, and what they logged and asked."""

    def __init__(self, space: Workspace, answering: Callable[..., Model]) -> None:
        self.space, self._answering = space, answering
        self.model: Model

    def run(self, *replies: Reply, window: int = 20_000, flags: Sequence[str] = ()) -> Finished:
        return finish(self.start(*replies, window=window, flags=flags))

    def start(
        self, *replies: Reply | str, window: int = 20_000, flags: Sequence[str] = ()
    ) -> "subprocess.Popen[bytes]":
        self.space.write("small.yml", SMALL.replace("WINDOW", str(window)))
        self.answer(*replies)
        return self.space.start("run", "--patch", "small.yml", *flags, "DO THE TASK")

    def resume(self, *flags: str) -> Finished:
        """Go on with the session in another process."""
        [path] = self.space.logs()
        session_id = log_rows(path)[0]["id"]
        self.space.write("resumer.py", RESUMER)
        small = (self.space.work / "small.yml").read_text()
        self.space.write("again.yml", small + AGAIN.replace("ID", session_id))
        return self.space.run("run", "--patch", "again.yml", *flags, "ignored")

    def answer(self, *replies: Reply | str) -> None:
        self.model = self._answering(*replies)

    def rows(self) -> list[dict[str, Any]]:
        [path] = self.space.logs()
        return log_rows(path)[1:]

    def kinds(self, *beginnings: str) -> list[str]:
        return [row["type"] for row in self.rows() if row["type"].startswith(beginnings)]

    def asked(self) -> list[dict[str, Any]]:
        """The requests for summaries."""
        return [body for body in self.model.bodies() if is_for_summary(body)]

    def turns(self) -> list[dict[str, Any]]:
        """The requests of the turns."""
        return [body for body in self.model.bodies() if not is_for_summary(body)]


@pytest.fixture
def runs(space: Workspace, answering: Callable[..., Model]) -> Runs:
    return Runs(space, answering)


def work(number: int, words: int = 200, tokens: int = 3000) -> Reply:
    """A call of bash whose result is that long, from a request of so many tokens."""
    usage = {"prompt_tokens": tokens, "completion_tokens": 10, "total_tokens": tokens + 10}
    return {**bash(PRINT.format(words=words, number=number), f"call_{number}"), "usage": usage}


SNAPSHOT = "Runtime context as it is now."
FULL = 17_000
"""Tokens over the threshold of a window of 20,000."""


def test_a_long_turn_is_summarised_as_it_goes_and_the_next_summary_takes_up_the_first(runs: Runs) -> None:
    replies = [
        *(work(n) for n in range(12)),
        *(work(12, tokens=FULL), text("## Goal: the first gist")),
        *(work(n) for n in range(20, 26)),
        *(work(26, tokens=FULL), text("## Goal: the second gist")),
        *(work(n) for n in range(30, 36)),
        text("all done"),
    ]
    done = runs.run(*replies)

    assert (done.code, done.stdout) == (0, "all done\n"), done.stderr
    assert all(is_valid(body) for body in runs.model.bodies())
    first, second = runs.asked()
    assert "DO THE TASK" in str(first["messages"])
    assert "the first gist" in str(second["messages"])
    last = str(runs.turns()[-1]["messages"])
    assert "the second gist" in last
    assert "the first gist" not in last
    assert last.count("<compacted-summary>") == 1
    assert len({json.dumps(body["tools"]) for body in runs.model.bodies()}) == 1
    assert SNAPSHOT in last
    assert errors_in(runs.space) == []


def test_long_results_of_the_past_are_cut_first(runs: Runs) -> None:
    done = runs.run(work(1, 600), work(2, 600), work(3, 600, FULL), text("all done"))

    assert (done.code, done.stdout) == (0, "all done\n"), done.stderr
    assert set(runs.kinds("compaction/")) == {"compaction/prune"}
    last = [m["content"] for m in runs.turns()[-1]["messages"] if m["role"] == "tool"]
    assert "taken out to save room" in last[0]
    assert "taken out to save room" not in last[-1]


def test_a_request_that_is_too_large_is_made_again_with_a_shorter_history(runs: Runs) -> None:
    replies = [work(1), work(2), OVERFLOW, text("the gist"), text("all done")]
    done = runs.run(*replies, window=1_000_000)

    assert (done.code, done.stdout) == (0, "all done\n"), done.stderr
    assert runs.kinds("compaction/") == ["compaction/start", "compaction/summary", "compaction/end"]
    assert "DO THE TASK" in str(runs.asked()[0]["messages"])
    assert all(is_valid(body) for body in runs.model.bodies())
    assert runs.kinds("step/")[-2:] == ["step/start", "step/end"]


NO_SUMMARY: dict[str, Reply] = {
    "only reasoning": {"reasoning": ["hm"], "text": []},
    "empty": {"text": [""]},
    "cut off": {"text": ["half a"], "finish": "length"},
    "a tool call": bash("true", "call_s"),
    "refused": failure(403, "not you"),
}


@pytest.mark.parametrize("case", NO_SUMMARY)
def test_a_summary_that_is_none_leaves_the_history_and_a_warning(runs: Runs, case: str) -> None:
    bad = NO_SUMMARY[case]
    repeats = 3 if case == "empty" else 1
    done = runs.run(work(1), work(2, tokens=FULL), *[bad] * repeats, text("all done"))

    assert (done.code, done.stdout) == (0, "all done\n"), done.stderr
    assert "compaction/summary" not in runs.kinds("compaction/")
    assert "the history could not be made shorter" in done.stderr
    assert is_valid(runs.turns()[-1])
    assert "DO THE TASK" in str(runs.turns()[-1]["messages"])


def test_a_summary_is_asked_for_again_after_a_server_error(runs: Runs) -> None:
    some = [*(work(n) for n in range(6)), work(6, tokens=FULL)]
    replies = [*some, failure(500, "oops"), text("the gist"), text("all done")]
    done = runs.run(*replies)

    assert (done.code, done.stdout) == (0, "all done\n"), done.stderr
    assert len(runs.asked()) == 2
    assert "compaction/summary" in runs.kinds("compaction/")
    assert "warning" not in done.stderr
    assert SNAPSHOT in str(runs.turns()[-1]["messages"])


AGAIN = """
- id: agent-loop
  config:
    agents:
      - {id: main, resumeSessionId: ID, provider: deepseek-official, model: deepseek-v4-flash}
- {id: headless-runner, remove: true}
- insert:
    - {id: resumer, name: ./resumer.py}
"""


def test_a_run_that_was_killed_while_it_waited_for_a_summary_is_compacted_when_it_goes_on(runs: Runs) -> None:
    """CO-03: the start marker of the life before blocks nothing; the history is whole."""
    space = runs.space
    some = [*(work(n) for n in range(6)), work(6, tokens=FULL)]
    process = runs.start(*some, "stall")
    wait_until(lambda: space.logs() and "compaction/start" in runs.kinds("compaction/"), process)
    process.kill()
    finish(process)
    assert runs.kinds("compaction/") == ["compaction/start"]

    runs.answer(text("the gist"), text("all done"))
    done = runs.resume()

    assert done.code == 0, done.stderr
    assert runs.kinds("compaction/") == [
        *("compaction/start", "compaction/start", "compaction/summary", "compaction/end")
    ]
    [asked], [turn] = runs.asked(), runs.turns()
    assert "DO THE TASK" in str(asked["messages"])
    assert "the gist" in str(turn["messages"])
    assert is_valid(asked)
    assert is_valid(turn)
    assert SNAPSHOT in str(turn["messages"])
    assert errors_in(space) == []
