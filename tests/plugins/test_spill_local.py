"""Row `spill-local`: where long texts are kept, how private, how long, and how much of them."""

import asyncio
import hashlib
import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities import scratch
from dsh.capabilities.spill import SPILL_STORE, Spilled, SpillStore
from dsh.errors import CompositionError
from dsh.kernel import Context, Fiber
from dsh.plugins import spill_local
from dsh.plugins.spill_local import encoded
from dsh.session.store import SESSIONS, SessionStore
from tests.aio import aio


async def mounted(**config: Any) -> tuple[Context, SpillStore]:
    ctx = Context()
    SessionStore(ctx)
    await ctx.plugin(spill_local, config)
    return ctx, ctx.use(SPILL_STORE)


async def kept(store: SpillStore, text: str, *, session: str = "s", name: str = "t.txt") -> Spilled:
    return await store.save(store.locate(session, name), session, text)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def live(ctx: Context, name: str) -> None:
    ctx.use(SESSIONS).create(name)


async def owning(ctx: Context, name: str) -> Fiber:
    """A row that owns a session: the session ends with it."""

    def apply(inner: Context) -> None:
        live(inner, name)

    fiber = ctx.plugin(apply, name="owner")
    await fiber
    return fiber


@aio
async def test_a_text_is_kept_whole_in_a_private_file_of_its_session() -> None:
    ctx, store = await mounted()
    spilled = await kept(store, "漢 and more", session="session-1", name="bash.txt")

    path = Path(spilled.locator)
    assert path.read_text() == "漢 and more"
    assert spilled.size_bytes == 12
    assert "`read`" in spilled.retrieval_hint
    assert re.fullmatch("[0-9a-f]{12}-bash.txt", path.name)
    assert path.parent.name == "session-" + hashlib.sha256(b"session-1").hexdigest()[:12]
    assert path.parent.parent.name.startswith("dsh-spill-")
    assert (mode(path), mode(path.parent), mode(path.parent.parent)) == (0o600, 0o700, 0o700)
    await ctx.dispose()


@aio
async def test_a_place_takes_no_room_and_two_are_never_the_same() -> None:
    ctx, store = await mounted()
    first, second = store.locate("s", "t.txt"), store.locate("s", "t.txt")

    assert first.locator != second.locator
    assert first.size_bytes == 0
    assert not Path(first.locator).parent.exists()
    await ctx.dispose()


@aio
async def test_the_files_of_a_session_go_with_it_and_those_of_others_stay() -> None:
    ctx, store = await mounted()
    live(ctx, "other")
    owner = await owning(ctx, "mine")
    mine, other = [Path((await kept(store, "x", session=name)).locator) for name in ("mine", "other")]

    await owner.dispose()

    assert not mine.parent.exists()
    assert other.exists()
    await ctx.dispose()


@aio
async def test_the_texts_of_two_programs_in_one_process_go_with_their_own() -> None:
    (ctx, store), (other, theirs) = await mounted(), await mounted()
    path, stays = [Path((await kept(one, "x")).locator) for one in (store, theirs)]

    await ctx.dispose()

    assert not path.exists()
    assert stays.read_text() == "x"
    await other.dispose()


@aio
async def test_confined_commands_of_every_session_may_read_what_is_kept() -> None:
    ctx, store = await mounted()
    path = Path((await kept(store, "x")).locator)

    assert path.is_relative_to(scratch.shared_folder("spill"))
    await ctx.dispose()


@aio
async def test_the_temporary_folder_goes_at_the_end() -> None:
    ctx, store = await mounted()
    path = Path((await kept(store, "x")).locator)

    await ctx.dispose()

    assert not path.parent.parent.exists()


@aio
async def test_a_root_of_the_users_keeps_the_files(tmp_path: Path) -> None:
    root = tmp_path / "a" / "b"
    ctx, store = await mounted(root=str(root))
    live(ctx, "s")
    path = Path((await kept(store, "x")).locator)

    await ctx.dispose()

    assert path.read_text() == "x"
    assert path.parent.parent == root


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@aio
async def test_a_temporary_folder_that_was_cleaned_away_is_made_anew() -> None:
    ctx, store = await mounted()
    path = Path((await kept(store, "x")).locator)
    held = open_files()
    path.unlink()
    path.parent.rmdir()
    path.parent.parent.rmdir()

    again = Path((await kept(store, "y")).locator)
    assert again.read_text() == "y"
    assert stat.S_IMODE(again.parent.parent.stat().st_mode) == 0o700
    await ctx.dispose()
    assert open_files() == held


@aio
async def test_the_oldest_texts_of_a_session_make_room(tmp_path: Path) -> None:
    ctx, store = await mounted(root=str(tmp_path), maxSessionBytes=10)
    other = Path((await kept(store, "12345678", session="other")).locator)
    paths = [Path((await kept(store, "1234")).locator) for _ in range(3)]

    assert [path.exists() for path in paths] == [False, True, True]
    assert other.exists()
    await ctx.dispose()


@aio
async def test_what_an_earlier_run_kept_counts_and_goes_first(tmp_path: Path) -> None:
    ctx, store = await mounted(root=str(tmp_path), maxSessionBytes=10)
    old = Path((await kept(store, "12345678")).locator)
    await ctx.dispose()

    ctx, store = await mounted(root=str(tmp_path), maxSessionBytes=10)
    new = Path((await kept(store, "1234")).locator)

    assert (old.exists(), new.exists()) == (False, True)
    await ctx.dispose()


@aio
async def test_a_text_beyond_the_bound_is_refused_and_nothing_goes_for_it(tmp_path: Path) -> None:
    ctx, store = await mounted(root=str(tmp_path), maxSessionBytes=10)
    path = Path((await kept(store, "1234567890")).locator)

    with pytest.raises(OSError, match="11 bytes are more than a session may keep"):
        await kept(store, "12345678901")

    assert list(tmp_path.glob("*/*")) == [path]
    await ctx.dispose()


@aio
async def test_nothing_is_left_of_a_text_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    ctx, store = await mounted(root=str(blocked))

    with pytest.raises(OSError, match="file"):
        await kept(store, "x")

    await ctx.dispose()


@aio
async def test_a_place_that_is_taken_is_never_written_over(tmp_path: Path) -> None:
    ctx, store = await mounted(root=str(tmp_path))
    place = store.locate("s", "t.txt")
    target = tmp_path / "target"
    target.write_text("precious")
    Path(place.locator).parent.mkdir()
    Path(place.locator).symlink_to(target)

    with pytest.raises(FileExistsError):
        await store.save(place, "s", "x")

    assert target.read_text() == "precious"
    await ctx.dispose()


@aio
async def test_a_text_that_is_written_while_its_session_ends_does_not_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ctx, store = await mounted()
    owner = await owning(ctx, "s")
    place = store.locate("s", "t.txt")
    has_ended, write = threading.Event(), spill_local._write

    def late(path: Path, data: bytes) -> None:
        has_ended.wait(10)
        write(path, data)

    monkeypatch.setattr(spill_local, "_write", late)
    saving = asyncio.ensure_future(store.save(place, "s", "x"))
    await asyncio.sleep(0)
    await owner.dispose()
    has_ended.set()
    with pytest.raises(OSError, match="ended"):
        await saving

    assert not Path(place.locator).exists()
    await ctx.dispose()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bash.txt", "bash.txt"),
        ("A-z_0.9", "A-z_0.9"),
        ("", "~"),
        (".", "~002E"),
        ("..", "~002E~002E"),
        ("../x", "..~002Fx"),
        ("~", "~007E"),
        ("é", "~00E9"),
        ("🙂", "~D83D~DE42"),
        ("\ud800", "~D800"),
        ("x" * 300, "x" * 200),
    ],
)
def test_names_become_file_names(name: str, expected: str) -> None:
    assert encoded(name) == expected


@pytest.mark.parametrize("config", [{"root": ""}, {"maxSessionBytes": 0}, {"maxSessionBytes": 1.5}, {"x": 1}])
@aio
async def test_wrong_options_are_refused_at_the_load(config: dict[str, Any]) -> None:
    ctx = Context()
    with pytest.raises(CompositionError):
        await ctx.plugin(spill_local, config)
    await ctx.dispose()


KEEPING = """
import asyncio, os, signal, sys
from dsh.kernel import Context
from dsh.plugins import spill_local
from dsh.session.store import SessionStore
from dsh.capabilities import scratch
from dsh.capabilities.spill import SPILL_STORE

async def main():
    ctx = Context()
    SessionStore(ctx)
    await ctx.plugin(spill_local, {})
    store = ctx.use(SPILL_STORE)
    kept = await store.save(store.locate("s", "t.txt"), "s", "words")
    print(kept.locator, flush=True)
    sys.stdin.read()
    if "killed" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def keeping(folder: Path, *words: str) -> tuple["subprocess.Popen[str]", Path]:
    """A program that keeps a text until its input ends, and where the text is."""
    program = subprocess.Popen(
        [sys.executable, "-c", KEEPING, *words],
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    return program, Path(program.stdout.readline().strip())


def test_what_a_killed_program_kept_goes_with_the_next_and_that_of_a_live_one_stays(tmp_path: Path) -> None:
    live, stays = keeping(tmp_path)
    killed, goes = keeping(tmp_path, "killed")
    assert goes.read_text() == "words"
    killed.communicate()
    assert goes.exists()

    following, own = keeping(tmp_path)

    assert not goes.exists()
    assert (stays.read_text(), own.read_text()) == ("words", "words")
    for program in (live, following):
        program.communicate()
    assert list(tmp_path.iterdir()) == []
