"""An edit against a model of it on bytes, written another way: a regular expression over the raw file."""

import asyncio
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dsh.capabilities.fs import FsEditRequest, FsError
from dsh.capabilities.local_fs.provider import FsConfig, LocalFileSystem
from tests.aio import aio

BOM = b"\xef\xbb\xbf"
PIECES = (
    "a",
    "b",
    "ab",
    "\n",
    "\r\n",
    "\r",
    "\n\n",
    "\U0001f600",
    "é",
    "\u2028",
    " ",
    "\\1",
    "$&",
    ".*",
    "\ufeff",
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
SHORT = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)


def model(data: bytes, old: str, new: str, *, replace_all: bool) -> bytes | str:
    """The bytes after the edit, or the code of its refusal."""
    flat_old, flat_new = (text.replace("\r\n", "\n").encode() for text in (old, new))
    if not flat_old:
        return "FS_EDIT_NOT_FOUND"
    units = {b"\n": rb"(?:\r\n|(?<!\r)\n)", b"\r": rb"\r(?!\n)"}
    pattern = re.compile(
        b"".join(units.get(bytes([byte]), re.escape(bytes([byte]))) for byte in flat_old), re.DOTALL
    )
    found = list(pattern.finditer(data))
    if not found:
        return "FS_EDIT_NOT_FOUND"
    if len(found) > 1 and not replace_all:
        return "FS_AMBIGUOUS_EDIT"
    breaks = [(one.start(), one[0]) for one in re.finditer(rb"\r\n|\n", data)]
    out, done = b"", 0
    for match in found:
        inside = [ending for at, ending in breaks if match.start() <= at < match.end()]
        before = [ending for at, ending in breaks if at < match.start()]
        after = [ending for at, ending in breaks if at >= match.end()]
        ending = (inside[:1] or before[-1:] or after[:1] or [b"\n"])[0]
        out += data[done : match.start()] + flat_new.replace(b"\n", ending)
        done = match.end()
    return out + data[done:]


async def edited(folder: Path, data: bytes, old: str, new: str, *, replace_all: bool) -> bytes | str:
    path = folder / "f"
    path.write_bytes(data)
    fs = LocalFileSystem(FsConfig(cwd=str(folder)))
    stamp = path.stat().st_mtime_ns
    try:
        await fs.edit_text(await fs.resolve("f"), FsEditRequest(old, new, replace_all))
    except FsError as error:
        assert path.read_bytes() == data
        assert path.stat().st_mtime_ns == stamp
        return error.code
    finally:
        assert [one.name for one in folder.iterdir()] == ["f"]
    return path.read_bytes()


@settings(max_examples=250, deadline=None)
@given(
    text=TEXTS, around=st.tuples(TEXTS, TEXTS), old=SHORT, new=TEXTS, replace_all=st.booleans(),
    has_bom=st.booleans(), has_match=st.booleans(),
)  # fmt: skip
@example(
    text="a\r\nb\nc\rd",
    around=("", ""),
    old="b\nc",
    new="x\ny",
    replace_all=False,
    has_bom=True,
    has_match=False,
)
def test_an_edit_is_what_the_model_says(
    text: str, around: tuple[str, str], old: str, new: str, replace_all: bool, has_bom: bool, has_match: bool
) -> None:
    data = (BOM if has_bom else b"") + (f"{around[0]}{old}{around[1]}" if has_match else text).encode()
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(edited(Path(folder), data, old, new, replace_all=replace_all))

    assert result == model(data, old, new, replace_all=replace_all)


@pytest.mark.parametrize("bad", [b"\0", b"\xff", b"\xed\xa0\x80", b"\xc3"])
@pytest.mark.parametrize("at", [0, 9_000, 20_000, 3_000_000])
@aio
async def test_a_bad_byte_anywhere_leaves_the_file_alone(tmp_path: Path, bad: bytes, at: int) -> None:
    data = b"TARGET " + b"x" * at + bad + b"\r\n" * 10

    assert await edited(tmp_path, data, "TARGET", "y", replace_all=False) == "FS_NOT_TEXT"


@aio
async def test_a_long_file_is_edited_at_both_ends(tmp_path: Path) -> None:
    data = b"first\r\n" + b"x" * 5_000_000 + b"\n" + b"y\r\n" * 300_000 + b"last"

    assert await edited(tmp_path, data, "first\n", "1\n2\n", replace_all=False) == (
        b"1\r\n2\r\n" + data.removeprefix(b"first\r\n")
    )
    assert await edited(tmp_path, data, "\nlast", "\nend\n", replace_all=False) == (
        data.removesuffix(b"last") + b"end\r\n"
    )
