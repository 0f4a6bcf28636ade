"""Patterns of scripts: what is none is named, and a search that never ends is stopped."""

import signal
import threading
import time

import pytest

from dsh.llm.script import pattern
from dsh.llm.script.pattern import PatternError, compiled, is_found, last_match

ENDLESS, TEXT = "(a|aa)+$", "a" * 80 + "b"


@pytest.mark.parametrize("text", ["(", "a{3,2}", "(?P<a>x)(?P<a>y)", "(?P=b)", "a{99999999999999999999}"])
def test_what_is_no_pattern_is_named(text: str) -> None:
    for search in (compiled, lambda text: is_found(text, ""), lambda text: last_match(text, "")):
        with pytest.raises(PatternError, match="is no regular expression") as caught:
            search(text)
        assert repr(text) in str(caught.value)


def test_a_pattern_is_found_anywhere() -> None:
    assert is_found("b.d", "a\nbcd")
    assert not is_found("^b", "a\nbcd")


def test_of_the_matches_the_last_one_counts_and_its_first_group() -> None:
    assert last_match("a(.)", "ab ac") == "c"
    assert last_match("a.", "ab ac") == "ac"
    assert last_match("a(x)?.", "ab ac") == "ac"
    assert last_match("a()", "a") == ""
    assert last_match("x", "ab") is None


@pytest.mark.parametrize("search", [is_found, last_match])
def test_a_search_that_never_ends_is_stopped(search: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(search)
    monkeypatch.setattr(pattern, "SEARCH_S", 0.02)
    found = signal.signal(signal.SIGVTALRM, signal.SIG_IGN)

    with pytest.raises(PatternError, match=r"'\(a\|aa\)\+\$' does not end in 0\.02 s"):
        search(ENDLESS, TEXT)
    assert signal.signal(signal.SIGVTALRM, found) is signal.SIG_IGN
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)


def test_nothing_is_stopped_after_a_search_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern, "SEARCH_S", 0.02)
    assert is_found("a", "a")
    until = time.process_time() + 0.05
    while time.process_time() < until:
        sum(range(1000))

    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)


def test_a_search_in_another_thread_is_a_plain_one() -> None:
    """Signals reach the main thread alone."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(is_found("a", "a")))
    thread.start()
    thread.join()

    assert found == [True]
