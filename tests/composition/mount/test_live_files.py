"""Files that are edited while their rows are mounted: what is read again, what is said, what stays."""

import asyncio
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsh.composition.compose import compose
from dsh.composition.mount.event import CONFIG_UPDATE_FAILED, UpdateFailed
from dsh.composition.mount.loader import Facts, Loader
from dsh.composition.mount.reload import Reload, fixed_files
from dsh.composition.mount.watch import Watch, fingerprint
from dsh.errors import CompositionError
from dsh.kernel import Context
from tests.aio import aio
from tests.composition.layers import write

SEEN: list[str] = []
CODE = """
from tests.composition.mount.test_live_files import SEEN
def apply(ctx, config):
    row = ctx.fiber.entry.id
    SEEN.append(f"+{row} {config}")
    return lambda: SEEN.append(f"-{row}")
"""
SLOW = """
import asyncio
from tests.composition.mount.test_live_files import SEEN
async def apply(ctx, config):
    for _ in range(5): await asyncio.sleep(0)
    SEEN.append(f"+slow {config}")
"""
ROWS = "- insert: [{id: a, name: ./plain.py, config: 0}, {id: b, name: ./plain.py, config: 0}]\n"


class Live:
    """A mounted profile of the test's own, whose files are read again when the test says so."""

    def __init__(self, home: Path) -> None:
        self.home, self.folder = home, home / "profiles/mine"
        self.profile, self.patch = self.folder / "dsh.patch.yml", home / "dsh.patch.yml"
        write(self.folder / "profile.yml", "bundles: []")
        write(self.folder / "plain.py", textwrap.dedent(CODE))
        write(self.folder / "slow.py", textwrap.dedent(SLOW))
        write(self.profile, ROWS)
        self.overlay = write(home / "overlay.yml", "- {id: b, config: 9}\n")
        self.said: list[str] = []

    async def __aenter__(self) -> "Live":
        self.root = Context()
        self.loader = Loader(self.root, Facts(self.home, "mine", "/ws", {}))
        made = compose("mine", [self.overlay], self.home, environ={})
        await self.loader.load(made)
        self.loader.require_active()
        fixed = fixed_files(made.layers, self.folder / "profile.yml")
        self.reload = Reload(
            self.loader,
            self.home,
            say=self.said.append,
            fixed=fixed,
            environ={},
            poll_s=0.01,
            quiet_s=0.001,
        )
        await self.reload.refresh()
        SEEN.clear()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.root.dispose()

    async def edited(self, *paths: Path) -> list[str]:
        """The files are read again; what the rows did."""
        SEEN.clear()
        self.said.clear()
        self.reload.touch(paths)
        await self.reload.refresh()
        return SEEN


@pytest.fixture(autouse=True)
def live(tmp_path: Path) -> Iterator[Live]:
    SEEN.clear()
    before = set(sys.modules)
    yield Live(tmp_path)
    for name in set(sys.modules) - before:
        if name.startswith("_dsh_file_"):
            del sys.modules[name]


@aio
async def test_add_fail_recover_and_delete(live: Live) -> None:
    heard: list[UpdateFailed] = []
    async with live:
        live.root.on(CONFIG_UPDATE_FAILED, heard.append)
        assert live.said == []
        write(live.patch, "- {id: a, config: 1}\n")
        assert await live.edited(live.patch) == ["-a", "+a 1"]
        assert live.said == [f"dsh: {live.patch}: applied; changed rows: a"]
        write(live.patch, "- {id: a, config: 1\n")
        assert await live.edited(live.patch) == []
        [said] = live.said
        assert said.startswith(
            f"dsh: {live.patch}: not applied, the rows run on as before: {live.patch}:2:1: "
        )
        [failed] = heard
        assert (failed.filename, str(failed.error) in said) == (str(live.patch), True)
        write(live.patch, "- {id: a, config: 2}\n- {id: ghost, disabled: true}\n")
        assert await live.edited(live.patch) == ["-a", "+a 2"]
        assert live.said[0].startswith(f'dsh: [{live.patch}] patch: entry "ghost" not found')
        live.patch.unlink()
        assert await live.edited(live.patch) == ["-a", "+a 0"]
        live.profile.unlink()
        assert sorted(await live.edited(live.profile)) == ["-a", "-b"]


@aio
async def test_higher_layers_stay_above_what_is_edited_and_fixed_files_are_only_mentioned(live: Live) -> None:
    async with live:
        write(live.patch, "- {id: b, config: 1}\n")
        write(live.overlay, "- {id: b, config: 5}\n")
        assert await live.edited(live.patch, live.overlay) == []
        assert live.said == [f"dsh: {live.overlay} has changed; it takes effect with the next start"]
        manifest = write(live.folder / "profile.yml", "bundles: [nope]")
        await live.edited(manifest)
        assert live.said == [f"dsh: {manifest} has changed; it takes effect with the next start"]


@aio
async def test_what_was_tried_is_not_tried_again_until_it_says_something_else(live: Live) -> None:
    async with live:
        write(live.patch, "- {id: a, config: 1\n")
        await live.edited(live.patch)
        await live.edited(live.patch)
        assert live.said == []
        write(live.patch, "# nothing\n")
        await live.edited(live.patch)
        assert (live.said, SEEN) == ([], [])


@aio
async def test_a_file_that_is_emptied_or_gone_while_it_is_written_is_never_taken_for_no_file(
    live: Live,
) -> None:
    async with live:
        live.reload = Reload(
            live.loader, live.home, say=live.said.append, environ={}, poll_s=0.01, quiet_s=0.02
        )
        write(live.patch, "- {id: a, config: 1}\n")
        assert await live.edited(live.patch) == ["-a", "+a 1"]
        for spoil in (
            lambda: live.patch.write_text(""),
            live.patch.unlink,
            lambda: live.patch.write_text("- {"),
        ):
            spoil()
            editing = asyncio.ensure_future(live.edited(live.patch))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            write(live.patch, "- {id: a, config: 1}\n# saved\n")
            assert await editing == []
            assert live.said == []
            write(live.patch, "- {id: a, config: 1}\n")
            await live.edited(live.patch)


@aio
async def test_a_file_that_is_written_without_end_is_taken_as_it_is(live: Live) -> None:
    async with live:

        async def scribble() -> None:
            for n in range(1_000_000):
                write(live.patch, f"- {{id: a, config: {n}}}\n")
                await asyncio.sleep(0)

        writing = asyncio.ensure_future(scribble())
        await asyncio.sleep(0)
        live.reload.touch([live.patch])
        await live.reload.refresh()
        writing.cancel()
        assert SEEN[0] == "-a"


@aio
async def test_an_edit_after_which_the_start_would_be_refused_is_refused(live: Live) -> None:
    def no_app() -> None:
        if not live.loader.entries:
            raise CompositionError("nothing left", hint="add a row")

    async with live:
        live.loader.require_more = no_app
        live.profile.unlink()
        assert sorted(await live.edited(live.profile)) == ["+a 0", "+b 9", "-a", "-b"]
        told = "not applied, the rows are as before, but restarted: a, b: nothing left (add a row)"
        assert live.said[-1] == f"dsh: {live.profile}: {told}"


@aio
async def test_only_rows_that_ran_before_and_after_are_called_restarted(live: Live) -> None:
    async with live:
        write(live.folder / "bad.py", "def apply(ctx): raise ValueError('broke')\n")
        bad = "{id: new, name: ./profiles/mine/plain.py}, {id: bad, name: ./profiles/mine/bad.py}"
        write(live.patch, f"- insert: [{bad}]\n")
        assert await live.edited(live.patch) == ["+new None", "-new"]
        assert live.said[0].startswith(f"dsh: {live.patch}: not applied, the rows run on as before: 1 entry ")
        write(live.patch, f"- {{id: a, config: 1}}\n- insert: [{bad}]\n")
        await live.edited(live.patch)
        assert live.said[0].startswith(
            f"dsh: {live.patch}: not applied, the rows are as before, but restarted: a: 1 entry "
        )


@aio
async def test_an_edit_that_cannot_be_put_back_does_not_say_that_all_is_as_before(live: Live) -> None:
    async with live:
        code = "    if STARTS: raise ValueError(config)\n    STARTS.append(config)\n"
        write(live.folder / "once.py", f"STARTS = []\ndef apply(ctx, config):\n{code}")
        write(live.patch, "- insert: [{id: once, name: ./profiles/mine/once.py, config: 0}]\n")
        await live.edited(live.patch)
        write(live.patch, "- insert: [{id: once, name: ./profiles/mine/once.py, config: 1}]\n")
        await live.edited(live.patch)
        assert live.said[0].startswith(
            f"dsh: {live.patch}: not applied, and not all rows could be put back: failed to rollback loader "
            "entry once "
        )


@aio
async def test_an_edit_that_is_refused_says_when_it_takes_effect(live: Live) -> None:
    async with live:
        held = live.loader.resolve("a").fiber
        assert held is not None
        held.hold("a is busy")
        write(live.patch, "- {id: a, config: 1}\n")
        assert await live.edited(live.patch) == []
        assert live.said == [
            f"dsh: {live.patch}: not applied: a (./plain.py) cannot change now: a is busy; "
            "it takes effect with the next start"
        ]


@aio
async def test_fifty_edits_while_one_is_applied_end_at_the_last_and_never_overlap(live: Live) -> None:
    async with live:
        write(live.patch, "- insert: [{id: s, name: ./profiles/mine/slow.py, config: -1}]\n")
        live.reload.touch([live.patch])
        running = asyncio.ensure_future(live.reload.refresh())
        for n in range(50):
            write(live.patch, f"- insert: [{{id: s, name: ./profiles/mine/slow.py, config: {n}}}]\n")
            live.reload.touch([live.patch])
            await asyncio.sleep(0)
        await running
        assert SEEN[-1] == "+slow 49"
        assert len(SEEN) < 25
        row = live.loader.resolve("s").row
        assert row.config == 49


@aio
async def test_the_file_of_an_include_is_live_too(live: Live) -> None:
    async with live:
        path = write(live.home / "more.yml", "- {id: x, name: ./profiles/mine/plain.py}")
        write(live.patch, "- insert: [{id: i, name: cordis:include, config: {path: more.yml}}]\n")
        assert await live.edited(live.patch) == ["+i:x None"]
        write(path, "- {id: x, name: ./profiles/mine/plain.py, config: 1}")
        assert await live.edited(path) == ["-i:x", "+i:x 1"]
        assert live.said == [f"dsh: {path}: applied; changed rows: i:x"]


@aio
async def test_a_run_follows_its_files_until_it_is_cancelled(live: Live) -> None:
    async with live:
        running = asyncio.ensure_future(live.reload.run())
        await asyncio.sleep(0.05)
        write(live.patch, "- {id: a, config: 7}\n")
        async with asyncio.timeout(20):
            while live.loader.resolve("a").row.config != 7:
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait((running,))


@aio
async def test_changes_are_seen_by_path_whatever_happens_to_file_and_folder(tmp_path: Path) -> None:
    told: list[Path] = []
    path, other = tmp_path / "deep/er/file.yml", tmp_path / "other.yml"
    watch = Watch([path, other], told.extend)

    def seen() -> list[Path]:
        told.clear()
        watch.look()
        return list(told)

    assert seen() == []
    write(path, "1")
    assert seen() == [path]
    os.utime(path, ns=(1, 1))
    assert seen() == [path]
    assert seen() == []
    replaced = write(tmp_path / "new", "2")
    os.utime(replaced, ns=(1, 1))
    replaced.replace(path)
    assert seen() == [path]
    path.unlink()
    assert seen() == [path]
    path.parent.rmdir()
    path.parent.symlink_to(tmp_path)
    target = write(tmp_path / "file.yml", "3")
    os.utime(target, ns=(1, 1))
    assert seen() == [path]
    watch.watch([other])
    target.unlink()
    assert seen() == []


def test_a_file_changed_a_moment_ago_never_looks_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "f", "x")
    os.utime(path, ns=(2**62, 2**62))
    assert fingerprint(path) == fingerprint(path)
    os.utime(path)
    assert fingerprint(path) != fingerprint(path) or fingerprint(path) is None
    assert fingerprint(tmp_path / "absent") is None
    assert fingerprint(Path("a\0b")) is None
