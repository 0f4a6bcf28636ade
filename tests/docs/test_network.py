"""The page on the network says what the code does."""

import re
from pathlib import Path

from dsh.capabilities import authorities, http
from dsh.llm.adapter import DEFAULT_RETRYABLE_CODES
from dsh.llm.failure import CREDENTIAL_CODES

PAGE = (Path(__file__).parents[2] / "docs" / "network.md").read_text(encoding="utf-8")


def test_the_table_of_failures_says_which_are_tried_again() -> None:
    rows = re.findall(r"^\| (`[A-Z].*?) \| .*? \| (yes|no) \|$", PAGE, re.MULTILINE)
    told = {code: again for cell, again in rows for code in re.findall(r"`([A-Z_0-9]+)`", cell)}

    # a model's own reason to stop is no matter of the network
    assert {code for code, again in told.items() if again == "yes"} == set(DEFAULT_RETRYABLE_CODES) - {
        "INSUFFICIENT_SYSTEM_RESOURCE"
    }
    assert {code for code, again in told.items() if again == "no"} >= {*CREDENTIAL_CODES, "QUOTA"}


def test_the_variables_and_times_are_those_of_the_client() -> None:
    listed = ", ".join(f"`{name}`" for name in authorities.VARIABLES)
    assert listed in PAGE.replace("\n", " ")
    assert f"kept for {http.KEEP_ALIVE_S:g} s" in PAGE
    assert f"may take {http.CONNECT_TIMEOUT_S:g} s" in " ".join(PAGE.split())
