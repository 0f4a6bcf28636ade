"""What has the form of a key or a password is masked, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.masking import masked, masked_urls, masked_value

KEY_CHARS = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", min_size=12)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("key sk-abc123def456 refused", "key sk-*** refused"),
        ("pk_live0123456789", "pk_***"),
        ("api-0a1b2c3d4e", "api-***"),
        ("authorization: Bearer abc.def/ghi+jkl=", "authorization: Bearer ***"),
        ("Basic dXNlcjpwYXNz", "Basic ***"),
        ("https://user:pa55@host/v1?x=1", "https://***@host/v1?x=1"),
        ("http://token@host and http://plain/a@b", "http://***@host and http://plain/a@b"),
        ("gsk_0123456789abcdefABCDEF", "gsk_***"),
        ("hf_AbCdEfGhIjKlMnOpQr", "hf_***"),
        ("AIzaSyA-123456789_abcdefghij", "AIza***"),
        ("github_pat_11ABCDEFG0_abcdefghij", "github_pat_***"),
        ("a eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSM b", "a eyJ*** b"),
        ("https://h/v1?key=abc&v=1", "https://h/v1?key=***&v=1"),
        ("https://h/v1?v=1&subscription-key=a.b#x", "https://h/v1?v=1&subscription-key=***#x"),
        ("(https://h?X-Amz-Signature=00ff)", "(https://h?X-Amz-Signature=***"),
    ],
)
def test_a_secret_is_masked_by_its_form(text: str, shown: str) -> None:
    assert masked(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "api_connection_error",
        "token-meter-model",
        "key_not_found_here",
        "sk-",
        "a@b.example",
        "desk-top-machine",
        "hf_some-long-configuration-name",
        "https://h/v1?monkey=abc&api-version=2024-02-01&keys=1",
        "key=abc",
    ],
)
def test_plain_words_stay(text: str) -> None:
    assert masked(text) == text


@given(KEY_CHARS, st.text(), st.text())
def test_no_key_of_the_usual_form_gets_through(tail: str, before: str, after: str) -> None:
    assert f"sk-a{tail}" not in masked(f"{before} sk-a{tail} {after}")


@given(st.text("abc:%!$&'", min_size=1), st.text())
def test_no_user_of_a_url_gets_through(user: str, after: str) -> None:
    assert masked_urls(f"see https://{user}@host/{after}").startswith("see https://***@host/")


SECRETS = (
    *("token", "botToken", "bot_token", "GITHUB_TOKEN", "apiKey", "api_key", "x-api-key", "accessKey"),
    *("privateKey", "dbPassword", "PASSWORD", "clientSecret", "Authorization"),
    *("Cookie", "Ocp-Apim-Subscription-Key", "x-litellm-key"),
)
PLAIN = (
    *("tokenizer", "maxTokens", "maxTokensField", "tokens", "apiKeyEnv", "key", "keyless", "monkey"),
    *("secretary", "passwordFile"),
)


@pytest.mark.parametrize("key", SECRETS)
def test_what_is_called_a_secret_is_masked_whatever_it_looks_like(key: str) -> None:
    assert masked_value(key, "geheim") == "***"
    assert masked_value(key, "sk-abc123def456") == "sk-***"
    assert masked_value(key, "") == ""


@pytest.mark.parametrize("key", PLAIN)
def test_what_only_sounds_like_a_secret_stays(key: str) -> None:
    assert masked_value(key, "plain") == "plain"
