"""What goes on working within the walls, in every backend, as root and as another user."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dsh.capabilities import scratch
from dsh.capabilities.sandbox import SANDBOX_POLICY, SandboxMode, SandboxPolicy, SandboxUnavailable
from dsh.capabilities.shell import SHELL, ShellRequest
from dsh.capabilities.subprocess import SpawnError
from tests.aio import aio
from tests.contract.sandbox.place import BACKENDS, USERS, place, user, walls
from tests.process import is_gone

pytestmark = [pytest.mark.parametrize("who", USERS), pytest.mark.parametrize("backend", BACKENDS)]
MODES: tuple[SandboxMode, ...] = ("read-only", "workspace-write")


@pytest.mark.parametrize(
    "command",
    [
        "echo x > new && mkdir d && mv new d/ && rm -r d",
        "cat ../file | grep -q theirs",
        "echo x > /dev/null && head -c 4 /dev/urandom | wc -c && ! echo x 2> /dev/null > /dev/full",
        'f=$(mktemp) && [ "${f#$TMPDIR/}" != "$f" ] && [ "$TMP$TEMP" = "$TMPDIR$TMPDIR" ]',
        "echo x > /dev/shm/dsh-$$ && rm /dev/shm/dsh-$$",
        "getent hosts localhost",
        "cat /etc/resolv.conf > /dev/null || [ ! -e /etc/resolv.conf ]",
        "id -u && ls -d / /etc /usr/bin && [ -r /proc/self/status ]",
        "bash -c 'exit 3'; [ $? = 3 ]",
        "echo a | tee /dev/stderr > /dev/stdout",
        "[ ! -t 0 ] && cat",
        "chmod 700 . && touch -d @5 x && ln x y && ln -s x z && mkfifo f && rm x y z f",
        "{ bash -c 'echo one; exec sleep 0.05' & } ; wait && echo two",
    ],
)
@aio
async def test_what_work_needs_works(
    command: str, who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user(who, monkeypatch), place() as here:
        async with walls(backend, monkeypatch, workspaceRoot=str(here.ws)) as shell:
            result = await shell.run(command, str(here.ws))

    assert (result.exit_code, result.stderr.text.replace("a\n", "")) == (0, ""), result
    assert result.sandbox is not None and not result.sandbox.denied


@aio
async def test_a_denial_names_the_mode_and_success_is_none(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user(who, monkeypatch), place() as here:
        async with walls(backend, monkeypatch, workspaceRoot=str(here.ws)) as shell:
            for mode in MODES:
                outside = await shell.run("echo x > ../new", str(here.ws), mode)
                inside = await shell.run("echo x > new", str(here.ws), mode)
                told = await shell.run(
                    "echo 'Read-only file system: permission denied'; exit 1", str(here.ws)
                )
                assert outside.sandbox is not None and inside.sandbox is not None and told.sandbox is not None
                assert (outside.sandbox.mode, outside.sandbox.denied) == (mode, True)
                assert inside.sandbox.denied == (mode == "read-only")
                assert not told.sandbox.denied  # standard output proves nothing
                assert outside.sandbox.enforcement == ("full" if backend == "bwrap" else "partial")


@aio
async def test_the_temporary_folder_lasts_and_is_the_only_part_of_tmp(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user(who, monkeypatch), place() as here:
        async with walls(backend, monkeypatch, workspaceRoot=str(here.ws)) as shell:
            await shell.run("echo kept > $TMPDIR/note", str(here.ws))
            later = await shell.run("cat $TMPDIR/note; echo x > $TMPDIR/../escaped", str(here.ws))
            folder = scratch.session_folder("")
            assert (folder / "note").read_text() == "kept\n"
            assert not (folder.parent / "escaped").exists()
            read_only = await shell.run(
                "cat $TMPDIR/note && echo x > $TMPDIR/note", str(here.ws), "read-only"
            )

    assert later.stdout.text == "kept\n" and later.exit_code != 0
    assert read_only.stdout.text == "kept\n" and read_only.exit_code != 0


@aio
async def test_what_trusted_code_spilled_can_be_read_and_not_changed(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user(who, monkeypatch), place() as here:
        async with walls(backend, monkeypatch, workspaceRoot=str(here.ws)) as shell:
            spilled = scratch.shared_folder("spill") / "out"
            spilled.write_text("whole")
            for mode in MODES:
                result = await shell.run(f"cat {spilled} && echo x > {spilled}", str(here.ws), mode)
                assert result.stdout.text == "whole" and result.exit_code != 0
            assert spilled.read_text() == "whole"


@aio
async def test_a_long_stream_lies_in_a_file_that_the_next_command_opens(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user(who, monkeypatch), place() as here:
        async with walls(backend, monkeypatch, workspaceRoot=str(here.ws)) as shell:
            first = await shell.run("seq 100000", str(here.ws))
            assert first.stdout.spill_path is not None
            second = await shell.run(f"wc -l < {first.stdout.spill_path}", str(here.ws))

    assert second.stdout.text.strip() == "100000"


@aio
async def test_the_environment_is_scrubbed_within_walls_too(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "hush")
    with user(who, monkeypatch), place() as here:
        monkeypatch.setenv("MY_API_KEY", "hush")
        async with walls(backend, monkeypatch, workspaceRoot=str(here.ws)) as shell:
            result = await shell.run("cat /proc/self/environ /proc/$PPID/environ; env", str(here.ws))

    assert "hush" not in result.stdout.text


@aio
async def test_the_command_has_no_descriptor_but_the_three(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that could write into the status pipe could tell lies about its end."""
    with user(who, monkeypatch), place() as here:
        async with walls(backend, monkeypatch, workspaceRoot=str(here.ws)) as shell:
            result = await shell.run("ls /proc/$$/fd; true", str(here.ws))

    assert result.stdout.text.split() == ["0", "1", "2"]


# -- where the workspace lies -----------------------------------------------------------------------------


async def _works_at(workspace: str, backend: str, monkeypatch: pytest.MonkeyPatch, outside: Path) -> None:
    async with walls(backend, monkeypatch, workspaceRoot=workspace) as shell:
        inside = await shell.run("echo x > dsh-new && cat dsh-new && rm dsh-new && pwd -P", workspace)
        away = await shell.run(f"echo x > {outside}/dsh-new", workspace)
        for_reading = await shell.run("ls > /dev/null && echo x > dsh-new", workspace, "read-only")
    assert inside.stdout.text == f"x\n{os.path.realpath(workspace)}\n", inside.stderr.text
    assert not (outside / "dsh-new").exists()
    assert away.exit_code != 0 or outside.is_relative_to("/dev")  # bwrap's own, and gone with the command
    assert for_reading.exit_code != 0 and not Path(workspace, "dsh-new").exists()


@pytest.mark.parametrize("base", ["/tmp", "/var/tmp", "/dev/shm"])
@aio
async def test_the_workspace_may_lie_in_a_place_that_is_hidden(
    base: str, who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user(who, monkeypatch), place(base) as here:
        await _works_at(str(here.ws), backend, monkeypatch, here.outside)


@aio
async def test_the_workspace_may_be_given_through_a_link(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user(who, monkeypatch), place() as here:
        alias = here.outside / "alias"
        alias.symlink_to("ws")
        await _works_at(str(alias), backend, monkeypatch, Path("/etc"))


@aio
async def test_the_workspace_may_be_the_home_directory(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user(who, monkeypatch), place() as here:
        monkeypatch.setenv("HOME", str(here.ws))
        await _works_at(str(here.ws), backend, monkeypatch, here.outside)


@aio
async def test_the_workspace_may_be_everything(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user(who, monkeypatch), place() as here:
        async with walls(backend, monkeypatch, workspaceRoot="/") as shell:
            result = await shell.run(f"echo x > {here.outside}/new && echo x > $TMPDIR/y", "/")
            assert (here.outside / "new").exists(), result.stderr.text
            denied = await shell.run(f"echo y > {here.outside}/new", "/", "read-only")
            kernel = await shell.run("v=$(< /proc/sys/vm/swappiness); echo $v > /proc/sys/vm/swappiness", "/")

    assert result.exit_code == 0 and denied.exit_code != 0
    if backend == "bwrap" or who == "nobody":
        assert kernel.exit_code != 0


@pytest.mark.parametrize(
    ("link", "target"),
    [
        (".dsh", "/etc"),
        (".dsh", "settings"),
        (".dsh", "nowhere"),
        (".dsh", ".dsh"),
        (".git", "../repository"),
        (".git", "repository"),
    ],
)
@aio
async def test_links_in_the_place_of_what_is_protected_break_nothing(
    link: str, target: str, who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user(who, monkeypatch), place() as here:
        for folder in (here.ws / "repository", here.outside / "repository"):
            (folder / "hooks").mkdir(parents=True)
        (here.ws / "settings").mkdir()
        (here.ws / link).symlink_to(target)
        async with walls(backend, monkeypatch, workspaceRoot=str(here.ws)) as shell:
            result = await shell.run(
                f"echo x > new; echo x > {link}/hooks/x; echo x > {link}/y; echo x > {here.outside}/z",
                str(here.ws),
            )
        assert (here.ws / "new").exists(), result.stderr.text
        assert not (here.outside / "z").exists() and not Path("/etc/y").exists()
        assert not (here.outside / "repository" / "hooks" / "x").exists()
        if backend == "bwrap":
            assert not (here.ws / "settings" / "y").exists()
            assert not (here.ws / "repository" / "hooks" / "x").exists()


@aio
async def test_a_working_tree_of_git_can_be_read_and_its_files_changed(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What git keeps for a tree lies in the other repository: outside, unless it is an extra root."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    with user(who, monkeypatch), place() as here:
        monkeypatch.setenv("HOME", str(here.ws))
        main, tree = here.outside / "main", here.ws / "tree"
        for words in (
            ["init", "-q", str(main)],
            ["-C", str(main), "commit", "-q", "--allow-empty", "-m", "one"],
            ["-C", str(main), "worktree", "add", "-q", str(tree)],
        ):
            subprocess.run([*git, *words], check=True, capture_output=True)
        commit = f"{' '.join(git)} commit -q --allow-empty -m two"
        async with walls(backend, monkeypatch, workspaceRoot=str(tree)) as shell:
            seen = await shell.run("echo x > new && git status --porcelain", str(tree))
            denied = await shell.run(commit, str(tree))
        roots = {"workspaceRoot": str(tree), "extraRoots": [str(main)]}
        async with walls(backend, monkeypatch, **roots) as shell:
            done = await shell.run(commit, str(tree))

    assert seen.stdout.text == "?? new\n"
    assert denied.exit_code != 0 and denied.sandbox is not None and denied.sandbox.denied
    assert done.exit_code == 0, done.stderr.text


@aio
async def test_a_working_directory_that_is_gone_is_named(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user(who, monkeypatch), place() as here:
        async with walls(backend, monkeypatch, workspaceRoot=str(here.ws)) as shell:
            shutil.rmtree(here.ws)
            with pytest.raises(SpawnError, match=f"{here.ws}' is not a directory"):
                await shell.run("true", str(here.ws))


@aio
async def test_a_working_directory_that_cannot_be_seen_is_named_and_is_not_the_sandboxs_fault(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user(who, monkeypatch), place() as here, place("/tmp") as hidden:
        async with walls(backend, monkeypatch, workspaceRoot=str(here.ws)) as shell:
            if backend == "landlock":  # it hides nothing
                assert (await shell.run("pwd", str(hidden.ws))).stdout.text == f"{hidden.ws}\n"
                return
            with pytest.raises(SpawnError, match=f"cannot see '{hidden.ws}'; use the workspace or"):
                await shell.run("true", str(hidden.ws))
            job = await shell.start("true", str(hidden.ws))
            await job.done

    assert job.status == "failed" and job.failure is not None and "cannot see" in job.failure


@aio
async def test_a_missing_bash_is_not_the_sandboxs_fault(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user(who, monkeypatch), place() as here:
        async with walls(backend, monkeypatch, workspaceRoot=str(here.ws)) as shell:
            await shell.run("true", str(here.ws))
            if backend == "bwrap":
                (here.ws / "bwrap").symlink_to(shutil.which("bwrap") or "")
            monkeypatch.setenv("PATH", str(here.ws))
            with pytest.raises(SpawnError, match="there is no such program on PATH"):
                await shell.run("true", str(here.ws))
            job = await shell.start("true", str(here.ws))
            await job.done

    assert (job.status, job.failure) == ("failed", "cannot start 'bash': there is no such program on PATH")


@aio
async def test_the_standard_library_may_be_hidden(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher reads none of it once it is behind the walls."""
    with user(who, monkeypatch), place() as here:
        asked = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            "import os; print(os.path.dirname(os.path.realpath(os.__file__)))",
        ]
        library = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
        async with walls(backend, monkeypatch, workspaceRoot=str(here.ws), hiddenPaths=[library]) as shell:
            result = await shell.run(f"cat {library}/os.py > /dev/null || echo ran", str(here.ws))

    assert result.stdout.text == "ran\n", result.stderr.text


@aio
async def test_a_workspace_in_what_is_hidden_is_not_opened(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session may work elsewhere than the row says."""
    with user(who, monkeypatch), place() as here:
        (here.ws / "inner").mkdir()
        (here.ws / "inner" / "x").write_text("hush")
        policy = SandboxPolicy("workspace-write", str(here.ws / "inner"), hidden_paths=(str(here.ws),))
        async with walls(backend, monkeypatch, workspaceRoot=str(here.outside)) as shell:
            service = shell.ctx.get(SHELL)
            assert service is not None
            with pytest.raises((SandboxUnavailable, SpawnError), match="cannot"):
                await service.run(
                    ShellRequest(command="cat x", workdir=str(here.ws / "inner"), sandbox_policy=policy)
                )


@aio
async def test_extra_roots_are_open_and_what_is_hidden_in_them_is_not(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user(who, monkeypatch), place() as here:
        extra = here.outside / "extra"
        (extra / "hidden").mkdir(parents=True)
        (extra / "hidden" / "x").write_text("hush")
        policy = {"workspaceRoot": str(here.ws), "extraRoots": [str(extra), str(here.outside / "gone")]}
        async with walls(backend, monkeypatch, **policy) as shell:
            assert (await shell.run(f"echo x > {extra}/new", str(here.ws))).exit_code == 0
        async with walls(backend, monkeypatch, **policy, hiddenPaths=[str(extra / "hidden")]) as shell:
            if backend == "landlock":  # it cannot close a part of what it opens, and so it does not run it
                with pytest.raises(SandboxUnavailable, match="cannot hide"):
                    await shell.run("true", str(here.ws))
                return
            result = await shell.run(
                f"cat {extra}/hidden/x; ls {extra}/hidden; cat {extra}/new", str(here.ws)
            )

    assert "hush" not in result.stdout.text and result.stdout.text.endswith("x\n")


@pytest.mark.parametrize("key", ["hiddenPaths", "protectedPaths"])
@aio
async def test_what_lies_around_a_hidden_or_protected_path_cannot_be_moved_away(
    key: str, who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next command would find it under another name."""
    with user(who, monkeypatch), place() as here:
        folder = here.ws / "a" / "b"
        folder.mkdir(parents=True)
        (folder / "file").write_text("hush")
        (here.ws / "a" / "other").mkdir()
        policy = {"workspaceRoot": str(here.ws), key: [str(folder / "file")]}
        async with walls(backend, monkeypatch, **policy) as shell:
            if (
                backend == "landlock"
            ):  # it hides nothing in what it opens, so it refuses, and protects nothing
                with pytest.raises(SandboxUnavailable) if key == "hiddenPaths" else contextlib.nullcontext():
                    assert (await shell.run("mv a d", str(here.ws))).exit_code == 0
                return
            await shell.run("mv a/b a/c; mv a d; rm -rf a/b", str(here.ws))
            result = await shell.run(
                "cat */*/file; echo x | tee */*/file > /dev/null; echo y > a/b/y && mv a/other a/moved",
                str(here.ws),
            )

        assert (folder / "file").read_text() == "hush" and (folder / "y").exists()
        assert ("hush" in result.stdout.text) == (key == "protectedPaths")
        assert result.exit_code == 0


# -- how commands end -------------------------------------------------------------------------------------


@aio
async def test_what_is_left_in_the_background_is_told(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user(who, monkeypatch), place() as here:
        async with walls(backend, monkeypatch, workspaceRoot=str(here.ws)) as shell:
            left = await shell.run("sleep 200 > /dev/null 2>&1 & echo begun", str(here.ws))
            none = await shell.run("sleep 0.01 & wait; true | cat", str(here.ws))

    assert left.stdout.text == "begun\n" and left.exit_code == 0
    assert (left.ended_children, left.left_running) == (
        (True, False) if backend == "bwrap" else (False, True)
    )
    assert (none.ended_children, none.left_running) == (False, False)


@aio
async def test_what_bash_reads_at_its_start_is_read_once(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command's shell, not by one around it."""
    with user(who, monkeypatch), place() as here:
        (here.ws / "env").write_text("echo read\n")
        monkeypatch.setenv("BASH_ENV", str(here.ws / "env"))
        async with walls(backend, monkeypatch, workspaceRoot=str(here.ws)) as shell:
            result = await shell.run("echo ran", str(here.ws))

    assert result.stdout.text == "read\nran\n"


@pytest.mark.parametrize(("command", "code"), [("exit 7", 7), ("exit 125", 125), ("exit 255", 255)])
@aio
async def test_exit_codes_are_true(
    command: str, code: int, who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that a runner uses for its own failures, with words like its own."""
    said = "echo 'bwrap: landlock-run: failed' >&2"
    with user(who, monkeypatch), place() as here:
        async with walls(backend, monkeypatch, workspaceRoot=str(here.ws)) as shell:
            result = await shell.run(f"{said}; {command}", str(here.ws))

    assert result.exit_code == code and result.stderr.text == "bwrap: landlock-run: failed\n"


@aio
async def test_a_timeout_ends_the_command_and_its_children(
    who: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user(who, monkeypatch), place() as here:
        async with walls(backend, monkeypatch, workspaceRoot=str(here.ws)) as shell:
            policies, service = shell.ctx.get(SANDBOX_POLICY), shell.ctx.get(SHELL)
            assert policies is not None and service is not None
            mark = f"dsh-{here.number}"
            result = await service.run(
                ShellRequest(
                    command=f"exec -a {mark} sleep 300 & trap '' TERM; exec -a {mark} sleep 300",
                    workdir=str(here.ws),
                    sandbox_policy=policies.resolve(),
                    timeout_ms=300,
                )
            )
        running = [int(path.name) for path in Path("/proc").glob("[0-9]*") if mark in _command(path)]

    assert result.timed_out and result.exit_code is None
    assert all(is_gone(pid, 10) for pid in running)


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""
