"""Every escape of the table, in every backend, as root and as another user: stopped or open, as written."""

import os
import platform
import shutil
from pathlib import Path

import pytest

from dsh.capabilities.sandbox import SandboxMode
from dsh.capabilities.shell import ShellResult
from tests.aio import aio
from tests.contract.sandbox.escapes import BWRAP, ESCAPED, ESCAPES, LANDLOCK, Escape
from tests.contract.sandbox.place import BACKENDS, USERS, Place, landlock_abi, place, user, walls


def filled_in(text: str, place: Place, port: int) -> str:
    words = {
        "OUT": str(place.outside), "VICTIM": str(place.victim.pid), "PARENT": str(os.getpid()),
        "PORT": str(port), "SIZE": str(place.size),
    }  # fmt: skip
    for name, value in words.items():
        text = text.replace(name, value)
    return text.replace("dsh-N", f"dsh-{place.number}")


def refuse_what_cannot_be_tried(escape: Escape, backend: str) -> None:
    for need in escape.needs:
        if need != platform.machine() and shutil.which(need) is None:
            pytest.skip(f"it cannot be tried without {need}")
    if backend == LANDLOCK and 0 < landlock_abi() < escape.least_abi:
        pytest.skip(f"Landlock stops it from ABI {escape.least_abi} on")


EACH = pytest.mark.parametrize("escape", ESCAPES, ids=lambda escape: escape.name.replace(" ", "-"))


async def try_out(
    escape: Escape, here: Place, backend: str, monkeypatch: pytest.MonkeyPatch, mode: SandboxMode
) -> tuple[bool, ShellResult]:
    """Whether it came through, and what the command said."""
    escape.prepare(here)
    port = here.listen_tcp()
    policy = {
        key: [filled_in(path, here, port) for path in value] if isinstance(value, list) else value
        for key, value in escape.policy.items()
    }
    async with walls(backend, monkeypatch, workspaceRoot=str(here.ws), **policy) as shell:
        result = await shell.run(filled_in(escape.command, here, port), str(here.ws), mode)
    came_through = ESCAPED in result.stdout.text or escape.came_through(here)
    for folder, name in (("/dev/shm", ""), ("/tmp", ""), ("/var/tmp", ""), ("/tmp", ".sock")):
        Path(folder, f"dsh-{here.number}{name}").unlink(missing_ok=True)
    return came_through, result


@EACH
@pytest.mark.parametrize("who", USERS)
@pytest.mark.parametrize("backend", BACKENDS)
@aio
async def test_escape(escape: Escape, who: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_what_cannot_be_tried(escape, backend)
    with user(who, monkeypatch), place() as here:
        came_through, result = await try_out(escape, here, backend, monkeypatch, "workspace-write")

    assert came_through == (backend in escape.open_in), (result.stdout.text, result.stderr.text)


@EACH
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gets through everywhere")
@aio
async def test_without_walls_it_is_a_way_out(escape: Escape, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_what_cannot_be_tried(escape, BWRAP)
    if not escape.is_harmless:
        pytest.skip("it would change the machine, or not every machine lets it")
    with user("root", monkeypatch), place() as here:
        came_through, result = await try_out(escape, here, BWRAP, monkeypatch, "danger-full-access")

    assert came_through, (result.stdout.text, result.stderr.text)
