"""The memory of a long stream: that of its text and a word a chunk, nothing else."""

import subprocess
import sys

import pytest

CHUNKS = 200_000
BYTES_PER_CHUNK = 48
"""A pointer in a list that grows, the text twice while it is joined."""


@pytest.mark.parametrize("wire", ["chat", "anthropic"])
def test_a_stream_that_nobody_logs_takes_no_more_than_its_text(wire: str) -> None:
    program = [sys.executable, "-m", "tests.llm.long_stream", wire, str(CHUNKS)]
    run = subprocess.run(program, capture_output=True, text=True, timeout=120)

    assert (run.returncode, run.stderr) == (0, "")
    count, grown_kib = map(int, run.stdout.split())
    assert count >= CHUNKS
    assert grown_kib * 1024 < CHUNKS * BYTES_PER_CHUNK
