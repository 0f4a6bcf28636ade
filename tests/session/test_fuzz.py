"""A short run of the fuzz target of the reader, with its limits of time and memory."""

import subprocess
import sys
from pathlib import Path

from dsh.session.value import decode_strict

ROOT = Path(__file__).resolve().parents[2]


def test_spoilt_logs_open_or_are_refused_by_name_and_stay_as_they_are() -> None:
    command = [sys.executable, "-m", "tests.fuzz_reader", "--cases", "500", "--seed", "400"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=200, check=False)

    assert done.returncode == 0, done.stderr.decode()[-3000:] + done.stdout.decode()
    outcomes = decode_strict(done.stdout)
    assert outcomes.pop("files") == 500
    assert {"opened", "CORRUPT_SESSION", "NOT_A_SESSION_LOG"} <= outcomes.keys(), "it meets each kind of file"
