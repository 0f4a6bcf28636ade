"""Row `sandbox`: which backend is chosen, how long that may take, and what is refused."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities import scratch
from dsh.capabilities.sandbox import (
    SANDBOX,
    BackendReport,
    Confined,
    Enforcement,
    SandboxPolicy,
    SandboxUnavailable,
)
from dsh.capabilities.subprocess import SUBPROCESS
from dsh.kernel import Context, ValidationError
from dsh.plugins import sandbox, subprocess
from dsh.plugins.sandbox import Config, SandboxService, bwrap
from dsh.plugins.sandbox.backend import Prober
from dsh.plugins.sandbox.bwrap import Bwrap, profile
from tests.aio import aio

WRITE = SandboxPolicy("workspace-write", "/ws")


class Fake:
    """A backend that works as it is told."""

    def __init__(self, name: str, enforcement: Enforcement | None, hint: str = "") -> None:
        self.name, self.enforcement, self.hint = name, enforcement, hint
        self.probes = 0

    async def probe(self, prober: Prober) -> BackendReport:
        self.probes += 1
        await asyncio.sleep(0)
        return BackendReport(self.name, self.enforcement, f"{self.name} says so", self.hint)

    def confine(
        self, argv: Sequence[str], policy: SandboxPolicy, *, cwd: str | None, status_fd: int | None
    ) -> Confined:
        return Confined(argv=(self.name, "--", *argv), enforcement="full", runner=self.name)


@asynccontextmanager
async def prober(timeout_ms: int = 10_000) -> AsyncIterator[Prober]:
    ctx = Context()
    await ctx.plugin(subprocess)
    try:
        service = ctx.get(SUBPROCESS)
        assert service is not None
        yield Prober(service, timeout_ms)
    finally:
        await ctx.dispose()


def service(*backends: Fake, **config: Any) -> SandboxService:
    return SandboxService(Config(**config), None, backends)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("backends", "require_full", "chosen"),
    [
        ((("a", "full"), ("b", "full")), False, "a"),
        ((("a", None), ("b", "partial")), False, "b"),
        ((("a", "partial"), ("b", "full")), False, "a"),
        ((("a", "partial"), ("b", "full")), True, "b"),
    ],
)
@aio
async def test_the_first_that_works_well_enough_is_chosen(
    backends: Any, require_full: bool, chosen: str
) -> None:
    found = service(*(Fake(*backend) for backend in backends), require_full=require_full)

    assert (await found.confine(["true"], WRITE)).argv == (chosen, "--", "true")
    await found.require("read-only")


@aio
async def test_nothing_that_works_is_told_with_each_reason_and_the_way_out() -> None:
    found = service(Fake("a", None, "install a"), Fake("b", "partial"), require_full=True)

    with pytest.raises(SandboxUnavailable) as refused:
        await found.confine(["true"], WRITE)

    assert refused.value.code == "SANDBOX_UNAVAILABLE"
    assert refused.value.message == (
        "no sandbox here can keep mode 'workspace-write' (a: a says so; b: only partial, b says so); "
        "the command was not run"
    )
    assert refused.value.hint.startswith("install a, or run unconfined by DSH_PERMISSION_MODE=")
    with pytest.raises(SandboxUnavailable, match=r"b says so\)$"):
        await found.require("read-only")


@aio
async def test_a_platform_without_backends_says_so() -> None:
    found = service()

    assert not found.has_backends
    with pytest.raises(SandboxUnavailable, match=f"on this platform \\({sys.platform}\\)"):
        await found.confine(["true"], WRITE)
    await found.require("danger-full-access")
    assert await found.backends() == []


@aio
async def test_full_access_is_never_confined() -> None:
    with pytest.raises(SandboxUnavailable, match="nothing is confined"):
        await service(Fake("a", "full")).confine(["true"], SandboxPolicy("danger-full-access", "/"))


@aio
async def test_the_start_is_not_stopped_where_the_composition_postpones_the_check() -> None:
    found = service(Fake("a", None), check_at_start=False)

    await found.require("read-only")

    with pytest.raises(SandboxUnavailable):
        await found.confine(["true"], WRITE)


@aio
async def test_many_commands_at_once_probe_once_and_a_doubt_probes_again() -> None:
    backend = Fake("a", "full")
    found = service(backend)

    await asyncio.gather(*(found.confine(["true"], WRITE) for _ in range(20)))
    assert backend.probes == 1
    found.doubt()
    backend.enforcement = None
    with pytest.raises(SandboxUnavailable):
        await found.confine(["true"], WRITE)
    backend.enforcement = "full"
    await found.confine(["true"], WRITE)
    assert backend.probes == 3


# -- bubblewrap, tried ------------------------------------------------------------------------------------


def bwrap_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a `bwrap` of the test's own before the real one."""
    program = tmp_path / "bin" / "bwrap"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/bash\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


STATUS = 'while [ "$1" != --json-status-fd ]; do shift; done; echo \'{"exit-code": 0}\' >&"$2"; '


@pytest.mark.parametrize(
    ("script", "enforcement", "reason"),
    [
        (f"{STATUS} exit 0", "full", ""),
        (f"{STATUS} exit 9", None, "a remount succeeds"),
        ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", None, "No permissions"),
        ("exit 0", None, "exit code 0"),
        ("echo noise >&2; exec sleep 30", None, "did not answer within 300 ms"),
        ("kill -9 $$", None, "exit code None"),
    ],
)
@aio
async def test_bubblewrap_is_believed_only_when_it_shows_that_it_works(
    script: str, enforcement: str | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bwrap_that(tmp_path, monkeypatch, script)
    async with prober(300 if "sleep" in script else 10_000) as probing:
        report = await Bwrap().probe(probing)

    assert report.enforcement == enforcement
    assert reason in report.reason


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a capability to keep")
@aio
async def test_bubblewrap_that_leaves_root_its_capabilities_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is no `mount` to try it with."""
    run = 'while [ "$1" != -- ]; do shift; done; shift 2; PATH=/nonexistent /bin/sh "$@"'
    bwrap_that(tmp_path, monkeypatch, run)
    async with prober() as probing:
        report = await Bwrap().probe(probing)

    assert report.enforcement is None and "a remount succeeds" in report.reason


@aio
async def test_a_missing_bubblewrap_is_told_with_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    async with prober() as probing:
        monkeypatch.setenv("PATH", "/nonexistent")
        report = await Bwrap().probe(probing)

    assert report.enforcement is None and "not installed" in report.reason
    assert "apt-get install bubblewrap" in report.hint


@aio
async def test_the_loop_runs_while_a_backend_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bwrap_that(tmp_path, monkeypatch, f"{STATUS} sleep 0.2")
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    async with prober() as probing:
        beating = asyncio.create_task(beat())
        await Bwrap().probe(probing)
        beating.cancel()

    assert beats > 3


# -- the profile ------------------------------------------------------------------------------------------


def pairs(words: list[str], option: str) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words) if word == option]


def test_the_profile_always_drops_privileges_and_binds_the_kernels_settings_read_only() -> None:
    for policy in (WRITE, SandboxPolicy("read-only", "/ws")):
        words = profile(policy, cwd="/ws")
        kept = ["CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_CHOWN"] if os.geteuid() == 0 else []
        assert words[:3] == ["--ro-bind", "/", "/"]
        assert pairs(words, "--cap-drop") == ["ALL"] and pairs(words, "--cap-add") == kept
        assert words.index("--proc") < words.index("/proc/sys")
        assert {"--die-with-parent", "--unshare-pid", "--unshare-ipc"} < set(words)
        assert "--unshare-net" not in words
        assert words[-2:] == ["--chdir", "/ws"]


def test_a_closed_network_is_one_more_namespace() -> None:
    assert "--unshare-net" in profile(SandboxPolicy("read-only", "/", is_network_open=False), cwd="/")


def test_read_only_binds_nothing_for_writing(tmp_path: Path) -> None:
    words = profile(SandboxPolicy("read-only", str(tmp_path), temp_folder=str(tmp_path)), cwd="/")

    assert pairs(words, "--bind") == []


def test_what_is_open_and_protected_is_bound_in_this_order(tmp_path: Path) -> None:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    words = profile(
        SandboxPolicy("workspace-write", str(tmp_path), hidden_paths=(str(tmp_path / "secret"),)), cwd="/"
    )

    order = [
        words.index("--bind"),
        words.index(str(tmp_path / ".git/hooks")),
        words.index(str(tmp_path / "secret")),
        words.index("--remount-ro"),
    ]
    assert order == sorted(order)
    assert str(tmp_path / ".dsh") not in words  # it is not there


def test_what_is_needed_of_a_hidden_place_is_seen_and_a_place_that_is_a_link_is_hidden_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    for name in ("resolve", "wrappers", "other", "ws"):
        (place / name).mkdir(parents=True)
    (place / "resolve" / "conf").touch()
    (tmp_path / "alias").symlink_to("place")
    (tmp_path / "conf").symlink_to("alias/resolve/conf")
    monkeypatch.setattr(bwrap, "HIDDEN", (str(tmp_path / "alias"), str(place), str(tmp_path / "gone")))
    monkeypatch.setattr(bwrap, "NAME_RESOLUTION", (str(tmp_path / "conf"), str(tmp_path / "gone")))
    monkeypatch.setattr(bwrap, "NEEDED_OF_RUN", (str(place / "wrappers"), str(place / "gone")))

    words = profile(SandboxPolicy("read-only", str(place / "ws")), cwd="/")

    assert pairs(words, "--tmpfs") == pairs(words, "--remount-ro") == [str(place)]
    assert set(pairs(words, "--ro-bind-try")) - {str(scratch.shared_root())} == {
        str(place / "resolve" / "conf"), str(place / "wrappers"), str(place / "ws"),
    }  # fmt: skip


def test_a_root_in_another_root_is_not_bound_by_itself(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    words = profile(SandboxPolicy("workspace-write", str(tmp_path), extra_roots=(str(inner),)), cwd="/")

    assert pairs(words, "--bind") == [str(tmp_path)]


# -- a runner of the operator's own -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        {"runnerCommand": ["run"]},
        {"runnerFailureSignatures": ["x"]},
        {"runnerCommand": [" "], "runnerFailureSignatures": ["x"]},
        {"runnerCommand": ["run"], "runnerFailureSignatures": [" "]},
        {"runnerCommand": ["run"], "runnerFailureSignatures": ["a\nb"]},
        {"probeTimeoutMs": 0},
    ],
)
@aio
async def test_half_of_a_runner_is_refused(config: dict[str, Any]) -> None:
    ctx = Context()
    await ctx.plugin(subprocess)
    with pytest.raises(ValidationError):
        await ctx.plugin(sandbox, config)
    await ctx.dispose()


@aio
async def test_a_runner_gets_the_arguments_of_bubblewrap_after_its_own() -> None:
    ctx = Context()
    await ctx.plugin(subprocess)
    await ctx.plugin(sandbox, {"runnerCommand": ["env", "-u", "X"], "runnerFailureSignatures": ["Runner: "]})
    service = ctx.get(SANDBOX)
    assert service is not None

    confined = await service.confine(["true", "-x"], WRITE, cwd="/", status_fd=3)

    assert confined.argv == ("env", "-u", "X", *profile(WRITE, cwd="/"), "--", "true", "-x")
    assert (confined.enforcement, confined.status) == ("full", "none")
    assert confined.failure_signatures == ("runner: ",) and not confined.dies_with_parent
    assert [report.enforcement for report in await service.backends()] == ["full"]
    await ctx.dispose()


@aio
async def test_a_runner_that_is_not_there_is_refused() -> None:
    ctx = Context()
    await ctx.plugin(subprocess)
    await ctx.plugin(sandbox, {"runnerCommand": ["no-such-runner"], "runnerFailureSignatures": ["x"]})
    service = ctx.get(SANDBOX)
    assert service is not None

    with pytest.raises(SandboxUnavailable, match="no-such-runner: there is no such program"):
        await service.require("read-only")
    await ctx.dispose()


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("bwrap") is None, reason="bwrap is not installed")
def test_on_linux_bubblewrap_comes_before_landlock() -> None:
    assert [backend.name for backend in sandbox.backends_of(Config())] == ["bwrap", "landlock"]
