"""One thing broken in a sound log, each in turn: it is found, at its event and at its line of the file."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from dsh.cli.sessions.place import Place
from dsh.cli.sessions.verify import verify as verify_command
from dsh.persistence.error import LogRefusal
from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.view import build_view
from dsh.session.error import SessionError
from dsh.session.restore import restore
from dsh.session.value import decode_strict, encode
from dsh.session.verify.finding import Finding
from dsh.session.verify.log import verify
from tests.corpus import CORPUS, needs_corpus
from tests.session.build import header
from tests.session.sound import Events, body, find, insert, remove, with_digests


def findings(events: Events) -> tuple[Finding, ...] | None:
    """What is found in this log; None where it does not open."""
    try:
        return verify(restore(header(), deepcopy(events)).view).findings
    except SessionError:
        return None


def codes(events: Events) -> list[tuple[str, str, int | None]]:
    found = findings(events)
    assert found is not None
    return [(one.level, one.code, one.seq) for one in found]


# -- every event ---------------------------------------------------------------------------------


def may_be_missing(event: dict[str, Any]) -> bool:
    """Whether the log means the same without the event, or something else that is as good."""
    chunk = event["data"].get("chunk", {})
    return (
        event["type"] in ("llm/retry-started", "request/context")
        or event["data"].get("removedCount") == 1  # the message waits on
        or event["type"] == "turn/end"  # cut off, and closed by repair
        or chunk.get("text") == "lost"  # of the attempt that failed
        or (chunk.get("type") in ("finish", "block-start") and "replayState" not in chunk)
    )


def test_an_event_that_was_taken_out_is_missed() -> None:
    events = with_digests()
    for seq, event in enumerate(events):
        less = deepcopy(events)
        remove(less, seq)
        is_last_digest = event["type"] == "request/digest" and event["data"]["attempt"] == 2
        expected = may_be_missing(event) or is_last_digest
        assert (findings(less) == ()) is expected, event


def test_an_event_that_is_there_twice_is_noticed() -> None:
    events = with_digests()
    for seq, event in enumerate(events):
        more = deepcopy(events)
        envelope = {key: event[key] for key in event.keys() - {"type", "seq", "time", "data"}}
        insert(more, seq + 1, event["type"], deepcopy(event["data"]), **deepcopy(envelope))
        is_of_failed = event["type"] == "llm/retry" or event["data"].get("chunk", {}).get("text") == "lost"
        is_second_end = event["type"] == "assistant/chunk" and events[seq + 1]["type"] == "llm/retry"
        assert (findings(more) == ()) is (is_of_failed or is_second_end), event


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a JSON value with each of its keys that holds a plain value."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, dict | list):
            yield from leaves(item)
        else:
            yield value, key


SAID = ("user/message", "request/header", "assistant/message", "tool/call", "tool/result")
FREE = {"id", "isError", "reason"}
"""Names of messages are anything, `isError` is the tool's word, the reason has a test of its own."""


def test_whatever_was_said_or_asked_cannot_be_changed_unseen_under_digests() -> None:
    """The last reply is in no later request; its pieces hold it."""
    events = with_digests()
    for seq, event in enumerate(events):
        if event["type"] not in SAID:
            continue
        for position, (_, key) in enumerate(list(leaves(event["data"]))):
            changed = deepcopy(events)
            container, _ = list(leaves(changed[seq]["data"]))[position]
            value = container[key]
            container[key] = (
                not value if isinstance(value, bool) else value + ("~" if type(value) is str else 1)
            )
            assert findings(changed) != () or key in FREE, (event, key)


# -- one by one ----------------------------------------------------------------------------------


def test_a_reply_that_was_streamed_whole_and_is_no_message() -> None:
    events = body()
    remove(events, find(events, "assistant/message", 1)["seq"])
    end = find(events, "step/end", 1)["seq"]

    assert codes(events) == [("error", "REPLY_MISSING", end)]

    find(events, "turn/end")["data"]["reason"] = {"kind": "interrupted"}
    assert codes(events) == [], "a kill came between"


def other(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda event: event["data"].update({key: value})


@pytest.mark.parametrize(
    ("kind", "change", "code"),
    [
        ("request/context", other("model", "acme-2"), "CONTEXT_DIFFERS"),
        ("request/context", other("provider", "other"), "CONTEXT_DIFFERS"),
        ("llm/retry-started", other("retryId", "r2"), "RETRY"),
        ("llm/retry-started", other("retry", 2), "RETRY"),
        ("request/digest", other("step", 2), "DIGEST_PLACE"),
        ("request/digest", other("turn", 0), "DIGEST_PLACE"),
        ("tool/result", other("error", {"name": "E", "code": "TIMEOUT"}), "RESULT_DIFFERS"),
    ],
)
def test_what_two_events_say_differently(
    kind: str, change: Callable[[dict[str, Any]], None], code: str
) -> None:
    events = with_digests()
    change(find(events, kind))

    assert ("error", code, find(events, kind)["seq"]) in codes(events)


def test_a_retry_names_the_open_step() -> None:
    events = body()
    find(events, "llm/retry")["data"]["step"] = 2
    find(events, "llm/retry-started")["data"]["step"] = 2

    assert codes(events) == [("error", "RETRY", find(events, "llm/retry")["seq"])]


def test_a_retry_that_nobody_announced() -> None:
    events = body()
    retry = find(events, "llm/retry")["seq"]
    remove(events, retry)

    assert ("error", "RETRY", retry) in codes(events)


def test_a_reply_without_a_digest_among_those_that_have_one_is_a_warning() -> None:
    events = with_digests()
    remove(events, find(events, "request/digest", 2)["seq"])

    assert codes(events) == [("warning", "DIGEST_MISSING", find(events, "assistant/message", 1)["seq"])]


# -- recorded logs -------------------------------------------------------------------------------


def spoilt(line: dict[str, Any]) -> bool:
    """Change what a recorded event says, where another one says the same; whether it does."""
    data = line["data"]
    match line["type"]:
        case "tool/call":
            data["arguments"] += " "
        case "request/header":
            data["reason"] = "nothing"
        case "assistant/message" if line.get("sourceEventSeqs"):
            data["message"]["content"].append({"type": "text", "text": "!"})
        case "tool/result" if line.get("sourceEventSeqs"):
            line["sourceEventSeqs"] = [0]
        case _:
            return False
    return True


@needs_corpus
def test_a_recorded_event_that_was_changed_is_found_at_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A session in which runs are packed, so that lines and seqs are not the same."""
    monkeypatch.setenv("DSH_HOME", str(tmp_path / "home"))
    source = CORPUS / "fixtures" / "jsonrpc-agent-bash-tool-session.jsonl"
    lines = source.read_bytes().splitlines()
    path = tmp_path / "log.jsonl"
    tried = 0
    for number, text in enumerate(lines[1:], 2):
        line = decode_strict(text)
        if "seq" not in line or not spoilt(line):
            continue
        path.write_bytes(b"\n".join([*lines[: number - 1], encode(line), *lines[number:]]) + b"\n")
        code = verify_command([str(path)], Place(), everywhere=False, as_json=True)
        [shown] = json.loads(capfdbinary.readouterr().out)["logs"]
        tried += 1
        assert code == 1, line
        assert (line["seq"], number) in {(one["seq"], one["line"]) for one in shown["findings"]}, line
    assert tried >= 5


@needs_corpus
def test_a_recorded_log_has_the_same_findings_packed_and_event_by_event() -> None:
    for path in sorted(CORPUS.glob("fixtures/*.jsonl"))[:20]:
        try:
            view = build_view(read_log(path))
        except LogRefusal:
            continue
        loose = verify(restore(view.header, [event.to_json() for event in view.events()]).view)
        assert loose == verify(view), path.name
