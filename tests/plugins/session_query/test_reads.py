"""Exact reads: live sessions win, stored ones are read unchanged, every refusal has its own code."""

import asyncio
import shutil
from pathlib import Path

import pytest

from dsh.capabilities.session_query import Between, Containing, EventRecord, OneOf
from dsh.capabilities.session_query_error import SessionQueryError
from dsh.kernel import Cancelled, CancelToken
from dsh.persistence.service import PERSISTENCE
from dsh.persistence.view import LogView
from dsh.session.chunk_run import ChunkRun
from tests.aio import aio
from tests.plugins.session_query.kit import corpus, refused, said, turn


def ids(found: object) -> list[str]:
    return [one.header.id for one in found.sessions]  # type: ignore[attr-defined]


def logs(root: Path) -> list[Path]:
    return sorted(root.rglob("session.jsonl*"))


@aio
async def test_sessions_come_newest_first_then_by_id(tmp_path: Path) -> None:
    async with corpus(tmp_path) as it:
        await it.stored("b", created=5)
        await it.stored("a", created=5)
        await it.stored("new", created=9)
        it.live("live", created=7)
        found = await it.query.list()
        assert ids(found) == ["new", "live", "a", "b"]
        assert [one.source for one in found.sessions] == ["stored", "live", "stored", "stored"]
        assert found.problems == ()


@aio
async def test_a_live_session_hides_its_stored_copy() -> None:
    async with corpus(None) as it:
        session = it.live("one")
        turn(session, "hi")
        log = await it.query.read_log("one")
        assert (log.session.source, log.length) == ("live", session.length)
        assert ids(await it.query.list()) == ["one"]


@aio
async def test_a_live_session_that_is_stored_too_is_listed_once(tmp_path: Path) -> None:
    async with corpus(tmp_path) as it:
        session = it.live("one")
        turn(session, "hi")
        await it.store.flush(session)
        turn(session, "more")
        (found,) = (await it.query.list()).sessions
        assert found.source == "live"
        assert (await it.query.read_log("one")).length == session.length


@aio
async def test_what_is_read_does_not_grow_and_leaves_the_session_alone() -> None:
    async with corpus(None) as it:
        session = it.live("one")
        turn(session, "hi", chunks=3)
        log = await it.query.read_log("one")
        before = session.length
        turn(session, "more")
        assert log.length == before
        assert sum(len(e) if isinstance(e, ChunkRun) else 1 for e in log.entries) == before


@aio
async def test_a_live_session_with_another_header_than_its_stored_copy_is_a_conflict(tmp_path: Path) -> None:
    async with corpus(tmp_path / "a") as it:
        await it.stored("one", created=1, cwd="/srv/app")
        await it.stored("other", created=1)
    async with corpus(tmp_path / "b") as it:
        it.live("one", created=2, cwd="/srv/app")
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        found = await it.query.list()
        assert ids(found) == ["other"]
        ((place, code),) = [(one.place, one.code) for one in found.problems]
        assert (place, code) == ("one", "SOURCE_CONFLICT")
        with refused("SOURCE_CONFLICT"):
            await it.query.trace_lineage("one")
        shutil.rmtree(tmp_path / "b")


@aio
async def test_reading_a_stored_log_changes_no_byte_though_it_needs_repair(tmp_path: Path) -> None:
    async with corpus(tmp_path) as it:
        session = it.live("cut")
        session.append("turn/start", {"turn": 1})
        await it.store_away(session)
        (path,) = logs(tmp_path)
        before = path.read_bytes()
        log = await it.query.read_log("cut")
        assert [entry.type for entry in log.entries] == ["turn/start", "turn/end"]  # type: ignore[union-attr]
        assert path.read_bytes() == before


@aio
async def test_only_damage_is_damage(tmp_path: Path) -> None:
    async with corpus(tmp_path) as it:
        await it.stored("broken", "hello")
        await it.stored("whole")
        (path,) = (path for path in logs(tmp_path) if path.parent.name == "broken")
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data + b"garbage")
        with refused("CORRUPT_SESSION"):
            await it.query.read_log("broken")
        with refused("SESSION_NOT_FOUND"):
            await it.query.read_log("absent")
        titles = await it.query.titles(["broken", "whole", "absent"])
        assert [one.problem for one in titles] == ["CORRUPT_SESSION", None, "SESSION_NOT_FOUND"]


@aio
async def test_what_storage_refuses_otherwise_is_its_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with corpus(tmp_path) as it:
        await it.stored("one")

        async def fails(*args: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(it.ctx.use(PERSISTENCE), "inspect", fails)
        monkeypatch.setattr(it.ctx.use(PERSISTENCE), "list", fails)
        with refused("PERSISTENCE_FAILED"):
            await it.query.read_log("one")
        with refused("PERSISTENCE_FAILED"):
            await it.query.list()


@aio
async def test_a_cancelled_query_ends_with_the_very_reason(tmp_path: Path) -> None:
    async with corpus(tmp_path) as it:
        await it.stored("one")
        signal, reason = CancelToken(), object()
        signal.cancel(reason)
        for work in (
            it.query.list(signal=signal),
            it.query.read_log("one", signal=signal),
            it.query.titles(["one"], signal=signal),
        ):
            with pytest.raises(SessionQueryError) as told:
                await work
            assert told.value.code == "SESSION_QUERY_ABORTED"
            assert isinstance(told.value.__cause__, Cancelled)
            assert told.value.__cause__.reason is reason


@aio
async def test_a_query_is_given_up_when_its_signal_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with corpus(tmp_path) as it:
        await it.stored("one")
        gate = asyncio.Event()
        persistence = it.ctx.use(PERSISTENCE)
        inspect = persistence.inspect

        async def waits(session_id: str) -> LogView:
            await gate.wait()
            return await inspect(session_id)

        monkeypatch.setattr(persistence, "inspect", waits)
        signal = CancelToken()
        asyncio.get_running_loop().call_soon(signal.cancel, "enough")
        with refused("ABORTED"):
            await it.query.read_log("one", signal=signal)
        gate.set()
        assert (await it.query.read_log("one")).length == 6
        await asyncio.sleep(0.05)


@aio
async def test_predicates_are_anded_values_ored_and_none_means_absent(tmp_path: Path) -> None:
    async with corpus(tmp_path) as it:
        await it.stored("root", created=1, cwd="/a")
        await it.stored("child", created=2, cwd="/a", parent_session="root", origin="subagent")
        await it.stored("loose", created=3)
        ask = it.query.filter_sessions
        assert ids(await ask([OneOf("cwd", ("/a",))])) == ["child", "root"]
        assert ids(await ask([OneOf("cwd", ("/a", None))])) == ["loose", "child", "root"]
        assert ids(await ask([OneOf("cwd", (None,))])) == ["loose"]
        assert ids(await ask([OneOf("parentSession", ("root",)), OneOf("cwd", ("/a",))])) == ["child"]
        assert ids(await ask([OneOf("parentSession", (None,)), OneOf("cwd", ("/a",))])) == ["root"]
        assert ids(await ask([OneOf("origin", ("subagent",))])) == ["child"]
        assert ids(await ask([OneOf("cwd", ())])) == []
        assert ids(await ask([Between("createdAt", 2, 3)])) == ["loose", "child"]
        assert ids(await ask([Between("createdAt", None, 1)])) == ["root"]
        assert ids(await ask([OneOf("source", ("live",))])) == []


@pytest.mark.parametrize(
    "predicate",
    [
        OneOf("seq", ("1",)),  # type: ignore[arg-type]
        OneOf("cwd", (1,)),  # type: ignore[arg-type]
        OneOf("cwd", "text"),  # type: ignore[arg-type]
        OneOf("source", ("elsewhere",)),
        Between("time", 1, 2),
        Between("createdAt", 2, 1),
        Between("createdAt", True, None),
        Containing("x"),
    ],
)
@aio
async def test_a_predicate_that_makes_no_sense_is_refused(predicate: object) -> None:
    async with corpus(None) as it:
        with refused("INVALID_FILTER"):
            await it.query.filter_sessions([predicate])  # type: ignore[list-item]


@aio
async def test_events_are_records_with_their_place_on_the_surface() -> None:
    async with corpus(None) as it:
        session = it.live("one")
        turn(session, "hi", chunks=2)
        records = list(await it.query.list_events("one"))
        assert [(r.seq, r.type, r.surface) for r in records] == [
            (0, "turn/start", "log-only"),
            (1, "step/start", "log-only"),
            (2, "user/message", "current"),
            (3, "assistant/chunk", "log-only"),
            (4, "assistant/chunk", "log-only"),
            (5, "assistant/chunk", "log-only"),
            (6, "assistant/chunk", "log-only"),
            (7, "assistant/message", "current"),
            (8, "step/end", "log-only"),
            (9, "turn/end", "log-only"),
        ]
        assert [r.time for r in records] == [event.time for event in session.events()]
        assert all(r.session_id == "one" for r in records)


@aio
async def test_events_are_filtered_by_type_place_number_and_literal_text() -> None:
    async with corpus(None) as it:
        session = it.live("one")
        turn(session, "Fix   the\n100% Straße", "All (done) here", chunks=3)

        async def seqs(*predicates: object) -> list[int]:
            found = await it.query.list_events("one", predicates)  # type: ignore[arg-type]
            return [record.seq for record in found]

        assert await seqs(OneOf("type", ("turn/start", "turn/end"))) == [0, session.length - 1]
        assert await seqs(OneOf("surface", ("current",))) == list(session.surface_nodes)
        assert await seqs(Between("seq", 3, 5)) == [3, 4, 5]
        assert await seqs(Between("seq", 3, 5), OneOf("type", ("assistant/chunk",))) == [3, 4, 5]
        assert await seqs(OneOf("type", ())) == []
        assert await seqs(OneOf("sessionId", ("other",))) == []
        assert await seqs(Containing("the 100% STRASSE")) == [2]
        assert await seqs(Containing("(done)")) == [8]
        assert await seqs(Containing("(d.ne)")) == []
        assert await seqs(Containing("secret thought")) == []
        with refused("INVALID_FILTER"):
            await seqs(Containing(""))


@aio
async def test_events_of_many_sessions_come_in_their_order_up_to_a_limit(tmp_path: Path) -> None:
    async with corpus(tmp_path) as it:
        await it.stored("old", "find me", created=1)
        await it.stored("new", "find me", "and me", created=2)
        only = [OneOf("type", ("user/message",))]
        records, problems = await it.query.filter_events([], only)
        assert [(r.session_id, r.seq) for r in records] == [("new", 2), ("new", 8), ("old", 2)]
        assert problems == ()
        records, _ = await it.query.filter_events([], [Containing("find")], limit=1)
        assert [r.session_id for r in records] == ["new"]
        for limit in (0, 101, True, 1.0):
            with refused("INVALID_LIMIT"):
                await it.query.filter_events([], only, limit=limit)  # type: ignore[arg-type]


@aio
async def test_the_surface_is_what_the_model_would_be_shown() -> None:
    async with corpus(None) as it:
        session = it.live("one")
        turn(session, "hi")
        shown = await it.query.read_surface("one")
        assert shown.captured_through_seq == session.length - 1
        assert tuple(event.seq for event in shown.events) == session.surface_nodes
        assert shown.messages == session.derive_messages()
        it.live("empty")
        assert (await it.query.read_surface("empty")).captured_through_seq == -1


@aio
async def test_one_event_is_read_with_as_many_neighbours_as_there_are() -> None:
    async with corpus(None) as it:
        session = it.live("one")
        turn(session, "hi", chunks=4)
        window = await it.query.read_event("one", 4, before=2, after=1)
        assert [e.seq for e in window.before] == [2, 3]
        assert (window.event.seq, window.surface) == (4, "log-only")
        assert [e.seq for e in window.after] == [5]
        edge = await it.query.read_event("one", 0, before=50, after=50)
        assert edge.before == ()
        assert [e.seq for e in edge.after] == list(range(1, session.length))
        for seq in (-1, session.length, True, "2"):
            with refused("EVENT_NOT_FOUND"):
                await it.query.read_event("one", seq)  # type: ignore[arg-type]
        for count in (-1, 51, True, None):
            with refused("INVALID_WINDOW"):
                await it.query.read_event("one", 0, before=count)  # type: ignore[arg-type]


@aio
async def test_titles_are_the_last_ones_in_the_order_asked(tmp_path: Path) -> None:
    async with corpus(tmp_path) as it:
        await it.stored("none")
        session = it.live("named")
        said_at = said_in_a_step(session)
        for title in ("first", "second"):
            session.append(
                "session/title", {"title": title, "messageSeqs": [said_at], "source": {"kind": "fallback"}}
            )
        titles = await it.query.titles(["named", "none", "named"])
        assert [(one.session_id, one.title) for one in titles] == [
            ("named", "second"),
            ("none", None),
            ("named", "second"),
        ]


def said_in_a_step(session: object) -> int:
    session.append("turn/start", {"turn": 1})  # type: ignore[attr-defined]
    session.append("step/start", {"turn": 1, "step": 1})  # type: ignore[attr-defined]
    return said(session, "hi")  # type: ignore[arg-type]


@aio
async def test_records_are_made_anew_for_each_reader() -> None:
    async with corpus(None) as it:
        session = it.live("one")
        turn(session, "hi")
        records = await it.query.list_events("one")
        assert list(records) == list(records)
        assert all(type(record) is EventRecord for record in records)
