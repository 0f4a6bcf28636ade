"""A process that is killed at any time: what it called durable is there, and the log goes on cleanly."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsh.persistence.view import build_view
from dsh.session.event import SessionEvent
from tests.contract.storages import SHARED, storage

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("name", SHARED)
def test_what_was_durable_survives_a_kill_at_any_time(name: str, tmp_path: Path) -> None:
    dice = random.Random(name)
    for number in range(4):
        root = tmp_path / str(number)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.contract.stream_and_die", name, str(root)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        durable = 0
        for _ in range(dice.randrange(1, 12)):
            durable = int(process.stdout.readline())
        time.sleep(dice.random() * 0.02)
        process.send_signal(signal.SIGKILL)
        told = process.communicate()[0].split("\n")[:-1]
        durable = int(told[-1]) if told else durable

        backend = storage(name, root).open()
        stored = backend.open("demo")
        assert stored is not None
        view = build_view(stored)
        assert view.stored_length >= durable
        kinds = [event.type for event in view.events()]
        assert kinds[0] == "turn/start" and kinds[-1] == "turn/end"
        backend.repair(stored, view.closers, view.recovered)
        backend.append(view.header, [SessionEvent("session/title", view.length, 1, {"title": "on"})])
        backend.release("demo")
        after = backend.load("demo")
        assert after is not None and build_view(after).stored_length == view.length + 1
        assert build_view(after).torn is None
        backend.close()
