"""Tests of the workspace that tests and plugin authors run dsh in."""

import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from dsh.testing.workspace import Workspace, log_rows

ECHO = (
    sys.executable,
    "-c",
    "import os, sys; print(sys.argv[1:], os.getcwd(), sorted(os.environ)); sys.exit(7)",
)


def test_a_run_sees_its_own_folder_home_and_nothing_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSH_PROFILE", "callers")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "callers")
    space = Workspace(tmp_path, program=ECHO)
    space.use_model("http://model/v1", key="ours")

    done = space.run("a", "b c", env={"EXTRA": "1", "DEEPSEEK_API_KEY": None})

    assert done.code == 7
    assert done.stdout.startswith(f"['a', 'b c'] {space.work} ")
    assert "'EXTRA'" in done.stdout and "'DSH_HOME'" in done.stdout
    assert "DSH_PROFILE" not in done.stdout and "DEEPSEEK_API_KEY" not in done.stdout


def test_a_run_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    space = Workspace(tmp_path, program=("/bin/sh", "-c", "sleep 60 & wait", "sh"))
    with pytest.raises(subprocess.TimeoutExpired):
        space.run(timeout_s=0.3)


def test_rows_of_plain_and_compressed_logs_are_read_up_to_a_torn_tail(tmp_path: Path) -> None:
    lines = b'{"type":"session"}\n{"type":"a"}\n'
    plain = tmp_path / "session.jsonl"
    plain.write_bytes(lines + b'{"type":"tor')
    packed = tmp_path / "session.jsonl.zstd"
    frame = zstandard.ZstdCompressor().compress
    packed.write_bytes(frame(lines[:19]) + frame(lines[19:]) + frame(b'{"type":"b"}\n')[:-4])

    assert [row["type"] for row in log_rows(plain)] == ["session", "a"]
    assert [row["type"] for row in log_rows(packed)] == ["session", "a"]
