"""Tests of the standard streams, in processes of their own: they change descriptors."""

import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from dsh.unicode import from_system, valid

NOISY = """
import os, subprocess, sys
from dsh.cli.stream import claim_output
output = claim_output()
print("from print")
os.write(1, b"from descriptor 1\\n")
subprocess.run(["echo", "from a child"])
sys.__stdout__.write("from the old object\\n"); sys.__stdout__.flush()
output.answer("answer \\u5b8c\\u6210 \\ud83d\\n")
"""


def run(program: str, **changes: str) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, **changes}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, env=env, timeout=30)


def test_standard_output_holds_the_answer_and_nothing_else() -> None:
    done = run(NOISY)
    assert done.stdout.decode() == "answer 完成 \ufffd\n"
    for line in (b"from print", b"from descriptor 1", b"from a child", b"from the old object"):
        assert line in done.stderr


def test_output_is_utf8_in_a_bare_locale() -> None:
    done = run(NOISY, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.stdout.decode() == "answer 完成 \ufffd\n"


def test_closed_descriptors_are_replaced_by_the_null_device() -> None:
    program = """
import os
from dsh.cli.stream import claim_output
output = claim_output()
first = os.open("/dev/null", os.O_RDONLY)
assert first > 2, first
output.answer("lost")
"""
    code = f"exec {sys.executable} -c '{program}' <&- >&- 2>&-"
    assert subprocess.run(["/bin/sh", "-c", code], timeout=30).returncode == 0


@given(st.text(st.characters(exclude_categories=())))
def test_text_becomes_valid_and_stays_as_it_is_where_it_was(text: str) -> None:
    cleaned = valid(text)
    assert cleaned.encode("utf-8").decode("utf-8") == cleaned
    kept = [char for char in text if not "\ud800" <= char <= "\udfff"]
    rest = iter(cleaned)
    assert all(char in rest for char in kept)
    assert (cleaned == text) == (len(kept) == len(text))


def test_two_halves_that_fit_become_one_character_and_others_are_replaced() -> None:
    assert valid("a\ud83db\ud83c\udff7") == "a\ufffdb🏷"


@given(st.binary())
def test_arguments_are_read_as_utf8_whatever_the_locale(raw: bytes) -> None:
    expected = raw.decode("utf-8", "replace")
    assert from_system(raw.decode("utf-8", "surrogateescape")) == expected
    assert from_system(raw.decode("ascii", "surrogateescape")) == expected


def test_a_notice_shows_control_characters_instead_of_obeying_them() -> None:
    program = "from dsh.cli.stream import notice\nnotice('a\\x1b[31m\\x07\\r\\x9b\\x7f\\tb\\nc')"
    assert run(program).stderr.decode() == "a\\x1b[31m\\x07\\x0d\\x9b\\x7f\tb\nc\n"
