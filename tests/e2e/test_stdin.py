"""Standard input is never read with a task on the command line (HL-01)."""

import os
import subprocess
from collections.abc import Callable

import pytest

from dsh.testing.workspace import Workspace
from tests.e2e.model import Model
from tests.e2e.reply import bash, text


@pytest.mark.parametrize("kind", ["silent pipe", "full pipe", "closed"])
def test_task_on_the_command_line_leaves_standard_input_alone(
    space: Workspace, answering: Callable[..., Model], kind: str
) -> None:
    answering(bash("cat | wc -c"), text("ok"))
    reading, writing = os.pipe()
    try:
        if kind == "full pipe":
            os.set_blocking(writing, False)
            while True:
                try:
                    os.write(writing, b"x" * 4096)
                except BlockingIOError:
                    break
        if kind == "closed":
            script = ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *space.program]
            done = Workspace(space.root, program=script)
            done.env = space.env
            result = done.run("run", "say ok", timeout_s=20)
        else:
            result = space.run("run", "say ok", stdin=reading, timeout_s=20)
    finally:
        os.close(reading)
        os.close(writing)
    assert (result.code, result.stdout, result.stderr) == (0, "ok\n", "")


def test_null_device_will_do(space: Workspace, answering: Callable[..., Model]) -> None:
    answering(text("ok"))
    assert space.run("run", "say ok", stdin=subprocess.DEVNULL).stdout == "ok\n"
