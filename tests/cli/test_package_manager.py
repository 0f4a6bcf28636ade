"""What a package manager is told, and that it ends with its `dsh`."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dsh.cli.package_manager import Name, PackageManager

RECORDER = "import json, sys; json.dump(sys.argv[2:], open(sys.argv[1], 'w'))"


@pytest.mark.parametrize(
    ("name", "places", "flag"),
    [
        ("pip", [], None),
        ("pip", ["."], None),
        ("pip", [".", "./lone-1.0.tar.gz"], "--no-cache-dir"),
        ("pip", ["lone @ https://host/lone.zip"], "--no-cache-dir"),
        ("uv", [], None),
        ("uv", ["."], "--no-cache"),
    ],
)
def test_what_was_built_before_does_not_stand_in_for_what_lies_there_now(
    tmp_path: Path, name: Name, places: list[str], flag: str | None
) -> None:
    told = tmp_path / "told.json"
    manager = PackageManager(name, (sys.executable, "-c", RECORDER, str(told)))

    assert manager.install(["x"], target=tmp_path / "t", constraints=tmp_path / "c", places=places) == 0

    line = ["--target", str(tmp_path / "t"), "--constraint", str(tmp_path / "c"), "x"]
    assert json.loads(told.read_text()) == [*line, *([] if flag is None else [flag])]


SIGNALLED = """
import os, signal, subprocess, sys
from pathlib import Path
from dsh.cli.package_manager import PackageManager, Terminated, terminable
started = []
class Told(subprocess.Popen):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        started.append(self)
        os.kill(os.getpid(), signal.SIGTERM)
subprocess.Popen = Told
manager = PackageManager("pip", (sys.executable, "-c", "import time; time.sleep(60)"))
try:
    with terminable():
        manager.install([], target=Path("t"), constraints=Path("c"), places=[])
except Terminated:
    print(started[0].returncode, *signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""


def test_a_signal_that_comes_while_it_starts_ends_it() -> None:
    """In a process of its own: the threads of a test runner would take the signal."""
    done = subprocess.run([sys.executable, "-c", SIGNALLED], capture_output=True, text=True, timeout=50)
    assert (done.stdout, done.stderr) == (f"{-signal.SIGTERM}\n", "")
