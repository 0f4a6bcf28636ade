"""What is handed over, in which form and how often, received by a real OTLP receiver."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from dsh.capabilities.session_telemetry import TELEMETRY_RECORD, TelemetryRecord
from dsh.session.log import Session
from tests.agent.kit import Loop, calls, failed, loop, text
from tests.aio import aio
from tests.plugins.session_telemetry.kit import begin, config, feedback, prompt, rows, stream
from tests.plugins.session_telemetry.receiver import receiving

from dsh.plugins import session_telemetry_otel  # isort: skip


@aio
async def test_every_event_is_a_record_with_its_time_and_payload() -> None:
    with receiving() as receiver:
        async with rows() as it:
            await it.mount(config(receiver))
            session, undo = it.store.create("one", cwd="/srv/app")
            begin(session)
            prompt(session, "hello")
            await undo()
            await it.unmount()
        assert receiver.kinds == ["turn/start#0", "step/start#1", "user/message#2", "shutdown"]
        record = receiver.records[2]
        assert record.attributes == {
            "telemetry.channel": "ledger",
            "session.id": "one",
            "event.type": "user/message",
            "event.seq": 2,
            "session.cwd": "/srv/app",
        }
        event = session.event(2)
        assert (record.severity, record.time_ms) == (9, event.time)
        assert record.body["content"] == [{"type": "text", "text": "hello"}]
        last = receiver.records[3]
        assert last.attributes == {
            "telemetry.channel": "ops", "telemetry.op": "shutdown", "session.id": "one",
        }  # fmt: skip
        assert last.body == {"op": "shutdown"}


@aio
async def test_of_a_streamed_reply_only_the_first_piece_of_each_step_goes() -> None:
    with receiving() as receiver:
        async with rows() as it:
            await it.mount(config(receiver))
            session, _ = it.store.create("one")
            begin(session)
            stream(session, 50)
            stream(session, 50)
            session.append("step/end", {"turn": 1, "step": 1})
            session.append("step/start", {"turn": 1, "step": 2})
            from dsh.session.chunk import TextDelta

            for _ in range(20):
                session.append_chunk(1, 2, TextDelta(0, "no block-start before"))
            session.append("step/end", {"turn": 1, "step": 2})
            await it.unmount()
        assert receiver.kinds == [
            "turn/start#0", "step/start#1", "assistant/chunk#2", "step/end#106", "step/start#107",
            "assistant/chunk#108", "step/end#128", "shutdown",
        ]  # fmt: skip


@aio
async def test_parent_and_seed_are_told_and_only_what_this_process_adds_goes() -> None:
    with receiving() as receiver:
        async with rows() as it:
            await it.mount(config(receiver))
            source, _ = it.store.create("source")
            begin(source)
            seed = source.entries()
            session = it.store.prepare("child", parent_session="source", seed_length=2, seed=seed)
            it.store.enter(session)
            it.store.announce(session)
            await it.unmount()
        (record,) = [r for r in receiver.records if r.attributes["session.id"] == "child"][:-1]
        assert record.kind == "session/end-seed#2"
        assert record.attributes["session.parent_id"] == "source"
        assert record.attributes["session.seed_length"] == 2


@aio
async def test_a_row_that_is_mounted_again_goes_on_where_it_stopped() -> None:
    with receiving() as receiver:
        async with rows() as it:
            session, _ = it.store.create("one")
            session.append("turn/start", {"turn": 1})
            await it.mount(config(receiver))
            session.append("step/start", {"turn": 1, "step": 1})
            stream(session, 3)
            await it.unmount()
            session.append("step/end", {"turn": 1, "step": 1})
            await it.mount(config(receiver))
            session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
            await it.unmount()
        assert receiver.kinds == [
            "turn/start#0", "step/start#1", "assistant/chunk#2", "shutdown",
            "step/end#7", "turn/end#8", "shutdown",
        ]  # fmt: skip


@aio
async def test_failures_are_errors() -> None:
    with receiving() as receiver:
        options = [(session_telemetry_otel, config(receiver))]
        async with loop(calls(("c", "absent", "{}")), failed("SERVER"), rows=options) as it:
            agent = await it.agent()
            await it.prompt(agent, "go")
        errors = [record for record in receiver.records if record.severity == 17]
        assert {record.kind.partition("#")[0] for record in errors} >= {"tool/result", "turn/end"}
        assert all(record.severity in (9, 17) for record in receiver.records)


async def broken(it: Loop) -> str:
    from dsh.agent.contract import AGENT_REQUEST

    def fails(seed: Any, following: Callable[[], Any]) -> Any:
        raise ValueError("no route today")

    it.ctx.on(AGENT_REQUEST, fails)
    agent = await it.agent()
    await it.prompt(agent, "go")
    return agent.id


@aio
async def test_an_agent_s_failure_is_an_operation() -> None:
    with receiving() as receiver:
        async with loop(text("x"), rows=[(session_telemetry_otel, config(receiver))]) as it:
            agent_id = await broken(it)
        (record,) = [record for record in receiver.records if record.kind == "agent-error"]
        assert record.attributes == {
            "telemetry.channel": "ops", "telemetry.op": "agent-error", "session.id": agent_id,
            "agent.id": agent_id, "turn": 1, "step": 1, "error.name": "ValueError",
        }  # fmt: skip
        assert record.body == {"name": "ValueError", "message": "no route today"}
        assert record.severity == 17


@aio
async def test_without_feedback_nothing_goes_where_only_feedback_is_wanted() -> None:
    with receiving() as receiver:
        async with loop(text("x"), rows=[(session_telemetry_otel, config(receiver, "FEEDBACK_ONLY"))]) as it:
            await broken(it)
        assert receiver.records == []
        assert receiver.headers == []


@aio
async def test_feedback_sends_the_log_up_to_it_once() -> None:
    with receiving() as receiver:
        async with rows() as it:
            await it.mount(config(receiver, "FEEDBACK_ONLY"))
            session, _ = it.store.create("one")
            other, _ = it.store.create("other")
            begin(session)
            begin(other)
            stream(session, 5)
            feedback(session)
            session.append("step/end", {"turn": 1, "step": 1})
            feedback(session, "and again")
            session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
            await it.unmount()
        assert receiver.kinds == [
            "turn/start#0", "step/start#1", "assistant/chunk#2", "feedback/record#9", "step/end#10",
            "feedback/record#11",
        ]  # fmt: skip
        assert {record.attributes["session.id"] for record in receiver.records} == {"one"}


@aio
async def test_feedback_given_while_the_row_was_away_is_sent_by_the_next() -> None:
    with receiving() as receiver:
        async with rows() as it:
            session, _ = it.store.create("one")
            session.append("turn/start", {"turn": 1})
            feedback(session)
            session.append("step/start", {"turn": 1, "step": 1})
            await it.mount(config(receiver, "FEEDBACK_ONLY"))
            await it.unmount()
        assert receiver.kinds == ["turn/start#0", "feedback/record#1"]


@aio
async def test_where_telemetry_is_off_feedback_is_told_to_stay_here(caplog: pytest.LogCaptureFixture) -> None:
    async with rows() as it:
        await it.mount({})
        session, _ = it.store.create("one")
        begin(session)
        assert caplog.records == []
        feedback(session)
        assert "telemetry is off" in caplog.text


@aio
async def test_a_rule_changes_or_withholds_a_record_and_one_that_fails_withholds_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def rule(record: TelemetryRecord, following: Callable[[], TelemetryRecord | None]) -> Any:
        kind = record.attributes.get("event.type")
        if kind == "turn/start":
            return None
        if kind == "step/start":
            raise ValueError("rule is broken")
        passed = following()
        assert passed is not None
        return replace(passed, body={"changed": True})

    with receiving() as receiver:
        async with rows() as it:
            await it.mount(config(receiver))
            it.ctx.on(TELEMETRY_RECORD, rule)
            session, _ = it.store.create("one")
            begin(session)
            prompt(session, "hello")
            session.append("step/end", {"turn": 1, "step": 1})
            assert session.length == 4
            await it.unmount()
        assert receiver.kinds == ["user/message#2", "step/end#3", "shutdown"]
        assert receiver.records[0].body == {"changed": True}
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in told] == ["a telemetry record was withheld: rule is broken"]


@aio
async def test_a_handed_over_payload_is_the_log_s_own() -> None:
    """Nothing is copied on the path of an append."""
    from dsh.plugins.session_telemetry_otel.capture import ledger_record

    async with rows() as it:
        session: Session
        session, _ = it.store.create("one")
        begin(session)
        assert ledger_record(session, session.event(0)).body is session.event(0).data
