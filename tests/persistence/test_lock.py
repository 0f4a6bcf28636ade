"""The owner lock: one writer a session, over processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsh.persistence.error import SessionBusy
from dsh.persistence.lock import OwnerLock

HOLD = """
import sys, time, pathlib
from dsh.persistence.lock import OwnerLock
lock = OwnerLock.acquire(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_the_lock_names_its_owner_to_the_second_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"

        with pytest.raises(SessionBusy, match=f"process {other.pid} on host") as caught:
            OwnerLock.acquire(tmp_path)

        assert caught.value.code == "SESSION_BUSY"
        other.kill()

    OwnerLock.acquire(tmp_path).release()  # it went with its process


def test_the_lock_is_exclusive_within_a_process_and_the_file_stays(tmp_path: Path) -> None:
    lock = OwnerLock.acquire(tmp_path)
    with pytest.raises(SessionBusy, match=str(os.getpid())):
        OwnerLock.acquire(tmp_path)

    lock.release()
    lock.release()

    assert json.loads((tmp_path / "owner.lock").read_text())["pid"] == os.getpid()
    assert (tmp_path / "owner.lock").stat().st_mode & 0o777 == 0o600
    OwnerLock.acquire(tmp_path).release()


def test_an_unreadable_owner_text_is_no_obstacle(tmp_path: Path) -> None:
    lock = OwnerLock.acquire(tmp_path)
    (tmp_path / "owner.lock").write_text("{}")

    with pytest.raises(SessionBusy, match="another process"):
        OwnerLock.acquire(tmp_path)

    lock.release()
