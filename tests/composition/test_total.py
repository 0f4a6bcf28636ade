"""Reading is total: any bytes give a value or a named error, in bounded time and space."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dsh.composition.dump import dump
from dsh.composition.expression.evaluation import Scope, config_data
from dsh.composition.grammar import read_patches
from dsh.composition.patch import Layer, Warned, apply_layers
from dsh.composition.profile import read_profile, shipped
from dsh.composition.text.yaml import parse_yaml
from dsh.composition.value import MarkedError
from dsh.errors import CompositionError
from tests.composition.layers import composed

SHIPPED = [shipped("bundles", f"{name}.yml").read_bytes() for name in ("base", "headless")]
MENDED = [
    b"", b" ", b"\n", b"- ", b":", b": ", b"{", b"]", b"'", b'"', b"!expr ", b"!!js ", b"&a ", b"*a", b"\t",
    b"#", b"|", b"null", b"id", b"config", b"insert", b"[]\n", b"---\n", b"\xff", b"\x00", b"1", b"%",
    b"<<: ",
]  # fmt: skip
"""What is put into a good file to spoil it."""


def read(data: bytes) -> None:
    """Read, compose, dump and evaluate; what is wrong has to be an error with a place in the file."""
    try:
        warnings: list[Warned] = []
        patches = read_patches(
            parse_yaml(data, "f.yml"), "f.yml", lambda text: warnings.append(Warned("f", text))
        )
        rows, missed = apply_layers([Layer("f", patches)])
        text = dump(composed()._replace(rows=rows))
        parse_yaml(text.encode(), "dump")
        scope = Scope(env={}, cwd="/ws", profile="p", home=Path("/h"), ctx=None)
        for row in (inner for top in rows for inner in top.walk()):
            config_data(None if row.carries_rows else row.config, scope)
    except MarkedError as error:
        file, line, column, *_ = str(error).split(":")
        assert (file, int(line) > 0, int(column) > 0) == ("f.yml", True, True)
        assert "\n" not in str(error)
    else:
        assert all("\n" not in str(warning) for warning in (*warnings, *missed))


@given(
    st.sampled_from(SHIPPED), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 6), st.sampled_from(MENDED)))
)
@example(SHIPPED[0], [])
def test_any_way_of_spoiling_a_good_file(data: bytes, spoilt: list[tuple[float, int, bytes]]) -> None:
    for where, count, put in spoilt:
        at = int(where * len(data))
        data = data[:at] + put + data[at + count :]
    read(data)


@given(
    st.binary(max_size=300)
    | st.text(alphabet="[]{}-:#&*!|>'\"%@`,? \n\\uUabid01.", max_size=60).map(str.encode)
)
def test_any_bytes(data: bytes) -> None:
    read(data)


@given(st.text(alphabet="[]{}-:,? \nbundlesrqi01", max_size=60))
def test_any_manifest(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "profile.yml"
    path.write_text(text)
    try:
        read_profile(path, "p", [])
    except CompositionError as error:
        assert str(error).startswith(f"{path}:")


MIB = 1024 * 1024
LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1},' * 9}]\n" for n in range(1, 30))
HOSTILE = {
    "lists in lists": "[" * MIB,
    "entries in entries": "- " * (MIB // 2),
    "keys in keys": "? " * (MIB // 2),
    "a billion laughs": LAUGHS,
    "one text everywhere": "a: &a " + "x" * 400_000 + "\n" + "".join(f"k{n}: *a\n" for n in range(50_000)),
    "one list everywhere": f"a: &a [{'x,' * 60_000}]\n" + "".join(f"k{n}: *a\n" for n in range(60_000)),
    "one long tag": "!" * MIB,
    "tags as long as they may be": f"- !{'x' * 65_000} a\n" * 16,
    "one long tag beside a colon": "- {a: b:c}\n- !" + "x" * 120_000,
    "brackets that only the slow parser reads": "{a: b:c, d: [" + "x," * (MIB // 2 - 10) + "]}",
    "as much as the slow parser reads": "{a: b:c, d: [" + "x," * 65_500 + "]}",
    "characters in two escapes": '["\\ud83d\\ude00", ' + "x," * (MIB // 2 - 20) + "]",
    "words that may be tags": ",!" * (MIB // 2),
    "as many words as there can be": (" !" + "x" * 30) * (MIB // 32),
    "one long number": "9" * MIB,
    "one long key twice": f"? {'k' * 400_000}\n: 1\n? {'k' * 400_000}\n: 2",
    "one long id missed": "- id: " + "k" * (MIB - 6),
    "a quote that never ends": '{a: b:c, d: "' + "x" * (MIB - 20),
    "directives": "%FOO x\n" * 100_000 + "---\na",
    "more than is read": "#" * (MIB + 1),
}
LIMITED = """
import resource, sys
from pathlib import Path
from tests.composition.test_total import MIB, read
data = sys.stdin.buffer.read()
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 192 * MIB,) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (15, 15))
read(data)
"""


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_files_are_refused_in_little_memory(text: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], input=text.encode(), capture_output=True, timeout=110
    )
    assert (done.returncode, done.stderr) == (0, b"")
