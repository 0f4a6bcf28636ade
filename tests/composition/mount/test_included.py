"""What a dump tells of included files, without mounting them."""

from pathlib import Path

import pytest

from dsh.composition.mount.included import warnings_of_includes
from dsh.composition.patch import apply_layers
from dsh.composition.row import Row
from dsh.errors import CompositionError
from tests.composition.layers import layer, write


def rows(folder: Path, text: str) -> list[Row]:
    return apply_layers([layer(str(folder / "p.yml"), text)])[0]


def include(path: str, more: str = "", entry_id: str = "inc") -> str:
    return f"{{id: {entry_id}, name: 'cordis:include', config: {{path: {path}{more}}}}}"


def said(folder: Path, text: str) -> list[str]:
    return [str(warning) for warning in warnings_of_includes(rows(folder, f"- insert: [{text}]"))]


def test_misses_and_unknown_fields_inside_are_told_with_the_ids_around(tmp_path: Path) -> None:
    deeper = include("./deep.yml", ", patches: [{id: goat}]", "two")
    write(tmp_path / "sub/in.yml", f"- {{id: a, name: p, confg: 1}}\n- {deeper}")
    write(tmp_path / "sub/deep.yml", "- {id: ghost, name: p}")
    assert said(tmp_path, include("./sub/in.yml", ", patches: [{id: aa}]", "one")) == [
        f'[one] unknown field "confg" ({tmp_path}/sub/in.yml:1:20); did you mean "config"?',
        f'[one] patch: entry "aa" not found ({tmp_path}/p.yml:1:85; closest: "a")',
        f'[one:two] patch: entry "goat" not found ({tmp_path}/sub/in.yml:2:74; closest: "ghost")',
    ]


def test_nothing_is_read_of_what_is_or_may_be_disabled(tmp_path: Path) -> None:
    off = include("./nope.yml")[:-1]
    group = "{{id: g, name: cordis:group, group: true, {} config: [{}]}}"
    assert said(tmp_path, off + ", disabled: true}") == []
    assert said(tmp_path, off + ", disabled: !expr platform != 'linux'}") == []
    assert said(tmp_path, group.format("disabled: true,", include("./nope.yml"))) == []
    with pytest.raises(CompositionError, match=r"config file not found: .*nope\.yml"):
        said(tmp_path, group.format("disabled: null,", include("./nope.yml")))


def test_a_broken_file_is_an_error_unless_its_row_is_optional(tmp_path: Path) -> None:
    write(tmp_path / "bad.yml", "- {id: a, name: p}\n- {id: a, name: p}")
    with pytest.raises(CompositionError, match=r"bad\.yml:2:8: duplicate loader entry id: a"):
        said(tmp_path, include("./bad.yml"))
    [text] = said(tmp_path, include("./bad.yml")[:-1] + ", optional: true}")
    assert text.startswith("[inc] ")
    assert "duplicate loader entry id: a" in text


def test_a_file_that_includes_itself_over_others_is_refused(tmp_path: Path) -> None:
    for name, following in (("a", "b"), ("b", "c"), ("c", "a")):
        write(tmp_path / f"{name}.yml", f"- {include(f'./{following}.yml', entry_id='next')}")
    with pytest.raises(CompositionError, match=r"c\.yml:1:\d+: .*a\.yml includes itself"):
        said(tmp_path, include("./a.yml"))
