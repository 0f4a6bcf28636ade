"""What is said of errors, whatever they say of themselves."""

from dsh.cli.report import describe
from dsh.errors import DshError


class Silent(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def test_an_error_is_one_line_with_its_type() -> None:
    assert describe(RuntimeError("a\n b")) == "RuntimeError: a b"
    assert describe(RuntimeError()) == "RuntimeError"


def test_our_own_and_the_system_s_speak_for_themselves() -> None:
    assert describe(DshError("where: what")) == "where: what"
    assert describe(FileNotFoundError(2, "No such file", "/x")) == "/x: No such file"


def test_an_error_whose_text_cannot_be_had_is_named_all_the_same() -> None:
    assert describe(Silent()) == "Silent: its text cannot be had (ValueError)"


def test_an_error_as_long_as_a_file_is_cut() -> None:
    assert len(describe(RuntimeError("x" * 10_000_000))) < 5_000
