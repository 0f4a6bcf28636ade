"""The way out: what is masked, what is lost, how long the end may take, and what is refused at the start."""

import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common._internal import _encode_value

from dsh.capabilities.launch import HOME_PATH
from dsh.errors import CompositionError
from dsh.kernel import Context, ValidationError
from dsh.plugins import session as session_row
from dsh.plugins import session_telemetry_otel
from dsh.plugins.session_telemetry_otel.wire_value import (
    MAX_DEPTH,
    as_it_is,
    masking,
    secrets_of,
    wire_value,
)
from tests.agent.kit import settled, until
from tests.aio import aio
from tests.plugins.session_telemetry.kit import begin, config, prompt, rows
from tests.plugins.session_telemetry.receiver import receiving

KEY = "sk-abcdefghijklmnop1234"


@aio
async def test_keys_are_masked_unless_the_row_says_otherwise() -> None:
    wanted: list[tuple[dict[str, Any], str]] = [
        ({}, "use sk-*** please"),
        ({"maskKeys": False}, f"use {KEY} please"),
    ]
    for options, shown in wanted:
        with receiving() as receiver:
            async with rows() as it:
                await it.mount(config(receiver, **options))
                session, _ = it.store.create("one", cwd="/srv")
                begin(session)
                prompt(session, f"use {KEY} please")
                await it.unmount()
            assert receiver.records[2].body["content"][0]["text"] == shown
            assert f"use {KEY} please" in str(session.event(2).data)


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ({"password": "hunter2", "n": 1}, {"password": "***", "n": 1}),
        ({"apiKey": ["plain"]}, {"apiKey": ["***"]}),
        ({"url": "https://user:pw@host/x"}, {"url": "https://***@host/x"}),
        ({"maxTokens": 5, "tokenizer": "x"}, {"maxTokens": 5, "tokenizer": "x"}),
        ([None, True, 1.5, -(2**63)], [None, True, 1.5, -(2**63)]),
        (2**63, str(2**63)),
        ("half \ud83d", "half \ufffd"),
    ],
)
def test_what_a_value_becomes(value: Any, sent: Any) -> None:
    assert wire_value(value, masking(())) == sent


def test_the_values_of_secret_variables_are_masked_wherever_they_stand() -> None:
    environment = {
        "DEEPSEEK_API_KEY": "no-form-at-all",
        "DB_PASSWORD": "no-form-at-all-longer",
        "MY_TOKEN": "short",
        "EDITOR": "an-editor-of-mine",
        "PROXY": "http://user:pw@host/",
    }
    secrets = secrets_of(environment)
    assert set(secrets) == {"no-form-at-all", "no-form-at-all-longer", "http://user:pw@host/"}
    text = masking(secrets)
    assert text("", "a no-form-at-all-longer b no-form-at-all c short") == "a *** b *** c short"
    assert text("", "an-editor-of-mine") == "an-editor-of-mine"


def test_what_lies_too_deep_is_sent_as_text() -> None:
    value: Any = "deep sk-abcdefghijklmnop1234"
    for _ in range(500):
        value = [value]
    sent = wire_value(value, masking(()))
    for _ in range(MAX_DEPTH):
        (sent,) = sent
    assert type(sent) is str
    assert "sk-***" in sent


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=20,
)


@given(JSON, st.booleans())
def test_whatever_a_log_holds_can_be_encoded(value: Any, mask: bool) -> None:
    _encode_value(wire_value(value, masking(()) if mask else as_it_is)).SerializeToString()


@aio
async def test_who_sends_is_told_by_version_and_a_random_id_of_the_home(tmp_path: Path) -> None:
    from dsh import __version__

    ids = []
    for _ in range(2):
        with receiving() as receiver:
            async with rows() as it:
                it.ctx.provide(HOME_PATH, lambda *segments: tmp_path.joinpath(*segments))
                options = config(receiver)
                options["exporter"]["headers"] = {"x-tenant": "seven"}
                await it.mount(options)
                begin(it.store.create("one")[0])
                await it.unmount()
        assert receiver.resource["service.name"] == "dsh"
        assert receiver.resource["service.version"] == __version__
        (headers,) = receiver.headers
        assert (headers["x-tenant"], headers["Content-Encoding"]) == ("seven", "gzip")
        ids.append(receiver.resource["user.id"])
    assert ids[0] == ids[1]
    assert ids[0] == (tmp_path / ".anonymous-user-id").read_text().strip()


@aio
async def test_records_are_sent_while_the_session_runs() -> None:
    with receiving() as receiver:
        async with rows() as it:
            await it.mount(config(receiver, processor={"scheduledDelayMillis": 10}))
            begin(it.store.create("one")[0])
            await until(lambda: len(receiver.records) == 2)


@aio
async def test_a_receiver_that_never_answers_holds_the_end_no_longer_than_its_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = threading.Event()
    with receiving() as receiver:
        receiver.answer = lambda: 200 if gate.wait(60) else 500
        async with rows() as it:
            await it.mount(config(receiver, shutdownTimeoutMillis=100))
            begin(it.store.create("one")[0])
            started = time.monotonic()
            await it.unmount()
            assert time.monotonic() - started < 30
        gate.set()
    assert "telemetry: 3 of 3 records could not be sent within 100 ms" in caplog.text


@aio
async def test_a_receiver_that_refuses_is_told_once_and_what_was_lost_is_counted(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with receiving() as receiver:
        receiver.answer = lambda: 400
        async with rows() as it:
            await it.mount(config(receiver, processor={"maxExportBatchSize": 2, "maxQueueSize": 64}))
            session, _ = it.store.create("one")
            for turn in range(1, 5):
                session.append("turn/start", {"turn": turn})
                session.append("turn/end", {"turn": turn, "reason": {"kind": "completed"}})
            await it.unmount()
    told = [record.getMessage() for record in caplog.records if record.name != "asyncio"]
    assert told[-1] == "telemetry: 9 of 9 records could not be sent"
    assert len(told) == 2
    assert capfd.readouterr().err == ""


@aio
async def test_a_full_queue_drops_the_oldest_and_never_waits(caplog: pytest.LogCaptureFixture) -> None:
    with receiving() as receiver:
        async with rows() as it:
            processor = {"maxQueueSize": 2, "maxExportBatchSize": 2, "scheduledDelayMillis": 60_000}
            gate = threading.Event()
            receiver.answer = lambda: 200 if gate.wait(60) else 500
            await it.mount(
                config(receiver, processor=processor, exporter={"url": receiver.url, "timeoutMillis": 60_000})
            )
            session, _ = it.store.create("one")
            for turn in range(1, 50):
                session.append("turn/start", {"turn": turn})
                session.append("turn/end", {"turn": turn, "reason": {"kind": "completed"}})
            assert session.length == 98
            gate.set()
            await it.unmount()
        assert len(receiver.records) < 20
        assert receiver.kinds[-1] == "shutdown"
    assert f"{99 - len(receiver.records)} of 99 records could not be sent" in caplog.text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "FULL"}, "nothing says where"),
        ({"mode": "FEEDBACK_ONLY", "exporter": {"url": ""}}, "nothing says where"),
        ({"mode": "FULL", "exporter": {"url": "ftp://host/x"}}, "no http or https address"),
        ({"mode": "FULL", "exporter": {"url": "http://"}}, "no http or https address"),
        ({"mode": "FULL", "exporter": {"url": "http://[x/"}}, "no http or https address"),
        (
            {"mode": "FULL", "exporter": {"url": "http://h/"}, "processor": {"maxExportBatchSize": 9000}},
            "more than maxQueueSize",
        ),
        ({"mode": "SOME"}, "mode"),
        ({"exporter": {"uri": "x"}}, "uri"),
        ({"shutdownTimeoutMillis": 0}, "shutdownTimeoutMillis"),
        ({"shutdownTimeoutMillis": 2**31}, "shutdownTimeoutMillis"),
        ({"processor": {"maxExportBatchSize": 0}}, "maxExportBatchSize"),
    ],
)
@aio
async def test_a_config_that_cannot_work_is_refused_at_the_start(options: dict[str, Any], told: str) -> None:
    ctx = Context()
    await ctx.plugin(session_row)
    with pytest.raises((CompositionError, ValidationError), match=told) as error:
        await settled(ctx.plugin(session_telemetry_otel, options))
    assert error.value.exit_code == 3
    await ctx.dispose()


@aio
async def test_without_its_library_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "dsh.plugins.session_telemetry_otel.otlp", None)
    ctx = Context()
    await ctx.plugin(session_row)
    options = {"mode": "FULL", "exporter": {"url": "http://127.0.0.1:1/"}}
    with pytest.raises(CompositionError) as error:
        await settled(ctx.plugin(session_telemetry_otel, options))
    assert "dsh[otel]" in error.value.hint
    await ctx.dispose()


@aio
async def test_the_library_s_own_log_is_as_it_was_afterwards() -> None:
    source = logging.getLogger("opentelemetry")
    before = (list(source.handlers), source.propagate)
    with receiving() as receiver:
        async with rows() as it:
            await it.mount(config(receiver))
            await it.unmount()
    assert (list(source.handlers), source.propagate) == before
