"""What a package manager is told, and that it ends with its `dsh`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsh.cli.package_manager import Name, PackageManager, Terminated, terminable

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


def test_a_signal_that_comes_while_it_starts_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Told(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Told)
    manager = PackageManager("pip", (sys.executable, "-c", "import time; time.sleep(60)"))

    with pytest.raises(Terminated), terminable():
        manager.install([], target=tmp_path / "t", constraints=tmp_path / "c", places=[])

    assert started[0].returncode == -signal.SIGTERM
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()).isdisjoint((signal.SIGINT, signal.SIGTERM))
