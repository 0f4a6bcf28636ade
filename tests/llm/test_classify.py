"""From an answer to a failure code, a wait and a presentable message."""

import email.utils
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.llm.failure import LlmFailure
from dsh.llm.transport.classify import classify_error_object, classify_status, code_for
from dsh.llm.transport.error_body import read_error
from dsh.llm.transport.wait import header_wait_ms
from dsh.llm.transport.wording import page_text, presentable, says_overflow, says_quota, without_secrets

NOW_S = 1_800_000_000.0
"""2027-01-15T08:00:00Z"""
WORDS = st.sampled_from(
    ["error", "message", "code", "type", "status", "details", "metadata", "raw", "headers"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def classified(
    status: int, body: bytes | dict[str, Any] = b"", secret: str = "", **headers: str
) -> LlmFailure:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return classify_status(
        status, raw, names, provider="DeepSeek", host="http://host/v1", now_s=NOW_S, secrets=(secret,)
    )


def error(message: Any, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [
        (401, "insufficient balance", "AUTH"),
        (403, "quota exceeded", "AUTH"),
        (413, "maximum context length", "INVALID_REQUEST"),
        (402, "Insufficient Balance", "QUOTA"),
        (500, "insufficient_quota", "QUOTA"),
        (429, "You exceeded your current quota", "QUOTA"),
        (429, "slow down", "RATE_LIMIT"),
        (400, "This model's maximum context length is 131072 tokens", "CONTEXT_WINDOW_EXCEEDED"),
        (400, "bad", "INVALID_REQUEST"),
        (500, "", "SERVER"),
        (503, "maximum context length", "SERVER"),
        (529, "overloaded", "SERVER"),
        (404, "", "HTTP_404"),
        (408, "", "HTTP_408"),
        (425, "", "HTTP_425"),
        (307, "", "HTTP_307"),
    ],
)
def test_the_status_decides_and_wording_only_where_it_may(status: int, text: str, code: str) -> None:
    assert code_for(status, text) == code


@pytest.mark.parametrize(
    "text",
    [
        "context length exceeded",
        "context_length_exceeded",
        "context-window-overflow",
        "Context window limit exceeded",
        "maximum context length is 8192",
        "prompt is too long for this model",
        "input too large for the model's context",
        "request too long for model",
        "prompt is too long: 250000 tokens > 200000 maximum",
        "the input exceeds the model context",
        "messages in this request overflow the context",
        "your request is larger than the model's maximum context",
    ],
)
def test_overflow_wording(text: str) -> None:
    assert says_overflow(text)


@pytest.mark.parametrize(
    "text", ["context is missing", "prompt is too long", "input is invalid", "length exceeded", "the context"]
)
def test_what_is_no_overflow(text: str) -> None:
    assert not says_overflow(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("insufficient quota", True),
        ("insufficient_balance", True),
        ("Insufficient credits", True),
        ("quota exceeded", True),
        ("usage limit has been reached", True),
        ("your balance is depleted", True),
        ("credits exhausted", True),
        ("you are out of credits", True),
        ("out of budget", True),
        ("rate limit reached", False),
        ("out of range", False),
        ("balance the load", False),
    ],
)
def test_quota_wording(text: str, expected: bool) -> None:
    assert says_quota(text) is expected


def test_the_providers_message_is_the_message() -> None:
    failure = classified(500, error("boom"), x_request_id="r-1")

    assert failure == LlmFailure("boom", "SERVER", 500, request_id="r-1")
    assert classified(500, error("x"), x_deepseek_request_id="r-2").request_id == "r-2"


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b'{"error":"plain"}', b'{"error":{"message":7}}', b"\xff", b"[" * 90_000],
)
def test_a_body_that_says_nothing_usable_gives_the_generic_message(body: bytes) -> None:
    failure = classified(400, body)

    assert failure.code == "INVALID_REQUEST"
    assert failure.message in ("DeepSeek API error (HTTP 400) from http://host/v1", "plain")


def test_an_error_as_a_plain_string_is_read() -> None:
    assert classified(429, {"error": "exceeded your current quota"}).code == "QUOTA"


@pytest.mark.parametrize(
    ("status", "named", "code"),
    [
        (400, "AUTH", "AUTH"),
        (404, "AUTH", "AUTH"),
        (500, "AUTH", "SERVER"),
        (400, "RATE_LIMIT", "RATE_LIMIT"),
        (503, "RATE_LIMIT", "SERVER"),
        (500, "QUOTA", "QUOTA"),
        (500, "CONTEXT_WINDOW_EXCEEDED", "CONTEXT_WINDOW_EXCEEDED"),
        (413, "CONTEXT_WINDOW_EXCEEDED", "INVALID_REQUEST"),
        (404, "SERVER", "HTTP_404"),
    ],
)
def test_an_errors_own_name_goes_before_wording_as_far_as_the_status_lets_it(
    status: int, named: str, code: str
) -> None:
    assert code_for(status, "", named) == code


def test_a_body_is_read_whatever_stands_around_its_error() -> None:
    marked = b"\xef\xbb\xbf" + json.dumps(error("no", code="insufficient_quota")).encode()
    assert classified(400, marked).code == "QUOTA"
    assert classified(400, {"errors": [{"message": "a"}], "error": {"message": "b"}}).message == "b"
    assert classified(400, {"errors": [{"message": "a"}]}).message == "a"
    assert classified(400, error("no", code="9" * 5000)).message == "no"
    inner = error("no", code="x" * 101, innererror={"code": "ResponsibleAIPolicyViolation"})
    assert read_error(inner["error"]).names == ("ResponsibleAIPolicyViolation",)


def test_a_quota_that_says_when_to_come_back_is_a_rate_limit_unless_it_is_named_a_quota() -> None:
    details = [{"retryDelay": "23s"}]
    said = {"message": "exceeded your current quota", "details": details}
    assert classified(429, {"error": said}).code == "RATE_LIMIT"
    assert classified(429, {"error": {**said, "code": "insufficient_quota"}}).code == "QUOTA"


def test_type_and_code_are_read_too() -> None:
    assert classified(429, error("no", type="insufficient_quota")).code == "QUOTA"
    assert classified(400, error("no", code="context_length_exceeded")).code == "CONTEXT_WINDOW_EXCEEDED"


def test_a_page_is_shown_as_words_with_status_and_host() -> None:
    page = b"<html><head><title>502 Bad Gateway</title><style>p{}</style></head><body><script>x()</script>"
    page += b"<h1>Bad &amp; wrong</h1>" + b"<p>nginx</p>" * 4000
    failure = classified(502, page, content_type="text/html")

    assert failure.code == "SERVER"
    assert "HTTP 502" in failure.message
    assert "http://host/v1" in failure.message
    assert "Bad & wrong" in failure.message
    assert "<" not in failure.message
    assert "x()" not in failure.message
    assert len(failure.message) < 400


def test_a_latin_1_page_is_decoded_and_an_unknown_charset_does_no_harm() -> None:
    page = "<p>Accès refusé</p>".encode("latin-1")

    assert "Accès refusé" in classified(403, page, content_type="text/html; charset=ISO-8859-1").message
    assert classified(403, page, content_type="text/html; charset=nonsense").code == "AUTH"


def test_a_redirect_is_named_and_not_followed() -> None:
    assert "redirects are not followed" in classified(302, b"", location="http://elsewhere/").message


def test_page_text_never_holds_markup() -> None:
    assert (
        page_text("<head><title>T</title></head><body>a<b>c</b> &lt;script&gt; x</body>") == "T: a c script x"
    )
    assert page_text("<title>T</title>") == "T"
    assert page_text("<p") == "p"
    assert page_text("<HEAD><TITLE>T</TITLE></HEAD><header>a</header><STYLE>x</STYLE>b") == "T: a b"
    assert page_text("a<script>never closed <p>b") == "a"
    assert page_text("<title>only") == "only"


def test_keys_are_masked_and_text_is_one_short_line() -> None:
    shown = presentable(
        "bad key my-secret-key or sk-abcdef0123456789\nat https://me:pw@host, Bearer abcdefgh",
        ["my-secret-key"],
    )

    assert shown == "bad key *** or sk-*** at https://***@host, Bearer ***"
    assert len(presentable("x" * 5000)) == 300
    assert presentable("a\x00\x1b[31m\u2028b") == "a [31m b"


def test_a_secret_is_not_cut_in_two_before_it_is_masked() -> None:
    secret = "odd~key~0123456789"
    for before in range(280, 300):
        page = page_text(f"<title>{'y' * before} {secret}</title>", [secret])
        assert "odd" not in page.replace(f" {secret}", "")
        page = page_text(f"<script>{'y' * (100_000 - before)}</script>{secret}", [secret])
        assert "odd" not in page


def test_every_secret_is_masked_a_short_one_as_a_word() -> None:
    said = "Bearer odd~key~1 and odd~key~1, x and xx, gate-way-pass and a8letters"
    assert without_secrets(said, ["Bearer odd~key~1", "gate-way-pass", "odd~key~1", "8letters", "x", ""]) == (
        "*** and ***, *** and xx, *** and a***"
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("3", 3000),
        ("0", None),
        ("-5", None),
        ("3.5", None),
        ("abc", None),
        ("", None),
        ("86400", 86_400_000),
        (email.utils.formatdate(NOW_S + 4, usegmt=True), 4000),
        (email.utils.formatdate(NOW_S - 4, usegmt=True), None),
        ("٣", None),
        ("9" * 400, 999_999_999_999_000),
    ],
)
def test_retry_after_is_whole_seconds_or_a_date_ahead(value: str, expected: float | None) -> None:
    assert header_wait_ms({"retry-after": value}, NOW_S) == expected
    for status in (429, 503, 529):
        assert classified(status, b"", retry_after=value).provider_retry_after_ms == expected


def test_retry_after_ms_and_the_reset_of_a_used_up_limit_are_read() -> None:
    assert header_wait_ms({"retry-after-ms": "250", "retry-after": "3"}, NOW_S) == 250
    assert header_wait_ms({"retry-after-ms": "x", "retry-after": "3"}, NOW_S) == 3000
    limits = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m30s"}
    assert header_wait_ms(limits, NOW_S) == 90_000
    assert header_wait_ms({**limits, "x-ratelimit-remaining-requests": "5"}, NOW_S) is None
    assert header_wait_ms({**limits, "x-ratelimit-reset-requests": "soon"}, NOW_S) is None
    assert header_wait_ms({**limits, "x-ratelimit-reset-requests": "2027-01-15T08:00:09"}, NOW_S) is None
    assert header_wait_ms({}, NOW_S) is None


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"message": "Rate limit", "type": "rate_limit_error", "code": "429"}, "RATE_LIMIT"),
        ({"message": "x", "code": 503}, "SERVER"),
        ({"message": "x", "code": 401}, "AUTH"),
        ({"message": "You exceeded your current quota", "code": 429}, "QUOTA"),
        ({"message": "Invalid API key", "type": "authentication_error"}, "AUTH"),
        ({"message": "x", "type": "insufficient_quota"}, "QUOTA"),
        ({"message": "x", "code": "context_length_exceeded"}, "CONTEXT_WINDOW_EXCEEDED"),
        ({"message": "x", "type": "invalid_request_error"}, "INVALID_REQUEST"),
        ("the model is overloaded", "SERVER"),
        ("upstream timed out", "TIMEOUT"),
        ("connection reset by peer", "TRANSPORT"),
        ({"message": "who knows"}, "SERVER"),
        ({}, "SERVER"),
        (7, "SERVER"),
    ],
)
def test_an_error_inside_a_stream_is_classified_by_code_then_words(value: Any, code: str) -> None:
    failure = classify_error_object(value, provider="DeepSeek", headers={})

    assert failure.code == code
    assert failure.message


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360_000),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "2m59.56s"}, 179_560),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "12"}, 12_000),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1800000007"}, 7_000),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1800000007500"}, 7_500),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1799999999"}, None),
        ({"x-ratelimit-remaining": "0"}, None),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "9" * 300}, None),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2027-01-15"}, None),
        (
            {
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "2027-01-15T08:01:00Z",
            },
            60_000,
        ),
        (
            {
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2027-01-15T09:00:05+01:00",
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2027-01-15T08:00:02Z",
            },
            5_000,
        ),
        (
            {
                "anthropic-ratelimit-tokens-remaining": "10",
                "anthropic-ratelimit-tokens-reset": "2027-01-15T09:00:00Z",
            },
            None,
        ),
        ({"retry-after": "2", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "60"}, 2_000),
        ({"retry-after-ms": "1250.5"}, 1_251),
        ({"retry-after-ms": "0", "retry-after": "4"}, 4_000),
        ({"retry-after-ms": "٣", "retry-after": "4"}, 4_000),
    ],
)
def test_a_used_up_limit_tells_when_it_is_reset(headers: dict[str, str], expected: float | None) -> None:
    assert header_wait_ms(headers, NOW_S) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Please try again in 20s.", 20_000),
        ("please try again in 6m0s. Visit us", 360_000),
        ("Please retry after 26 seconds.", 26_000),
        ("Please retry in 23.46s", 23_460),
        ("try again in about 2 minutes", 120_000),
        ("try again in a while", None),
        ("retry after 0 seconds", None),
        ("try again in 3", None),
    ],
)
def test_a_wait_that_only_the_message_names_is_read_last(words: str, expected: float | None) -> None:
    assert classified(429, error(words)).provider_retry_after_ms == expected
    assert classified(429, error(words), retry_after="3").provider_retry_after_ms == 3000
    assert classified(400, error(words)).provider_retry_after_ms is None


@settings(max_examples=300)
@given(st.binary() | st.text().map(str.encode) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_whatever_has_a_code_and_a_line(body: bytes) -> None:
    for status in (200, 400, 429, 500):
        failure = classified(status, body)
        assert failure.code
        assert failure.message
        assert "\n" not in failure.message


@given(JSON)
def test_any_error_within_a_stream_has_a_code_and_a_line(value: Any) -> None:
    failure = classify_error_object(value, provider="DeepSeek", headers={})
    assert failure.code
    assert failure.message


@given(st.text(max_size=40))
def test_any_header_gives_a_positive_wait_or_none(value: str) -> None:
    for name in ("retry-after", "retry-after-ms", "x-ratelimit-reset-tokens"):
        wait = header_wait_ms({name: value, "x-ratelimit-remaining-tokens": "0"}, NOW_S)
        assert wait is None or 0 < wait < float("inf")
