"""Log records on standard error: one line each, and no error twice."""

import logging

import pytest

from dsh.cli.console import Console
from dsh.errors import DshError


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    monkeypatch.delenv("DSH_DEBUG", raising=False)
    logger = logging.Logger("dsh.test")
    logger.addHandler(Console())
    return logger


def test_an_error_that_was_shown_is_not_shown_again_on_its_way(
    log: logging.Logger, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = DshError("disk full"), DshError("gone")
    log.error("flushing failed: %s", first, exc_info=first)
    log.error("disposing failed: %s", first, exc_info=first)
    log.error("closing failed", exc_info=ExceptionGroup("two", [first, second]))
    log.error("once more", exc_info=ExceptionGroup("two", [first, second]))
    log.error("a defect", exc_info=ValueError("x"))
    log.warning("two\nlines")

    assert capfd.readouterr().err.splitlines() == [
        "dsh: flushing failed: disk full",
        "dsh: closing failed",
        "dsh: a defect",
        "dsh: two lines",
    ]


def test_with_debug_on_everything_is_shown(
    log: logging.Logger, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSH_DEBUG", "1")
    error = DshError("disk full")
    error.is_told = True
    log.error("flushing failed", exc_info=error)

    assert capfd.readouterr().err.splitlines()[0] == "dsh: flushing failed"


def test_a_record_that_cannot_be_put_into_words_is_shown_all_the_same(
    log: logging.Logger, capfd: pytest.CaptureFixture[str]
) -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise ValueError

    log.error("disposing failed: %s", Silent())
    assert capfd.readouterr().err == "dsh: disposing failed: %s (its arguments cannot be shown: ValueError)\n"
