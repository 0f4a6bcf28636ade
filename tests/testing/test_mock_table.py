"""What is promised of the mock server by name: behaviours, options, their defaults and the random weights."""

import pytest

from dsh.testing.mock_server import RANDOM_WEIGHTS, MockOptions
from dsh.testing.mock_server.__main__ import main
from dsh.testing.mock_server.behaviour import behaviours

NAMED = [
    "connection_reset", "stream_disconnect", "partial_disconnect", "empty", "empty_body", "stream_eof",
    "partial_eof", "stall", "malformed_json", "malformed_event", "wrong_content_type", "rate_limit",
    "server_error", "service_unavailable", "auth_error", "invalid_request", "context_overflow",
    "quota_exceeded", "success", "slow_success", "reasoning_success", "tool_call_success", "max_tokens",
]  # fmt: skip
BESIDE = ["unicode_separators", "split_utf8", "keep_alive_comments", "missing_done"]
FLAGS = [
    "--host", "--port", "--api-key", "--sequence", "--repeat-last", "--seed", "--random-weights",
    "--success-text", "--partial-text", "--reasoning-text", "--chunk-size", "--chunk-delay-ms",
    "--disconnect-delay-ms", "--retry-after-ms", "--request-id", "--tool-name", "--tool-arguments",
    "--listen-delay-ms",
]  # fmt: skip


@pytest.mark.parametrize("dialect", ["deepseek", "openai", "anthropic"])
def test_every_dialect_plays_what_is_named(dialect: str) -> None:
    assert set(NAMED) | set(BESIDE) <= set(behaviours(dialect))


def test_only_chat_completions_can_lack_what_only_they_have() -> None:
    odd = {"in_band_error", "tool_call_without_id", "tool_calls_without_index", "leaked_tool_calls"}
    assert odd <= set(behaviours("openai")) == set(behaviours("deepseek"))


def test_the_defaults_of_options_and_chance() -> None:
    options = MockOptions()
    assert (options.chunk_size, options.chunk_delay_ms) == (8, 25)
    assert (options.disconnect_delay_ms, options.retry_after_ms) == (10, 1000)
    assert RANDOM_WEIGHTS == {
        "success": 48, "slow_success": 10, "partial_disconnect": 10, "connection_reset": 5,
        "stream_disconnect": 5, "empty": 5, "rate_limit": 5, "server_error": 4, "max_tokens": 2, "stall": 2,
        "service_unavailable": 2, "partial_eof": 1, "malformed_json": 1,
    }  # fmt: skip


def test_the_command_has_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out.split()
    assert [flag for flag in FLAGS if flag not in {word.strip("[],") for word in shown}] == []
