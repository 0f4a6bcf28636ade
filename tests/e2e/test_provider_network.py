"""The network between the program and its model: names, ports, TLS, proxies, bytes; and where keys go."""

import json
import socket
import ssl
import threading
from pathlib import Path

import pytest

from dsh.testing.mock_server import MockModelServer
from dsh.testing.workspace import Finished, Workspace, log_rows, log_text
from tests.e2e.raw_server import HEAD, STREAM, Play, response, saying, serving, streaming

TLS = Path(__file__).parent.parent / "data" / "tls"
KEY = "odd~key~0123456789"
"""Of no form that gives a key away."""
PATCH = """
- id: llm-deepseek
  config:
    streamIdleTimeoutMs: {idle}
    retryPolicy: {{maxRetries: {budget}, backoff: {{initialDelayMs: 1, maxDelayMs: 2}}}}
"""


def ask(
    space: Workspace, url: str, env: dict[str, str] | None = None, *, budget: int = 0, idle: int = 20_000
) -> Finished:
    """One task against an endpoint."""
    space.write("p.yml", PATCH.format(budget=budget, idle=idle))
    space.use_model(url, KEY)
    done = space.run("run", "--patch", "p.yml", "say it", env=env or {})
    assert "Traceback" not in done.stderr
    assert KEY not in done.stderr + done.stdout
    assert all(KEY.encode() not in log_text(log) for log in space.logs())
    return done


def failed(done: Finished, code: str) -> str:
    """The one line that a failure leaves."""
    assert (done.code, done.stdout) == (1, "\n")
    [line] = done.errors
    assert line.startswith(f"dsh: {code}: ")
    return line


def retries(space: Workspace) -> int:
    [log] = space.logs()
    return sum(row["type"] == "llm/retry" for row in log_rows(log))


def delta(text: str) -> bytes:
    event = {"choices": [{"index": 0, "delta": {"content": text}}]}
    return b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"


# -- where to ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (
            "http://127.0.0.1:9/v1",
            "cannot reach http://127.0.0.1:9/v1: Connection refused; check host and port",
        ),
        ("http://no-such-host.invalid/v1", "check the host name and the network"),
        ("https://no-such-host.invalid", "check the host name and the network"),
    ],
)
def test_an_endpoint_that_cannot_be_reached_is_tried_again_and_named(
    space: Workspace, url: str, words: str
) -> None:
    assert words in failed(ask(space, url, budget=2), "TRANSPORT")
    assert retries(space) == 2


@pytest.mark.parametrize(
    "url",
    [
        "api.deepseek.com",
        "ftp://host/v1",
        "http:///v1",
        "http://host:99999/v1",
        "http://ho st/v1",
        "http://host/v1\nX",
        "http://user:pa55word@host/v1",
        "user:pa55word@host/v1",
        "http://host/v1#part",
    ],
)
def test_a_base_url_that_cannot_be_one_is_told_at_once_and_not_shown(space: Workspace, url: str) -> None:
    line = failed(ask(space, url, budget=2), "INVALID_BASE_URL")

    assert "DEEPSEEK_BASE_URL" in line and "pa55" not in line
    assert retries(space) == 0
    [log] = space.logs()
    assert b"pa55" not in log_text(log)


def test_a_query_of_the_base_url_stays_a_query(space: Workspace) -> None:
    with MockModelServer().in_thread() as server:
        done = ask(space, f"{server.base_url}/?version=1")

    assert (done.code, done.stderr) == (0, "")
    assert server.requests[0].path == "/v1/chat/completions?version=1"


def test_a_wrong_path_is_final(space: Workspace) -> None:
    with serving(saying(response("404 Not Found", b"<title>404</title><p>nothing here"))) as server:
        line = failed(ask(space, f"http://127.0.0.1:{server.port}/nowhere", budget=2), "HTTP_404")

    assert f"http://127.0.0.1:{server.port}/nowhere" in line and "<" not in line
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"]
)
def test_a_redirect_takes_the_key_nowhere(space: Workspace, status: str) -> None:
    with serving(saying(response("200 OK", STREAM))) as other:
        location = f"http://127.0.0.1:{other.port}/chat/completions"
        with serving(saying(response(status, location=location))) as server:
            line = failed(ask(space, f"http://127.0.0.1:{server.port}", budget=2), f"HTTP_{status[:3]}")

    assert "redirects" in line
    assert (len(server.requests), other.requests) == (1, [])


# -- TLS ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "localhost.pem", TLS / "localhost.key.pem")
    return context


def test_a_certificate_that_nobody_vouches_for_gets_no_key(space: Workspace, tls: ssl.SSLContext) -> None:
    with serving(saying(response("200 OK", STREAM)), tls=tls) as server:
        line = failed(ask(space, f"https://localhost:{server.port}"), "TRANSPORT")

    assert "certificate cannot be trusted: self-signed" in line and "SSL_CERT_FILE" in line
    assert server.requests == []


def test_an_authority_of_the_users_own_is_trusted(space: Workspace, tls: ssl.SSLContext) -> None:
    with serving(saying(response("200 OK", STREAM)), tls=tls) as server:
        done = ask(space, f"https://localhost:{server.port}", {"SSL_CERT_FILE": str(TLS / "localhost.pem")})

    assert (done.code, done.stdout, done.stderr) == (0, "fine\n", "")
    assert f"Bearer {KEY}".encode() in server.requests[0]


@pytest.mark.parametrize("file", ["localhost.key.pem", "missing.pem"])
def test_a_ca_file_that_cannot_be_used_is_told_at_once(space: Workspace, file: str) -> None:
    done = ask(space, "https://localhost:9", {"SSL_CERT_FILE": str(TLS / file)}, budget=2)

    line = failed(done, "INVALID_HTTP_SETTINGS")
    assert "CA store" in line and "SSL_CERT_FILE" in line
    assert retries(space) == 0


# -- proxies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_the_usual_variables_send_requests_through_a_proxy(space: Workspace, variable: str) -> None:
    with serving(saying(response("200 OK", STREAM))) as proxy:
        done = ask(space, "http://model.invalid/v1", {variable: f"http://us:pa55word@127.0.0.1:{proxy.port}"})

    assert (done.code, done.stdout, done.stderr) == (0, "fine\n", "")
    assert proxy.requests[0].startswith(b"POST http://model.invalid/v1/chat/completions HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic " in proxy.requests[0]


def test_a_host_may_be_left_out_of_the_proxy(space: Workspace) -> None:
    with MockModelServer().in_thread() as server:
        done = ask(space, server.base_url, {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"})

    assert (done.code, done.stderr) == (0, "")


@pytest.mark.parametrize("url", ["http://model.invalid/v1", "https://model.invalid/v1"])
def test_a_proxy_that_is_down_is_named_without_its_password(space: Workspace, url: str) -> None:
    done = ask(space, url, {"ALL_PROXY": "http://us:pa55word@127.0.0.1:9"})

    assert "(through the proxy 127.0.0.1:9)" in failed(done, "TRANSPORT")
    assert "pa55" not in done.stderr


def test_a_proxy_that_refuses_a_tunnel_is_a_transport_failure(space: Workspace) -> None:
    with serving(saying(response("407 Proxy Authentication Required"))) as proxy:
        done = ask(space, "https://model.invalid", {"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}"})

    assert "407" in failed(done, "TRANSPORT")
    assert proxy.requests[0].startswith(b"CONNECT model.invalid:443 ")
    assert KEY.encode() not in proxy.requests[0]


def test_a_kind_of_proxy_that_is_not_spoken_is_told_at_once(space: Workspace) -> None:
    done = ask(space, "http://model.invalid", {"HTTP_PROXY": "socks9://us:pa55word@127.0.0.1:9"}, budget=2)

    assert "HTTP_PROXY" in failed(done, "INVALID_HTTP_SETTINGS")
    assert "pa55" not in done.stderr and retries(space) == 0


# -- servers that are none ---------------------------------------------------------------------------


def silent_after(*pieces: bytes) -> tuple[Play, threading.Event]:
    """Send these pieces and then nothing, until the event is set."""
    end, begin = threading.Event(), saying(*pieces)

    def play(connection: socket.socket) -> None:
        begin(connection)
        end.wait(10)

    return play, end


@pytest.mark.parametrize("pieces", [(), (HEAD,), (HEAD, b": one comment\n\n")])
def test_a_server_that_falls_silent_is_given_up(space: Workspace, pieces: tuple[bytes, ...]) -> None:
    play, end = silent_after(*pieces)
    with serving(play) as server:
        line = failed(ask(space, f"http://127.0.0.1:{server.port}", idle=300), "TIMEOUT")
        end.set()

    assert f"http://127.0.0.1:{server.port} sent nothing within 300 ms" in line


def test_a_status_counts_although_its_body_never_comes(space: Workspace) -> None:
    play, end = silent_after(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 10\r\n\r\nabc")
    with serving(play) as server:
        done = ask(space, f"http://127.0.0.1:{server.port}", idle=300, budget=2)
        end.set()

    assert done.code == 4 and done.stderr.startswith("dsh: AUTH: ")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "TRANSPORT", "illegal status line"),
        (b"", "TRANSPORT", "disconnected without sending a response"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "TRANSPORT", "illegal chunk"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 200_000 + b"\r\n\r\n", "TRANSPORT", "too long"),
        (response("200 OK", STREAM, content_encoding="gzip"), "TRANSPORT", "decompressing"),
        (response("200 OK"), "STREAM_CLOSED", "[DONE]"),
        (response("200 OK", b"upstream is fine\n"), "STREAM_CLOSED", "[DONE]"),
        (response("200 OK", b"\0" * 5000), "STREAM_CLOSED", "[DONE]"),
        (response("200 OK", b"<!DOCTYPE html><title>Log in</title>"), "MALFORMED_RESPONSE", "a web page"),
        (response("200 OK", b'{"choices":[{"message":{}}]}'), "MALFORMED_RESPONSE", "instead of a stream"),
        (response("200 OK", b'{"error":"no such model"}'), "SERVER", "no such model"),
        (response("400 Bad", b'{"error":{"message":{"a":1}}}'), "INVALID_REQUEST", "(HTTP 400)"),
        (response("400 Bad", b"[" * 200_000), "INVALID_REQUEST", "(HTTP 400)"),
        (response("999 Odd", b'{"error":{"message":"odd"}}'), "SERVER", "odd"),
        (response("503 Busy"), "SERVER", "(HTTP 503)"),
        (response("500 Oh", b"\xff\xfe\x00"), "SERVER", "(HTTP 500)"),
    ],
)
def test_whatever_answers_has_a_code_and_one_line(
    space: Workspace, answer: bytes, code: str, words: str
) -> None:
    with serving(saying(answer)) as server:
        line = failed(ask(space, f"http://127.0.0.1:{server.port}"), code)

    assert words in line and len(line) < 500


@pytest.mark.parametrize(
    "answer",
    [
        response("400 Bad", json.dumps({"error": {"message": f"got {KEY}"}}).encode(), x_request_id=KEY),
        response("502 Bad", f"<p>{KEY}</p>".encode()),
        response("200 OK", f"data: {{not {KEY}\n\n".encode()),
        response("200 OK", f'data: {{"error":"{KEY}"}}\n\n'.encode()),
        response("200 OK", f'{{"said":"{KEY}"}}'.encode()),
        response("200 OK", b'data: {"choices":[{"finish_reason":"%s"}]}\n\ndata: [DONE]\n\n' % KEY.encode()),
    ],
)
def test_a_server_that_echoes_the_key_does_not_get_it_shown(space: Workspace, answer: bytes) -> None:
    with serving(saying(answer)) as server:
        done = ask(space, f"http://127.0.0.1:{server.port}")  # which looks for it everywhere

    assert done.code == 1 and len(done.errors) == 1


# -- bytes -------------------------------------------------------------------------------------------


END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def test_a_character_may_be_cut_at_every_byte(space: Workspace) -> None:
    text = "aé한🏷\u2028z"
    whole = delta(text) + END
    with serving(streaming(*(whole[at : at + 1] for at in range(len(whole))))) as server:
        assert ask(space, f"http://127.0.0.1:{server.port}").stdout == f"{text}\n"


def test_an_event_of_16_mib_is_read(space: Workspace) -> None:
    with serving(streaming(delta("x" * (16 << 20)), END)) as server:
        done = ask(space, f"http://127.0.0.1:{server.port}")

    assert (done.code, len(done.stdout)) == (0, (16 << 20) + 1)


def test_blank_lines_before_a_stream_cost_nothing(space: Workspace) -> None:
    with serving(streaming(*[b"\n" * (1 << 20)] * 20, delta("fine"), END)) as server:
        assert ask(space, f"http://127.0.0.1:{server.port}").stdout == "fine\n"


def test_an_event_without_end_is_cut_off(space: Workspace) -> None:
    with serving(streaming(*[b"x" * (1 << 20)] * 160)) as server:
        assert "larger than" in failed(ask(space, f"http://127.0.0.1:{server.port}"), "MALFORMED_RESPONSE")


@pytest.mark.parametrize(
    ("raw", "text"), [(b"\\ud83d", "�"), (b"\xff", "�"), (b"\\u0000", "\0"), (b"\\ud83d\\ude00", "😀")]
)
def test_what_is_no_character_is_replaced(space: Workspace, raw: bytes, text: str) -> None:
    with serving(streaming(b'data: {"choices":[{"delta":{"content":"a' + raw + b'z"}}]}\n\n', END)) as server:
        assert ask(space, f"http://127.0.0.1:{server.port}").stdout == f"a{text}z\n"


def test_two_hundred_calls_in_one_reply_all_run(space: Workspace) -> None:
    calls = [
        {"id": f"c{n}", "name": "bash", "args": [json.dumps({"command": f"echo {n}", "description": "n"})]}
        for n in range(200)
    ]
    with MockModelServer([{"tools": calls}, "success"]).in_thread() as server:
        done = ask(space, server.base_url)

    assert done.code == 0
    results = [m for m in server.requests[1].body["messages"] if m["role"] == "tool"]
    assert [result["tool_call_id"] for result in results] == [call["id"] for call in calls]
    assert all(str(n) in result["content"] for n, result in enumerate(results))
