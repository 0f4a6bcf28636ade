"""Runs dsh as a process of its own in a throw-away folder, with a home and an environment of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import zstandard

from dsh.persistence.jsonl.layout import LOG_NAMES

PROGRAM = (sys.executable, "-P", "-m", "dsh")
"""How the program is started: this interpreter, without the current folder on the import path."""
KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "COVERAGE_PROCESS_START")
TIMEOUT_S = 60.0


class Finished(NamedTuple):
    """What a run came to."""

    code: int
    """Exit code; negative for a signal that killed the process."""
    stdout: str
    stderr: str
    raw_stdout: bytes

    @property
    def errors(self) -> list[str]:
        """The lines of standard error."""
        return self.stderr.splitlines()


class Workspace:
    """`root/work` is where dsh runs, `root/home` is its `$DSH_HOME` and `$HOME`."""

    def __init__(self, root: Path, *, program: Sequence[str] = PROGRAM) -> None:
        self.root, self.program = root, tuple(program)
        self.work, self.home = root / "work", root / "home"
        self.work.mkdir(parents=True, exist_ok=True)
        self.home.mkdir(parents=True, exist_ok=True)
        self.env: dict[str, str] = {}
        """Added to the bare environment of every run."""

    def use_model(self, base_url: str, key: str = "mock-key") -> None:
        """Send the DeepSeek route to a server of the test's own."""
        self.env.update(DEEPSEEK_BASE_URL=base_url, DEEPSEEK_API_KEY=key)

    def write(self, name: str, text: str) -> Path:
        """Put a file into the folder where dsh runs."""
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def environment(self, changes: Mapping[str, str | None]) -> dict[str, str]:
        """What a run sees: nothing of the caller's but paths and language. None takes a variable away."""
        env = {name: os.environ[name] for name in KEPT if name in os.environ}
        env.update(HOME=str(self.home), DSH_HOME=str(self.home), **self.env)
        for name, value in changes.items():
            if value is None:
                env.pop(name, None)
            else:
                env[name] = value
        return env

    def start(
        self,
        *words: str | bytes,
        stdin: int | IO[Any] = subprocess.DEVNULL,
        stdout: int | IO[Any] = subprocess.PIPE,
        env: Mapping[str, str | None] | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Start dsh in a session of its own."""
        return subprocess.Popen(
            [*self.program, *words],
            cwd=self.work,
            env=self.environment(env or {}),
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run(
        self,
        *words: str | bytes,
        stdin: int | IO[Any] = subprocess.DEVNULL,
        timeout_s: float = TIMEOUT_S,
        env: Mapping[str, str | None] | None = None,
    ) -> Finished:
        """Run dsh to its end.

        Raises:
            subprocess.TimeoutExpired: it did not end; its whole group has been killed.
        """
        return finish(self.start(*words, stdin=stdin, env=env), timeout_s=timeout_s)

    def logs(self) -> list[Path]:
        """The session logs in the home, by path."""
        return sorted(path for name in LOG_NAMES.values() for path in self.home.glob(f"sessions/*/*/{name}"))


def finish(process: "subprocess.Popen[bytes]", *, timeout_s: float = TIMEOUT_S) -> Finished:
    """Wait for a started dsh; kill its group if it takes too long.

    Raises:
        subprocess.TimeoutExpired: it took too long.
    """
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return Finished(process.returncode, (out or b"").decode("utf-8"), err.decode("utf-8"), out or b"")


def log_rows(path: Path) -> list[dict[str, Any]]:
    """The complete rows of a stored log, plain or compressed, header first; a torn tail is left out."""
    rows: list[dict[str, Any]] = []
    for line in log_text(path).split(b"\n"):
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line.decode("utf-8", "surrogatepass")))
    return rows


def log_text(path: Path) -> bytes:
    """The bytes of a stored log after decompression, as far as its frames go."""
    data = path.read_bytes()
    if path.suffix != ".zstd":
        return data
    text = b""
    while data:
        frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            text += frame.decompress(data)
        except zstandard.ZstdError:
            break
        data = frame.unused_data
    return text
