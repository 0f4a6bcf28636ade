"""Standard output is the answer and nothing else, in UTF-8 whatever the locale (HL-03, HL-07)."""

import os
import subprocess
from collections.abc import Callable

from dsh.testing.workspace import Workspace, finish, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import text

Answering = Callable[..., Model]

NOISY = """
import logging, os, subprocess, sys
def apply(ctx):
    print("plugin ready")
    logging.getLogger("noisy").info("an info line")
    logging.getLogger("noisy").warning("a warning line")
    subprocess.run(["echo", "noise"])
    os.write(1, b"raw noise\\n")
"""


def test_noise_of_plugins_and_children_never_reaches_standard_output(
    space: Workspace, answering: Answering
) -> None:
    answering(text("final"))
    space.write("noisy.py", NOISY)
    space.write("p.yml", "- insert:\n    - {id: noisy, name: ./noisy.py}\n")
    done = space.run("--profile", "headless", "--patch", "p.yml", "x")
    assert (done.code, done.stdout) == (0, "final\n")
    for line in ("plugin ready", "noise", "raw noise", "dsh: a warning line"):
        assert line in done.errors


def test_answer_and_task_survive_a_bare_locale(space: Workspace, answering: Answering) -> None:
    escaped = '{"choices":[{"index":0,"delta":{"content":"完成 ✓ \\ud83d"},"finish_reason":null}]}'
    ending = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
    model = answering({"raw": [f"data: {escaped}\n\n", f"data: {ending}\n\n", "data: [DONE]\n\n"]})
    bare: dict[str, str | None] = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LANG": None}
    done = space.run("run", "检查 é ✓", b"caf\xe9", env=bare)
    assert (done.code, done.raw_stdout, done.stderr) == (0, "完成 ✓ \ufffd\n".encode(), "")
    [body] = model.bodies()
    assert "检查 é ✓ caf\ufffd" in [m["content"] for m in body["messages"]]
    [log] = space.logs()
    assert "检查 é ✓ caf\ufffd" in repr(log_rows(log))


def test_slow_reader_gets_the_whole_answer(space: Workspace, answering: Answering) -> None:
    """The answer is larger than a pipe, and the pipe was left non-blocking."""
    answering(text("x" * 300_000))
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    process = space.start("run", "x", stdout=writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        read = pipe.read()
    assert finish(process).code == 0
    assert read == b"x" * 300_000 + b"\n"


def test_nobody_reading_is_an_error_and_the_log_is_complete(space: Workspace, answering: Answering) -> None:
    answering(text("x" * 300_000))
    reading, writing = os.pipe()
    process = space.start("run", "x", stdout=writing)
    os.close(writing)
    os.close(reading)
    done = finish(process)
    assert done.code == 1
    assert done.stderr == "dsh: standard output cannot be written: Broken pipe\n"
    [log] = space.logs()
    assert log_rows(log)[-1]["type"] == "turn/end"


def test_version_and_dump_are_silent_on_standard_error(space: Workspace) -> None:
    for words in (["--version"], ["--dump-config"], ["--dump-default-config"], ["--help"]):
        done = space.run(*words)
        assert (done.code, done.stderr) == (0, "")
        assert done.stdout.endswith("\n")
    assert list(space.home.iterdir()) == []


def test_dump_to_a_closed_pipe_is_quiet(space: Workspace) -> None:
    command = " ".join([*space.program, "--dump-config"])
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} | true"], capture_output=True, env=space.environment({}), timeout=30
    )
    assert done.stderr == b""
