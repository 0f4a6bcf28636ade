"""What the end-to-end tests share: a workspace of their own and a scripted model."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from dsh.testing.workspace import Workspace
from tests.e2e.model import Model, serve
from tests.process import is_gone, members_of
from tests.sandboxes import can_confine


@pytest.fixture(autouse=True)
def nothing_left_running(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that leaves a run, or anything of a run's process group, behind; end what it left."""
    started: list[subprocess.Popen[bytes]] = []
    start = Workspace.start

    def remembered(self: Workspace, *words: str | bytes, **options: Any) -> "subprocess.Popen[bytes]":
        started.append(start(self, *words, **options))
        return started[-1]

    monkeypatch.setattr(Workspace, "start", remembered)
    yield
    left = [process.args for process in started if not _is_over(process)]
    assert not left, f"left running: {left}"


def _is_over(process: "subprocess.Popen[bytes]") -> bool:
    """Whether its group was empty, or about to be; it is now."""
    members = members_of(process.pid)
    was_over = all(is_gone(pid, 5) for pid in members)
    if not was_over:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return was_over


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    """A workspace with an empty home. Its runs are confined, as is the default, where that is possible."""
    made = Workspace(tmp_path)
    if not can_confine():
        made.env["DSH_PERMISSION_MODE"] = "danger-full-access"
    return made


@pytest.fixture
def answering(space: Workspace) -> Iterator[Callable[..., Model]]:
    """Start a model that gives these replies (the last repeats), and send the workspace's runs to it."""
    with ExitStack() as stack:

        def start(*replies: dict[str, Any]) -> Model:
            model = stack.enter_context(serve(list(replies)))
            space.use_model(model.base_url)
            return model

        yield start
