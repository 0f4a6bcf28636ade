"""`dsh sessions stats`: the tables, the timeline, the storage, and both as JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.cli.columns import width
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.requests import usd
from dsh.cli.sessions.stats import stats
from dsh.cli.sessions.terminal import Look
from dsh.cli.sessions.timeline import Span, StepTimes, TurnTimes, drawn, duration, lanes, timeline
from dsh.session.error import SessionError
from dsh.session.event import SessionEvent
from dsh.session.restore import restore
from dsh.session.value import freeze
from tests.corpus import CORPUS, needs_corpus
from tests.persistence.golden import HEADER, TEXT, framed
from tests.session.build import T0, call_block, header, reply, result
from tests.session.sound import body

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """The figures of a target, with a home of its own: exit code, stdout, stderr."""
    monkeypatch.setenv("DSH_HOME", str(tmp_path / "home"))

    def call(
        target: object, *, rows: bool = False, requests: bool = False, as_json: bool = False
    ) -> tuple[int, str, str]:
        code = stats(str(target), Place(), rows=rows, requests=requests, as_json=as_json)
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    path = tmp_path / "golden.jsonl"
    path.write_bytes(TEXT)
    return path


# -- tables --------------------------------------------------------------------------------------


def test_tokens_times_and_a_cost_that_is_not_known(golden: Path, run: Run) -> None:
    code, out, err = run(golden)

    assert (code, err) == (0, "")
    assert "turns 1, steps 1, requests 1" in out
    assert (
        "cost      not known: there is no price of acme/acme-1; say one in settings.yaml, such as models: {"
        in out
    )
    assert "acme/acme-1          9       2     -" in out
    assert "turn 1: completed" in out
    assert "1.1 model" in out
    assert golden.read_bytes() == TEXT


def test_the_settings_say_what_tokens_cost(tmp_path: Path, golden: Path, run: Run) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "settings.yaml").write_text("models: {acme/acme-1: {price: {input: 1000, output: 5000}}}\n")

    figures = json.loads(run(golden, as_json=True)[1])["stats"]

    # 9 x $1000 + 2 x $5000, per million
    assert figures["costUsd"] == pytest.approx(0.019)
    assert "$0.0190" in run(golden)[1]


def test_the_line_that_is_offered_says_a_price_where_it_is_put(tmp_path: Path, run: Run) -> None:
    """Whatever characters the id of a model has."""
    log, home = tmp_path / "odd.jsonl", tmp_path / "home"
    log.write_bytes(TEXT.replace(b'"acme-1"', '"qwen/旗舰:8b, \\"free\\""'.encode()))
    home.mkdir()
    [offered] = [text for text in run(log)[1].splitlines() if "say one in settings.yaml, such as " in text]

    (home / "settings.yaml").write_text(offered.partition("say one in settings.yaml, such as ")[2] + "\n")

    shown = json.loads(run(log, as_json=True)[1])["stats"]
    assert offered.count("旗舰") == 2, "written as people write it"
    # 9 x $0.3 + 2 x $1.2, per million
    assert list(shown["tokens"]) == ['acme/qwen/旗舰:8b, "free"']
    assert shown["costUsd"] == pytest.approx(5.1e-6)


def test_usage_of_no_route_has_no_line_to_offer(tmp_path: Path, run: Run) -> None:
    log, place = tmp_path / "odd.jsonl", {"turn": 1, "step": 1}
    usage = {"type": "usage", "usage": {"inputTokens": 1, "outputTokens": 1}}
    said = [
        ("turn/start", {"turn": 1}), ("step/start", place), ("assistant/chunk", {**place, "chunk": usage}),
        ("step/end", place),
    ]  # fmt: skip
    rows = [{"type": kind, "seq": seq, "time": T0, "data": data} for seq, (kind, data) in enumerate(said)]
    log.write_bytes(HEADER + b"".join(json.dumps(row).encode() + b"\n" for row in rows))

    assert "cost      not known: there is no price of unknown\n" in run(log)[1]


def test_a_price_that_depends_on_the_length_of_a_request_is_put_to_each_of_them(
    tmp_path: Path, run: Run
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    price = "{price: {input: 1, output: 1, long: {aboveInputTokens: 8, input: 100, output: 1}}}"
    (home / "settings.yaml").write_text(f"models: {{acme/acme-1: {price}, acme/small: {price}}}\n")

    figures = json.loads(run(paid(tmp_path), as_json=True)[1])["stats"]

    # 9 x $100 + 2 x $1 for the long one; 4 x $1 + 1 x $1 for the title; two that are logged
    assert figures["tokens"]["acme/acme-1"]["costUsd"] == pytest.approx(902e-6 + 0.25000123, abs=1e-12)
    assert figures["costUsd"] == figures["knownCostUsd"] == pytest.approx(907e-6 + 0.25000123, abs=1e-12)


@pytest.mark.parametrize("what", ["a folder", "bytes"])
def test_settings_that_are_no_text_are_told_too(tmp_path: Path, golden: Path, run: Run, what: str) -> None:
    path = tmp_path / "home" / "settings.yaml"
    path.parent.mkdir()
    if what == "bytes":
        path.write_bytes(b"models: \xff\x00")
    else:
        path.mkdir()

    code, out, err = run(golden)

    assert code == 0
    assert "not known" in out
    assert err.startswith(f"dsh: no prices: {path}")
    assert err.count("\n") == 1


def test_settings_that_are_not_in_order_are_told_and_nothing_has_a_price(
    tmp_path: Path, golden: Path, run: Run
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "settings.yaml").write_text("models: {acme/acme-1: {price: {input: cheap}}}\n")

    code, out, err = run(golden)

    assert code == 0
    assert "not known" in out
    assert err.startswith("dsh: no prices: ")
    assert "settings.yaml" in err


def test_one_json_object_holds_figures_and_timeline(golden: Path, run: Run) -> None:
    shown = json.loads(run(golden, as_json=True)[1])

    assert list(shown) == ["session", "log", "stats", "timeline"]
    assert shown["session"] == "demo.1"
    assert shown["stats"]["tokens"]["acme/acme-1"]["input"] == 9
    # turn and step begin 1 and 2 ms after seq 0; message, end of the step and of the turn: 105, 105, 106
    assert shown["timeline"] == [
        {
            "turn": 1,
            "startMs": 1,
            "endMs": 106,
            "reason": "completed",
            "steps": [
                {
                    "turn": 1,
                    "step": 1,
                    "startMs": 2,
                    "endMs": 105,
                    "requests": [{"name": "model", "startMs": 2, "endMs": 105, "isError": False}],
                    "calls": [],
                }
            ],
        }
    ]


PRICED = {"provider": "acme", "model": "acme-1", "usage": {"inputTokens": 4, "outputTokens": 1}}


def paid(tmp_path: Path) -> Path:
    """The golden session, and behind it three requests in rows of their own, one of them without a cost."""
    rows = [
        {"turn": 2, "step": 1, "attempt": 1, **PRICED, "costUsd": 0.25, "price": {"input": 1, "output": 2}},
        {"turn": 2, "step": 1, "attempt": 2, **PRICED, "costUsd": 0.00000123, "price": None},
        {"purpose": "session-title", **PRICED, "model": "small", "costUsd": None, "price": None},
    ]
    events = [
        {"type": "request/usage", "seq": 17 + at, "time": T0, "data": data, "ignorable": True}
        for at, data in enumerate(rows)
    ]
    path = tmp_path / "paid.jsonl"
    path.write_bytes(TEXT + b"".join(json.dumps(event).encode() + b"\n" for event in events))
    return path


def test_each_request_has_a_line_with_what_it_used_and_cost(tmp_path: Path, run: Run) -> None:
    out = run(paid(tmp_path), requests=True)[1]

    assert "request        route        input  output        cost" in out
    assert "1.1            acme/acme-1      9       2           -" in out
    assert "2.1            acme/acme-1      4       1     $0.2500" in out
    assert "2.1 retry 1    acme/acme-1      4       1  $0.0000012" in out
    assert "session-title  acme/small       4       1           -" in out
    assert "$0.2500 and more: there are requests without a price of acme/acme-1, acme/small" in out
    assert "session-title" not in run(paid(tmp_path))[1]


@pytest.mark.parametrize(
    ("cost", "shown"),
    [
        (0, "$0.0000"),
        (0.5, "$0.5000"),
        (12_345.678, "$12,345.68"),
        (0.00049, "$0.00049"),
        (3e-9, "$0.0000000030"),
        (1e-12, "$0.0000000000010"),
        (9e-13, "$0.0000"),
        (5e-324, "$0.0000"),
        (0.001, "$0.0010"),
        (0.99999, "$1.0000"),
        (1, "$1.00"),
    ],
)
def test_an_amount_has_two_digits_that_count_at_least(cost: float, shown: str) -> None:
    assert usd(cost) == shown


def test_a_cost_is_that_of_the_log_else_by_the_price_that_holds_now(tmp_path: Path, run: Run) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "settings.yaml").write_text("models: {acme/acme-1: {price: {input: 1000, output: 5000}}}\n")

    shown = json.loads(run(paid(tmp_path), requests=True, as_json=True)[1])

    # 9 x $1000 + 2 x $5000, per million, for the one that the log has no cost of
    assert [(each["costUsd"], each["costFrom"]) for each in shown["requests"]] == [
        (pytest.approx(0.019), "price"), (0.25, "log"), (0.00000123, "log"), (None, None),
    ]  # fmt: skip
    assert shown["stats"]["tokens"]["acme/acme-1"]["costUsd"] == pytest.approx(0.26900123, abs=1e-9)
    assert shown["stats"]["costUsd"] is None
    assert shown["stats"]["knownCostUsd"] == pytest.approx(0.26900123, abs=1e-9)
    assert [list(each)[:3] for each in shown["requests"]][1:] == [
        ["turn", "step", "attempt"], ["turn", "step", "attempt"], ["purpose", "route", "tokens"],
    ]  # fmt: skip


def test_an_empty_session_has_figures_too(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_bytes(TEXT[: TEXT.index(b"\n") + 1])

    code, out, _ = run(path)

    assert code == 0
    assert "no tokens were reported" in out
    figures = json.loads(run(path, as_json=True)[1])["stats"]
    assert (figures["costUsd"], figures["knownCostUsd"]) == (None, 0.0)
    assert "timeline" not in out


@pytest.mark.parametrize("rows", [False, True])
def test_a_log_that_cannot_be_opened_is_told_in_a_line(tmp_path: Path, run: Run, rows: bool) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_bytes(b"not a log\n")

    code, out, err = run(path, rows=rows)

    assert (code, out) == (1, "")
    assert err.startswith(f"dsh: NOT_A_SESSION_LOG: {path}:1")


# -- storage -------------------------------------------------------------------------------------


@needs_corpus
def test_a_recorded_log_tells_its_rows_and_what_packing_saved(run: Run) -> None:
    log = CORPUS / "fixtures" / "jsonrpc-agent-bash-tool-session.jsonl"

    shown = json.loads(run(log, rows=True, as_json=True)[1])
    _, out, _ = run(log, rows=True)

    assert (shown["rows"], shown["packedRows"], shown["packedEvents"]) == (32, 4, 71)
    assert shown["savedByPacking"] == pytest.approx(0.597, abs=0.0005)
    assert "a header and 32 rows for 99 events" in out
    assert "4 of the rows cover 71 events" in out
    assert "saves 59.7%" in out


@needs_corpus
def test_a_recorded_run_folds_to_its_messages_and_request_headers(run: Run) -> None:
    log = CORPUS / "fixtures" / "headless-agent-headless-profile-session-expected.jsonl"
    kinds = [json.loads(row)["type"] for row in log.read_bytes().splitlines()]
    expected = json.loads(log.with_suffix(".expected.json").read_bytes())

    shown = json.loads(run(log, rows=True, as_json=True)[1])

    assert shown["events"] == 32
    assert len(expected["messages"]) == 5
    assert kinds.count("request/header") == 2


def test_what_compression_saves(tmp_path: Path, run: Run) -> None:
    stored = framed(TEXT.removeprefix(HEADER))
    path = tmp_path / "golden.jsonl.zstd"
    path.write_bytes(stored)

    shown = json.loads(run(path, rows=True, as_json=True)[1])

    assert shown["encoding"] == "zstd"
    assert (shown["rows"], shown["events"]) == (15, 17)
    assert (shown["textBytes"], shown["storedBytes"]) == (len(TEXT), len(stored))
    assert shown["savedByCompression"] == pytest.approx(1 - len(stored) / len(TEXT), abs=0.0001)


# -- timeline ------------------------------------------------------------------------------------


class Log:
    """Events at given times."""

    def __init__(self) -> None:
        self.events: list[SessionEvent] = []

    def at(self, ms: int, kind: str, data: Any, *, on_surface: bool = False) -> None:
        surface = "append" if on_surface else None
        frozen = freeze(data, kind)
        self.events.append(SessionEvent(kind, len(self.events), T0 + ms, frozen, None, surface))  # type: ignore[arg-type]

    def step(self, start: int, message: int, *calls: str, turn: int = 1, step: int = 1) -> None:
        self.at(start, "step/start", {"turn": turn, "step": step})
        said = reply(*map(call_block, calls)) if calls else reply()
        self.at(message, "assistant/message", {"turn": turn, "step": step, "message": said}, on_surface=True)

    def call(self, ms: int, call_id: str, name: str = "bash") -> None:
        self.at(ms, "tool/call", {"turn": 1, "step": 1, "callId": call_id, "name": name, "arguments": "{}"})

    def result(self, ms: int, call_id: str, **data: Any) -> None:
        payload = {"turn": 1, "step": 1, "message": result(call_id), **data}
        self.at(ms, "tool/result", payload, on_surface=True)


def one_step(log: Log) -> StepTimes:
    [turn] = timeline(log.events)
    [step] = turn.steps
    return step


def test_calls_that_overlap_have_lines_of_their_own() -> None:
    log = Log()
    log.at(0, "turn/start", {"turn": 1})
    log.step(0, 10, "a", "b", "c")
    log.call(10, "a")
    log.call(12, "b", "read")
    log.result(20, "a")
    log.call(20, "c")
    log.result(30, "b", error={"name": "E", "code": "X"})
    log.result(40, "c")
    log.at(40, "step/end", {"turn": 1, "step": 1})

    step = one_step(log)

    assert step.calls == (Span("bash", 10, 20), Span("read", 12, 30, is_error=True), Span("bash", 20, 40))
    assert lanes(step.calls) == [[step.calls[0], step.calls[2]], [step.calls[1]]]


def test_a_failed_attempt_and_the_wait_after_it_are_told_apart() -> None:
    log = Log()
    log.at(0, "turn/start", {"turn": 1})
    log.at(0, "step/start", {"turn": 1, "step": 1})
    log.at(100, "llm/retry", {"turn": 1, "step": 1})
    log.at(600, "llm/retry-started", {"turn": 1, "step": 1})
    log.at(700, "assistant/message", {"turn": 1, "step": 1, "message": reply()}, on_surface=True)

    assert one_step(log).requests == (Span("failed", 0, 100, is_error=True), Span("model", 600, 700))


def test_what_is_under_way_where_the_log_ends_has_not_failed() -> None:
    asking = Log()
    asking.at(0, "turn/start", {"turn": 1})
    asking.at(5, "step/start", {"turn": 1, "step": 1})
    asking.at(9, "request/context", {})
    calling = Log()
    calling.at(0, "turn/start", {"turn": 1})
    calling.step(0, 10, "a", "b")
    calling.call(10, "a")
    calling.call(10, "b")
    calling.result(20, "b")

    assert one_step(asking).requests == (Span("model", 5, 9),)
    assert one_step(calling).calls == (Span("bash", 10, 20), Span("bash", 10, 20))
    calling.at(30, "step/end", {"turn": 1, "step": 1})
    assert one_step(calling).calls[0] == Span("bash", 10, 30, is_error=True)


def test_a_clock_that_is_set_back_makes_nothing_negative_and_hides_nothing_after_it() -> None:
    """SL-09: an hour back between the reply and its call; what comes after is measured from there."""
    hour = 3_600_000
    log = Log()
    log.at(0, "turn/start", {"turn": 1})
    log.step(0, 1000, "a")
    log.call(1000 - hour, "a")
    log.result(1500 - hour, "a")
    log.at(1500 - hour, "step/end", {"turn": 1, "step": 1})
    log.at(1500 - hour, "turn/end", {"turn": 1, "reason": {"kind": "completed"}})

    [turn] = timeline(log.events)

    assert turn.steps[0].calls == (Span("bash", 1000, 1500),)
    assert (turn.start_ms, turn.end_ms) == (0, 1500)
    assert "turn 1: completed in 1.5 s" in "".join(drawn([turn], Look()))


def test_the_time_between_turns_is_left_out_of_the_drawing_and_told() -> None:
    def turn(number: int, start: int) -> TurnTimes:
        request = Span("model", start, start + 1000)
        step = StepTimes(number, 1, start, start + 1000, (request,), ())
        return TurnTimes(number, start, start + 1000, "completed", (step,))

    lines = list(drawn([turn(1, 0), turn(2, 8 * 3_600_000)], Look(columns=53)))

    assert lines[0] == "timeline  2.0 s, a column is 100 ms\n"
    assert lines[2] == "turn 1: completed in 1.0 s\n"
    assert lines[3] == f"1.1 model              {'█' * 10}{' ' * 10}     1.0 s\n"
    assert lines[4] == "turn 2: completed in 1.0 s, 8 h 00 m later\n"
    assert lines[5] == f"2.1 model              {' ' * 10}{'█' * 10}     1.0 s\n"


@pytest.mark.parametrize(("took", "told"), [(6, "0.3 ms"), (97, "4.8 ms"), (200, "10 ms")])
def test_a_column_may_stand_for_less_than_a_millisecond(took: int, told: str) -> None:
    step = StepTimes(1, 1, 0, took, (Span("model", 0, took),), ())

    lines = list(drawn([TurnTimes(1, 0, took, "completed", (step,))], Look(columns=53)))

    assert lines[0].endswith(f", a column is {told}\n")


TIMES = st.integers(-(10**13), 10**13)


@given(st.lists(TIMES, min_size=8, max_size=8), st.integers(20, 200))
def test_any_times_are_drawn_inside_of_the_terminal(times: list[int], columns: int) -> None:
    log = Log()
    log.at(times[0], "turn/start", {"turn": 1})
    log.step(times[1], times[2], "a", "b")
    log.call(times[3], "a", "名前が長い道具の名前です")
    log.call(times[4], "b", "\x1b[31m" * 9)
    log.result(times[5], "a")
    log.result(times[6], "b")
    log.at(times[7], "step/end", {"turn": 1, "step": 1})

    turns = timeline(log.events)
    rows = [text for text in drawn(turns, Look(columns=columns)) if text.startswith((" ", "1."))]

    assert all(
        span.end_ms >= span.start_ms for step in turns[0].steps for span in (*step.calls, *step.requests)
    )
    assert all(width(row.rstrip("\n")) <= max(columns, 45) for row in rows)
    assert not any("\x1b" in row for row in rows)


@given(st.data())
def test_a_log_that_opens_has_a_timeline_whatever_it_holds(data: st.DataObject) -> None:
    events = body()
    for _ in range(data.draw(st.integers(1, 3))):
        event = data.draw(st.sampled_from(events))
        if isinstance(event["data"], dict):
            event["data"][data.draw(st.sampled_from(list(event["data"]) or ["x"]))] = data.draw(
                st.sampled_from([None, -1, "x", [], {}, True])
            )
    try:
        log = restore(header(), list(events)).view
    except SessionError:
        return
    assert list(drawn(timeline(log.walk()), Look()))


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (59_900, "59.9 s"),
        (59_990, "1 m 00 s"),
        (125_000, "2 m 05 s"),
        (3_599_000, "59 m 59 s"),
        (3_600_000, "1 h 00 m"),
        (90_000_000, "25 h 00 m"),
        (86_400_000 * 400, "400 d"),
    ],
)
def test_durations_for_people(ms: int, text: str) -> None:
    assert duration(ms) == text
