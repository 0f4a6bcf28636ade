"""What gets through is no secret: the page on the sandbox names it."""

from pathlib import Path

from tests.contract.sandbox.escapes import ESCAPES

PAGE = Path(__file__).parents[3] / "docs" / "sandbox.md"


def test_every_way_that_is_open_somewhere_is_on_the_page_and_no_other() -> None:
    rows = PAGE.read_text(encoding="utf-8").partition("## What gets through")[2].partition("\n\nReading")[0]
    text = " ".join(rows.split())
    told = {escape.name for escape in ESCAPES if escape.open_in or escape.least_abi not in (1, 4)}

    assert {name for name in told if name not in text} - {
        "an abstract socket with the network closed",
        "emptying a file",
    } == set()
    stopped = {escape.name for escape in ESCAPES if not escape.open_in and escape.least_abi == 1}
    assert {name for name in stopped if f"| {name}" in text} == set()


def test_names_are_given_once() -> None:
    names = [escape.name for escape in ESCAPES]

    assert len(names) == len(set(names))
