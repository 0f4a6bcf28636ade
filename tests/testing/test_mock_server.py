"""The mock server: its script, what consumes it, what it records, and the command."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dsh.testing.mock_server import BEHAVIOURS, RANDOM_WEIGHTS, MockModelServer, MockOptions, Rules, scripted
from dsh.testing.mock_server import __main__ as program
from dsh.testing.mock_server.behaviour import ALL_BEHAVIOURS
from dsh.testing.mock_server.dialect.anthropic import ANTHROPIC
from dsh.testing.mock_server.dialect.chat import OPENAI
from dsh.testing.mock_server.plan import Pause, Reset
from tests.aio import aio

BODY = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]}'


def post(
    url: str, body: bytes = BODY, *, method: str = "POST", headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """One request without our own client: status and body."""
    request = urllib.request.Request(
        url, body if method == "POST" else None, dict(headers or {}), method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def text_in(stream: bytes) -> str:
    """The content of a well-formed stream."""
    text = ""
    for block in stream.decode().split("\n\n"):
        if block.startswith("data: {"):
            for choice in json.loads(block[6:])["choices"]:
                text += choice["delta"].get("content") or ""
    return text


def test_the_script_is_played_in_order_and_its_end_is_an_error() -> None:
    with MockModelServer(["success", "server_error"]).in_thread() as server:
        url = f"{server.base_url}/chat/completions"
        first, second, third = post(url), post(url), post(url)

        assert (first[0], text_in(first[1])) == (200, MockOptions().success_text)
        assert first[1].endswith(b"data: [DONE]\n\n")
        assert second[0] == third[0] == 500
        assert json.loads(third[1])["error"]["code"] == "MOCK_SCRIPT_EXHAUSTED"
    assert [(r.attempt, r.behavior, r.outcome) for r in server.requests] == [
        (1, "success", "completed"),
        (2, "server_error", "server_error"),
        (3, "exhausted", "server_error"),
    ]


def test_the_last_entry_repeats_where_it_is_asked_to() -> None:
    with MockModelServer(["empty", "success"], repeat_last=True).in_thread() as server:
        url = f"{server.base_url}/chat/completions"
        assert [text_in(post(url)[1]) for _ in range(3)] == ["", *[MockOptions().success_text] * 2]


def test_wrong_requests_consume_nothing() -> None:
    with MockModelServer(["success"], api_key="k").in_thread() as server:
        base, url = server.base_url, f"{server.base_url}/chat/completions"
        key = {"authorization": "Bearer k"}

        assert post(f"{base}/completions", headers=key)[0] == 404
        assert post(f"{base}/models", headers=key)[0] == 405
        assert post(f"{base}/models", method="GET")[0] == 401
        assert post(url, method="GET", headers=key)[0] == 405
        assert post(url)[0] == 401
        for wrong in ("Bearer x", "Basic k", "k"):
            assert post(url, headers={"authorization": wrong})[0] == 401
        assert post(url, b"{nope", headers=key)[0] == 400
        assert (server.requests, server.listings) == ([], 0)
        assert post(f"{base}/any/prefix/chat/completions?x=1", headers=key)[0] == 200


def test_a_request_is_recorded_with_headers_and_body() -> None:
    with MockModelServer().in_thread() as server:
        post(f"{server.base_url}/chat/completions", headers={"x-thing": "1"})
    (record,) = server.requests

    assert record.path == "/v1/chat/completions"
    assert record.headers["x-thing"] == "1"
    assert record.body == json.loads(BODY)
    assert record.chunks_sent > 3


def test_chance_is_seeded() -> None:
    def played(seed: int) -> list[str]:
        weights = {"success": 1, "empty": 1, "server_error": 1}
        server = MockModelServer(["random"], repeat_last=True, seed=seed, random_weights=weights)
        with server.in_thread():
            for _ in range(8):
                post(f"{server.base_url}/chat/completions")
        assert {record.script_behavior for record in server.requests} == {"random"}
        return [record.behavior for record in server.requests]

    assert played(1) == played(1)
    assert played(1) != played(2)
    assert sum(RANDOM_WEIGHTS.values()) == 100
    assert set(RANDOM_WEIGHTS) <= set(BEHAVIOURS)


def test_chance_depends_on_neither_dialect_nor_process() -> None:
    code = """if True:
        from dsh.testing.mock_server.behaviour import RANDOM_WEIGHTS
        from dsh.testing.mock_server.dialect.anthropic import ANTHROPIC
        from dsh.testing.mock_server.dialect.chat import DEEPSEEK, OPENAI
        from dsh.testing.mock_server.plan import MockOptions
        from dsh.testing.mock_server.script import Script
        for dialect in (DEEPSEEK, OPENAI, ANTHROPIC):
            script = Script(["random"], {}, repeat_last=True, seed=7, weights=None)
            drawn = [script.plan(script.next(""), dialect, MockOptions(), {}) for _ in range(200)]
            print([name for name, _ in drawn], hash("x"), *(plan.steps for _, plan in drawn), sep="\\n")
    """
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\n")
        for seed in ("1", "2")
    ]
    hashes = [[line for line in lines if re.fullmatch(r"-?\d+", line)] for lines in printed]
    said = [[line for line in lines if not re.fullmatch(r"-?\d+", line)] for lines in printed]
    assert hashes[0] != hashes[1] and said[0] == said[1]
    assert len({line for line in said[0] if line.startswith("['")}) == 1


def test_sessions_may_have_scripts_of_their_own() -> None:
    own: list[Any] = [{"text": ["mine"]}]
    with MockModelServer(["success"], repeat_last=True, sessions={"s-1": own}).in_thread() as server:
        url = f"{server.base_url}/chat/completions"
        other = text_in(post(url)[1])
        assert text_in(post(url, headers={"x-deepseek-harness-session-id": "s-2"})[1]) == other
        mine = text_in(post(url, headers={"x-deepseek-harness-session-id": "s-1"})[1])

        assert (mine, other) == ("mine", MockOptions().success_text)


def test_a_scripted_reply_is_played_as_written() -> None:
    reply = {
        "reasoning": ["hm"],
        "text": ["a", "b"],
        "repeat": 2,
        "tools": [{"id": "c", "name": "t", "raw": "{}xy", "split": 3}],
        "usage": {"prompt_tokens": 1},
    }
    sent = b"".join(step for step in scripted(reply).steps if isinstance(step, bytes))
    events = [json.loads(line[6:]) for line in sent.decode().split("\n\n") if line.startswith("data: {")]
    deltas = [event["choices"][0]["delta"] for event in events]

    assert [delta.get("content") for delta in deltas if delta.get("content")] == ["a", "b", "a", "b"]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert [call["function"]["arguments"] for call in calls] == ["", "{}x", "y"]
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert events[-1]["usage"] == {"prompt_tokens": 1}
    with pytest.raises(ValueError, match=r"unknown field `txt`.*members are: reasoning"):
        scripted({"txt": []})


def test_a_scripted_reply_may_pause_break_off_and_be_raw() -> None:
    steps = scripted({"raw": ["a\udcff", "b"], "delay_ms": 7, "cut": True}).steps
    assert steps == (b"a\xff", Pause(7), b"b", Pause(7), Reset())
    assert scripted({"raw": ["a"]}).steps == (b"a",)
    calls: list[dict[str, Any]] = [{}, {"args": []}]
    blank = [scripted({"tools": [{"id": "c", "name": "t", **call}]}).sent() for call in calls]
    assert [sent.count(b'"arguments":""') for sent in blank] == [2, 1]


def test_one_server_speaks_to_each_request_in_its_own_dialect() -> None:
    body = {"model": "m", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    head = {"anthropic-version": "2023-06-01"}
    with MockModelServer(["success", "success", "tool_calls_same_id"]).in_thread() as server:
        chat = post(f"{server.base_url}/chat/completions")
        messages = post(f"{server.anthropic_url}/v1/messages", json.dumps(body).encode(), headers=head)
        foreign = post(f"{server.anthropic_url}/v1/messages", json.dumps(body).encode(), headers=head)

    assert text_in(chat[1]) == MockOptions().success_text
    assert messages[1].startswith(b"event: message_start\n")
    assert foreign[0] == 500 and b"the anthropic dialect has no behaviour tool_calls_same_id" in foreign[1]
    assert [record.dialect for record in server.requests] == ["deepseek", "anthropic", "anthropic"]


def test_what_the_server_reasoned_before_a_call_is_demanded_back() -> None:
    call = {"id": "mock-call-1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    made: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [call]}
    asked = json.loads(BODY)
    result = {"role": "tool", "tool_call_id": "mock-call-1", "content": "done"}
    with MockModelServer(["reasoning_tool_call", "success"]).in_thread() as server:
        url = f"{server.base_url}/chat/completions"
        post(url)
        for reasoning, status in ({}, 400), ({"reasoning_content": MockOptions().reasoning_text}, 200):
            messages = [*asked["messages"], {**made, **reasoning}, result]
            assert post(url, json.dumps({**asked, "messages": messages}).encode())[0] == status


def test_a_refused_request_is_kept_with_its_reason() -> None:
    with MockModelServer(dialect="openai").in_thread() as server:
        status, answer = post(f"{server.base_url}/chat/completions", b'{"model": "m", "stream": true}')

    assert status == 400
    [refused] = server.refused
    assert refused.reason in json.loads(answer)["error"]["message"] and "messages" in refused.reason
    assert (refused.status, refused.path, server.requests) == (400, "/v1/chat/completions", [])


def test_a_scripted_reply_is_told_in_the_words_of_each_dialect() -> None:
    reply = {
        "reasoning": ["hm"],
        "text": ["a"],
        "tools": [{"id": "c", "name": "t", "args": ["{}"]}],
        "usage": {"prompt_tokens": 10, "prompt_cache_hit_tokens": 4, "completion_tokens": 3},
    }
    own = scripted(reply, ANTHROPIC).sent().decode()
    events = [json.loads(line[6:]) for line in own.splitlines() if line.startswith("data: ")]

    assert [event["content_block"]["type"] for event in events if "content_block" in event] == [
        "thinking",
        "text",
        "tool_use",
    ]
    counts = events[0]["message"]["usage"]
    assert (counts["input_tokens"], counts["cache_read_input_tokens"]) == (6, 4)
    assert events[-2]["delta"]["stop_reason"] == "tool_use" and events[-2]["usage"] == {"output_tokens": 3}
    assert b'"reasoning":"hm"' in scripted(reply, OPENAI).sent()


def test_the_page_names_every_behaviour_and_no_other() -> None:
    page = (
        (Path(__file__).parents[2] / "docs" / "testing.md")
        .read_text("utf-8")
        .partition("### Behaviours")[2]
        .partition("Besides")[0]
    )
    rows = page.replace("framings of `success`", "")
    assert sorted(re.findall(r"`(\w+)`", rows)) == sorted(ALL_BEHAVIOURS)


def test_an_unknown_behaviour_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="known: random, success"):
        MockModelServer(["sucess"])


@aio
async def test_a_client_that_leaves_is_noticed() -> None:
    async with MockModelServer(["slow_success", "stall"], options=MockOptions(chunk_delay_ms=30)) as server:
        for expected in ("client_closed", "stalled"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            head = f"POST /chat/completions HTTP/1.1\r\ncontent-length: {len(BODY)}\r\n\r\n"
            writer.write(head.encode() + BODY)
            await reader.readuntil(b"\r\n\r\n")
            writer.close()
            async with asyncio.timeout(30):
                while server.requests[-1].outcome is None:
                    await asyncio.sleep(0.01)
            assert server.requests[-1].outcome == expected


@aio
async def test_a_chunked_request_body_is_read_and_connections_are_kept() -> None:
    async with MockModelServer(["success"], repeat_last=True, rules=Rules(is_strict=False)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for _ in range(2):
            writer.write(b"POST /chat/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n")
            writer.write(b"1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n")
            await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()

        assert [record.body for record in server.requests] == [{}, {}]
        assert server.connections == 1


@aio
async def test_a_refusal_keeps_the_connection() -> None:
    async with MockModelServer(["server_error", "success"]) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        request = b"POST /chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
        writer.write(request * 2)
        await reader.readuntil(b"data: [DONE]")
        writer.close()
        assert (len(server.requests), server.connections) == (2, 1)


def test_the_thread_ends_with_the_block() -> None:
    with MockModelServer().in_thread():
        assert any(thread.name == "mock model server" for thread in threading.enumerate())
    assert not any(thread.name == "mock model server" for thread in threading.enumerate())


# -- the command -----------------------------------------------------------------------------------


class Command:
    """The server as a process."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dsh.testing.mock_server", *args], stdout=subprocess.PIPE, text=True
        )
        self.ready = self.line()

    def line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        code = self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_command_tells_what_happens_and_ends_on_a_signal(number: int, code: int) -> None:
    command = Command("--sequence", "success", "--seed", "7", "--success-text", "hi", "--api-key", "k")
    assert command.ready["type"] == "ready"
    assert command.ready["randomSeed"] == 7
    status, body = post(f"{command.ready['baseURL']}/chat/completions", headers={"authorization": "Bearer k"})
    request, result = command.line(), command.line()

    assert (status, text_in(body)) == (200, "hi")
    assert (request["type"], request["scriptBehavior"]) == ("request", "success")
    assert request["headers"]["authorization"] == "***"
    assert result.pop("chunksSent") > 1
    assert result == {"type": "result", "attempt": 1, "behavior": "success", "outcome": "completed"}
    assert command.end(number) == code


def test_the_command_speaks_as_anthropic_and_hides_its_key() -> None:
    command = Command("--dialect", "anthropic", "--sequence", "pings", "--api-key", "k", "--models", "a, b")
    base = command.ready["baseURL"]
    assert not base.endswith("/v1")
    head = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    body = b'{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hi"}]}'
    status, answer = post(f"{base}/v1/messages", body, headers=head)
    request = command.line()

    assert status == 200 and answer.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
    assert (request["dialect"], request["headers"]["x-api-key"]) == ("anthropic", "***")
    listed = json.loads(post(f"{base}/v1/models", method="GET", headers=head)[1])
    assert [model["id"] for model in listed["data"]] == ["a", "b"]
    assert command.end(signal.SIGTERM) == 143


def test_the_command_can_refuse_and_can_be_lenient() -> None:
    strict = Command("--dialect", "openai", "--refuse", "stream_options,role:developer")
    lenient = Command("--lenient")
    body = json.dumps({**json.loads(BODY), "stream_options": {}}).encode()

    status, answer = post(f"{strict.ready['baseURL']}/chat/completions", body)
    assert status == 400 and b"unsupported parameter: 'stream_options'" in answer
    assert post(f"{lenient.ready['baseURL']}/chat/completions", b"{}")[0] == 200
    assert strict.end(signal.SIGTERM) == lenient.end(signal.SIGTERM) == 143


def test_connection_refused_binds_late() -> None:
    command = Command("--sequence", "connection_refused,success", "--listen-delay-ms", "300")
    url = f"{command.ready['baseURL']}/chat/completions"
    with pytest.raises(urllib.error.URLError):
        post(url)
    for _ in range(100):
        try:
            assert post(url)[0] == 200
            break
        except urllib.error.URLError:
            threading.Event().wait(0.05)
    else:
        raise AssertionError("the server never listened")
    assert command.end(signal.SIGTERM) == 143


Refused = Callable[..., str]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs the command in this process, up to where it would serve; answers its one line."""

    async def served(*_: Any) -> int:
        return 0

    def run(*words: str) -> str:
        try:
            code: object = program.main(list(words))
        except SystemExit as error:
            code = error.code
        out, line = capsys.readouterr()
        assert (code, out) == (2, "")
        assert line.startswith("mock_server: ") and line.count("\n") == 1
        return line

    monkeypatch.setattr(program, "_run", served)
    return run


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--chunk-size", "0"], "chunk_size"),
        (["--chunk-delay-ms", "-1"], "chunk_delay_ms"),
        (["--retry-after-ms", "nan"], "retry_after_ms"),
        (["--seed", "4294967296"], "seed"),
        (["--random-weights", '{"sucess": 1}'], "sucess"),
        (["--random-weights", '{"success": -1}'], "weights"),
        (["--random-weights", '{"success": 0}'], "weights"),
        (["--random-weights", "[1]"], "weights"),
        (["--random-weights", '{"success": "x"}'], "weights"),
        (["--random-weights", "{"], "weights"),
        (["--seed", "1.5"], "--seed"),
        (["--dialect", "gemini"], "--dialect"),
        (["--listen-delay-ms", "nan"], "listen_delay_ms"),
        (["--request-id", "a\nb"], "request_id"),
        (["--refuse", "stream_option"], "stream_option"),
        (["--sequence", ","], "at least one entry"),
        (["--sequence", "nope"], "unknown behaviour 'nope'"),
        (["--sequence", "success,connection_refused"], "unknown behaviour 'connection_refused'"),
        (["more"], "more"),
        (["--script", "/nowhere.json"], "/nowhere.json"),
        (["--host", ""], "host"),
        (["--port", "70000"], "port"),
    ],
)
def test_a_wrong_option_is_exit_2_in_one_line(words: list[str], says: str, refused: Refused) -> None:
    assert says in refused(*words)


@pytest.mark.parametrize("script", [b"{", b"{}", b"[]", b"\xff", b"[" * 100_000, b'["nope"]'])
def test_a_wrong_script_is_exit_2_in_one_line(tmp_path: Path, script: bytes, refused: Refused) -> None:
    file = tmp_path / "script.json"
    file.write_bytes(script)
    refused("--script", str(file))


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (1, "unknown behaviour 1"),
        ("nope", "unknown behaviour 'nope'"),
        ({"txt": []}, "unknown field `txt`"),
        ({"text": "abc"}, "$.text"),
        ({"text": [5]}, "$.text[0]"),
        ({"tools": [{"id": "a"}]}, "$.tools[0]"),
        ({"tools": [{"id": "a", "name": "b", "raw": "x", "split": 0}]}, "$.tools[0].split"),
        ({"status": "x"}, "$.status"),
        ({"status": 99_999}, "$.status"),
        ({"status": 500, "headers": {"a": 5}}, "$.headers"),
        ({"raw": 5}, "$.raw"),
        ({"text": ["a"], "repeat": 10**11}, "$.repeat"),
        ({"text": ["a"], "delay_ms": -1}, "$.delay_ms"),
        ({"finish": 3}, "$.finish"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_place(entry: Any, says: str) -> None:
    for given in ([entry], [lambda body: {}, entry]):
        with pytest.raises(ValueError, match=re.escape(says)):
            MockModelServer(given)
    with pytest.raises(ValueError, match=re.escape(says)):
        MockModelServer(sessions={"s": [entry]})


def test_an_entry_that_fails_is_an_answer() -> None:
    def failing(body: Any) -> Any:
        return body["nothing"]

    with MockModelServer([failing, lambda body: {"text": 5}, "success"]).in_thread() as server:
        url = f"{server.base_url}/chat/completions"
        first, second, third = post(url), post(url), post(url)

    assert (first[0], second[0], third[0]) == (500, 500, 200)
    assert json.loads(first[1])["error"]["code"] == "MOCK_ENTRY_FAILED" and b"KeyError: 'nothing'" in first[1]
    assert b"$.text" in second[1]


def test_usage_that_cannot_be_counted_is_sent_as_it_is() -> None:
    sent = scripted({"text": ["a"], "usage": {"prompt_tokens": "many"}}, ANTHROPIC).sent()
    assert b'"usage":{"prompt_tokens":"many"}' in sent


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"POST /chat/completions HTTP/1.1\r\ncontent-length: many\r\n\r\n",
        b"POST /chat/completions HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
        b"POST /chat/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
@aio
async def test_what_is_no_request_is_refused_and_the_server_goes_on(sent: bytes) -> None:
    async with MockModelServer() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent)
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        assert [refused.reason for refused in server.refused] == ["this is no HTTP request"]
        assert (await asyncio.to_thread(post, f"{server.base_url}/chat/completions"))[0] == 200


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_object_is_refused_by_a_lenient_server_too(body: bytes) -> None:
    with MockModelServer(["tool_call_success"], rules=Rules(is_strict=False)).in_thread() as server:
        for url in (f"{server.base_url}/chat/completions", f"{server.anthropic_url}/v1/messages"):
            assert post(url, body)[0] == 400
    assert server.requests == []


@pytest.mark.parametrize("taken", ["port", "host"])
def test_an_address_that_cannot_be_had_is_exit_2(taken: str) -> None:
    with MockModelServer().in_thread() as server:
        words = ["--port", str(server.port)] if taken == "port" else ["--host", "256.256.256.256"]
        run = subprocess.run(
            [sys.executable, "-m", "dsh.testing.mock_server", *words],
            capture_output=True,
            text=True,
            timeout=20,
        )
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("mock_server: ") and run.stderr.count("\n") == 1
