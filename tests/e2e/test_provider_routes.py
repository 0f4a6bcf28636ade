"""Bad input on every route, through the real program: a code and one line each, and no key anywhere."""

import json
import socket
import ssl
import threading
from pathlib import Path

import pytest

from dsh.testing.mock_server import MockModelServer
from dsh.testing.workspace import Finished, Workspace, log_rows, log_text
from tests.e2e.raw_server import response, saying, serving, streaming
from tests.e2e.route import ANTHROPIC, KEY, MODEL, OPENAI, ROUTES, Route

TLS = Path(__file__).parent.parent / "data" / "tls"
every_route = pytest.mark.parametrize("route", ROUTES, ids=[route.name for route in ROUTES])


def failed(space: Workspace, done: Finished, code: str, exit_code: int = 1) -> str:
    """The one line that a failure leaves; the log holds its code."""
    assert (done.code, done.stdout) == (exit_code, "\n")
    [line] = done.errors
    assert line.startswith(f"dsh: {code}: ") and len(line) < 700
    [log] = space.logs()
    last = log_rows(log)[-1]
    assert (last["type"], last["data"]["reason"]["error"]["code"]) == ("turn/end", code)
    return line


@every_route
def test_a_task_is_done_and_the_key_stands_in_its_header_alone(space: Workspace, route: Route) -> None:
    with serving(saying(response("200 OK", route.stream))) as server:
        done = route.ask(space, f"http://127.0.0.1:{server.port}/base/")

    assert (done.code, done.stdout, done.stderr) == (0, "fine\n", "")
    [request] = server.requests
    head, _, body = request.decode().partition("\r\n\r\n")
    assert head.startswith(f"POST /base{route.path} HTTP/1.1\r\n")
    assert route.key_header.format(key=KEY) in head.lower()
    assert (request.count(KEY.encode()), json.loads(body)["model"]) == (1, MODEL)
    assert "\r\nuser-agent: dsh/" in head.lower()


@every_route
def test_a_wrong_key_is_4_and_says_where_it_came_from(space: Workspace, route: Route) -> None:
    with MockModelServer(["auth_error"], repeat_last=True).in_thread() as server:
        line = failed(space, route.ask(space, route.base_of(server), budget=2), "AUTH", 4)

    assert route.key_variable in line
    assert len(server.requests) == 1


@every_route
def test_a_wrong_key_that_is_echoed_is_masked(space: Workspace, route: Route) -> None:
    body = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}}).encode()
    with serving(saying(response("401 Unauthorized", body, request_id=KEY))) as server:
        line = failed(space, route.ask(space, f"http://127.0.0.1:{server.port}"), "AUTH", 4)

    assert "Incorrect API key provided: ***" in line


@every_route
def test_a_key_in_the_place_of_its_name_is_refused_and_told_nowhere(space: Workspace, route: Route) -> None:
    key = "gsk_0123456789abcdefABCDEF"
    done = route.ask(space, "http://127.0.0.1:9", apiKeyEnv=key)
    assert (done.code, space.logs()) == (3, [])
    assert "apiKeyEnv is not the name of a variable" in done.stderr

    shown = [
        space.run("--profile", "headless", "--patch", "route.yml", "--dump-config"),
        space.run("explain", "--patch", "route.yml", route.row),
    ]
    assert all("gsk_***" in each.stdout for each in shown)
    assert all(key not in each.stdout + each.stderr for each in (done, *shown))


@pytest.mark.parametrize("route", [OPENAI, ANTHROPIC], ids=[OPENAI.name, ANTHROPIC.name])
def test_a_header_that_is_called_a_secret_is_masked_like_a_key(space: Workspace, route: Route) -> None:
    secret = "odd~gate~987654321"
    body = json.dumps({"error": {"message": f"wrong secret {secret}, beta b-1 unknown"}}).encode()
    headers = {"cf-access-client-secret": secret, "x-beta": "b-1"}
    with serving(saying(response("400 Bad", body))) as server:
        done = route.ask(space, f"http://127.0.0.1:{server.port}", headers=headers)
    assert f"cf-access-client-secret: {secret}".encode() in server.requests[0].lower()
    assert "wrong secret ***, beta b-1 unknown" in failed(space, done, "INVALID_REQUEST")

    dump = space.run("--profile", "headless", "--patch", "route.yml", "--dump-config")
    explained = space.run("explain", "--patch", "route.yml", route.row)
    assert "b-1" in dump.stdout and "b-1" in explained.stdout
    assert all(secret not in text for text in (done.stderr, dump.stdout, explained.stdout))
    assert all(secret.encode() not in log_text(log) for log in space.logs())


@every_route
def test_a_key_in_the_query_of_a_url_goes_to_the_server_alone(space: Workspace, route: Route) -> None:
    with serving(saying(response("404 Not Found"))) as server:
        url = f"http://127.0.0.1:{server.port}/v1?api-key=geheim1&api-version=2"
        done = route.ask(space, url, baseURL=url)
    path = route.path.removeprefix("/v1")
    assert server.requests[0].startswith(f"POST /v1{path}?api-key=geheim1&api-version=2 HTTP".encode())
    failed(space, done, "HTTP_404")

    dump = space.run("--profile", "headless", "--patch", "route.yml", "--dump-config")
    explained = space.run("explain", "--patch", "route.yml", route.row)
    assert "?api-key=***&api-version=2" in dump.stdout and "baseURL: http://127.0.0.1" in explained.stdout
    assert all("geheim1" not in text for text in (done.stderr, dump.stdout, explained.stdout))
    assert all(b"geheim1" not in log_text(log) for log in space.logs())


@pytest.mark.parametrize("key", [None, "", "  "])
@every_route
def test_no_key_is_4_and_names_the_variable(space: Workspace, route: Route, key: str | None) -> None:
    done = route.ask(space, "http://127.0.0.1:9", key=key, env={"GEMINI_API_KEY": "another"})

    line = failed(space, done, "MISSING_CREDENTIAL", 4)
    assert f"set it with: export {route.key_variable}=…" in line
    assert "choose another provider (agent-default-model in" in line


@pytest.mark.parametrize("key", ["sk-ключ-0123456", "sk-two words-0123456", "sk-line\nbreak-0123456"])
@every_route
def test_a_key_that_can_be_none_is_never_sent(space: Workspace, route: Route, key: str) -> None:
    with MockModelServer().in_thread() as server:
        done = route.ask(space, route.base_of(server), key=key)

    assert route.key_variable in failed(space, done, "INVALID_CREDENTIAL", 4)
    assert "0123456" not in done.stderr
    assert server.requests == []


@every_route
def test_white_space_around_a_key_is_no_part_of_it(space: Workspace, route: Route) -> None:
    with serving(saying(response("200 OK", route.stream))) as server:
        done = route.ask(space, f"http://127.0.0.1:{server.port}", key=f" {KEY}\n")

    assert done.code == 0
    assert f"{route.key_header.format(key=KEY)}\r\n".encode() in server.requests[0].lower()


@every_route
def test_a_wrong_url(space: Workspace, route: Route) -> None:
    line = failed(space, route.ask(space, "http://127.0.0.1:9/x", budget=1), "TRANSPORT")

    assert "cannot reach http://127.0.0.1:9/x: Connection refused; check host and port" in line


@every_route
def test_what_is_no_url(space: Workspace, route: Route) -> None:
    done = route.ask(space, "us:pa55word@host/v1")

    assert route.url_variable in failed(space, done, "INVALID_BASE_URL")
    assert "pa55" not in done.stderr


@every_route
def test_a_wrong_path_is_final(space: Workspace, route: Route) -> None:
    answer = response("404 Not Found", b"<title>404 Not Found</title><center>nginx</center>")
    with serving(saying(answer)) as server:
        done = route.ask(space, f"http://127.0.0.1:{server.port}/nowhere", budget=2)

    line = failed(space, done, "HTTP_404")
    assert f"(HTTP 404) from http://127.0.0.1:{server.port}/nowhere: 404 Not Found" in line
    assert len(server.requests) == 1


@every_route
def test_a_base_url_that_leads_nowhere_is_told_with_the_path_that_was_asked_for(
    space: Workspace, route: Route
) -> None:
    with serving(saying(response("404 Not Found", b'{"detail": "Not Found"}'))) as server:
        line = failed(space, route.ask(space, f"http://127.0.0.1:{server.port}/x"), "HTTP_404")

    assert line.endswith(f"HTTP_404: Not Found (asked for /x{route.path}: check the base URL)")


@every_route
def test_a_wrong_model_is_told_with_its_route(space: Workspace, route: Route) -> None:
    body = json.dumps({"error": {"type": "not_found_error", "message": f"model: {MODEL} does not exist"}})
    with serving(saying(response("404 Not Found", body.encode()))) as server:
        line = failed(space, route.ask(space, f"http://127.0.0.1:{server.port}", budget=2), "HTTP_404")

    assert MODEL in line and route.name in line and "agent-default-model" in line
    assert "base URL" not in line


@every_route
def test_a_certificate_that_cannot_be_trusted_gets_no_key(space: Workspace, route: Route) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(TLS / "server.pem", TLS / "server.key.pem")
    with serving(saying(response("200 OK", route.stream)), tls=tls) as server:
        done = route.ask(space, f"https://localhost:{server.port}", budget=1)
        assert "certificate cannot be trusted" in failed(space, done, "TRANSPORT")
        assert server.requests == []

        trusting = {"REQUESTS_CA_BUNDLE": str(TLS / "authority.pem")}
        assert route.ask(space, f"https://localhost:{server.port}", env=trusting).stdout == "fine\n"


@every_route
def test_a_page_in_place_of_a_stream(space: Workspace, route: Route) -> None:
    page = b"<!DOCTYPE html><html><title>Log in to the network</title><body>" + b"<p>x</p>" * 5000
    with serving(saying(response("200 OK", page, content_type="text/html"))) as server:
        done = route.ask(space, f"http://127.0.0.1:{server.port}", budget=1)

    line = failed(space, done, "MALFORMED_RESPONSE")
    assert "a web page, perhaps a login page of the network: Log in to the network" in line
    assert "<" not in line and len(server.requests) == 2


@every_route
def test_a_gateways_page(space: Workspace, route: Route) -> None:
    page = b"<html><title>502 Bad Gateway</title><body><h1>502 Bad Gateway</h1></body></html>"
    with serving(saying(response("502 Bad Gateway", page, content_type="text/html"))) as server:
        line = failed(space, route.ask(space, f"http://127.0.0.1:{server.port}", budget=1), "SERVER")

    assert "(HTTP 502)" in line and "<" not in line and len(server.requests) == 2


@every_route
def test_json_in_place_of_a_stream(space: Workspace, route: Route) -> None:
    body = json.dumps({"id": "x", "choices": [{"message": {"content": "fine"}}]}).encode()
    with serving(saying(response("200 OK", body, content_type="application/json"))) as server:
        done = route.ask(space, f"http://127.0.0.1:{server.port}")

    assert "JSON instead of a stream" in failed(space, done, "MALFORMED_RESPONSE")


@every_route
def test_an_error_with_status_200(space: Workspace, route: Route) -> None:
    body = json.dumps({"error": {"message": "Too many requests", "type": "rate_limit_error"}}).encode()
    with serving(saying(response("200 OK", body))) as server:
        done = route.ask(space, f"http://127.0.0.1:{server.port}", budget=1)

    assert "Too many requests" in failed(space, done, "RATE_LIMIT")
    assert len(server.requests) == 2


@every_route
def test_a_server_that_never_answers(space: Workspace, route: Route) -> None:
    end = threading.Event()

    def wait(_: socket.socket) -> None:
        end.wait(20)

    with serving(wait) as server:
        done = route.ask(space, f"http://127.0.0.1:{server.port}", streamIdleTimeoutMs=300)
        end.set()

    assert "sent nothing within 300 ms" in failed(space, done, "TIMEOUT")


@every_route
def test_a_reply_that_breaks_off_is_tried_again_and_never_the_answer(space: Workspace, route: Route) -> None:
    end = (
        route.stream.rindex(b"[DONE]")
        if b"[DONE]" in route.stream
        else route.stream.rindex(b"event: message_stop")
    )
    with serving(streaming(route.stream[: end - 6])) as server:
        done = route.ask(space, f"http://127.0.0.1:{server.port}", budget=1)

    failed(space, done, "STREAM_CLOSED")
    assert len(server.requests) == 2


@every_route
def test_a_quota_is_final_and_a_rate_limit_is_not(space: Workspace, route: Route) -> None:
    with MockModelServer(["quota_exceeded"], repeat_last=True).in_thread() as server:
        failed(space, route.ask(space, route.base_of(server), budget=2), "QUOTA")
    assert len(server.requests) == 1


@every_route
def test_a_wait_that_is_too_long_ends_the_turn_and_is_named(space: Workspace, route: Route) -> None:
    answer = response("429 Slow", b'{"error":{"message":"slow down"}}', retry_after="86400")
    with serving(saying(answer)) as server:
        line = failed(space, route.ask(space, f"http://127.0.0.1:{server.port}", budget=2), "RATE_LIMIT")

    assert "slow down (the provider asks to wait 86400 s, longer than maxProviderDelayMs allows)" in line
    assert len(server.requests) == 1


@every_route
def test_a_redirect_takes_the_key_nowhere(space: Workspace, route: Route) -> None:
    with serving(saying(response("200 OK", route.stream))) as other:
        location = f"http://127.0.0.1:{other.port}{route.path}"
        with serving(saying(response("307 Temporary", location=location))) as server:
            line = failed(space, route.ask(space, f"http://127.0.0.1:{server.port}", budget=2), "HTTP_307")

    assert "redirects" in line and (len(server.requests), other.requests) == (1, [])


@every_route
def test_the_key_is_out_of_reach_of_what_the_model_runs(space: Workspace, route: Route) -> None:
    call = {"id": "c1", "name": "bash", "args": [json.dumps({"command": "env", "description": "look"})]}
    with MockModelServer([{"tools": [call]}, "success"]).in_thread() as server:
        done = route.ask(space, route.base_of(server))

    assert done.code == 0
    sent = json.dumps(server.requests[1].body)
    assert "PATH=" in sent and KEY not in sent and route.key_variable not in sent


def test_a_route_without_endpoint_names_variable_and_key(space: Workspace) -> None:
    done = OPENAI.ask(space, "")

    line = failed(space, done, "MISSING_BASE_URL")
    assert "OPENAI_BASE_URL" in line and "llm-openai.providers.openai-compatible.baseURL" in line


def test_an_environment_file_cannot_send_a_key_elsewhere(space: Workspace) -> None:
    space.write(".env", "OPENAI_BASE_URL=http://127.0.0.1:9/evil\n")
    done = OPENAI.ask(space, "http://127.0.0.1:9/x", env={"OPENAI_BASE_URL": None})

    assert (done.code, space.logs()) == (3, [])
    assert "OPENAI_BASE_URL" in done.stderr and "evil" not in done.stderr


def test_a_missing_key_of_one_route_is_not_taken_from_another(space: Workspace) -> None:
    with MockModelServer().in_thread() as server:
        done = ANTHROPIC.ask(
            space, server.anthropic_url, key=None, env={"OPENAI_API_KEY": KEY, "DEEPSEEK_API_KEY": KEY}
        )

    failed(space, done, "MISSING_CREDENTIAL", 4)
    assert server.requests == []
