"""An explanation as text: 80 columns, nothing that a terminal would obey, and what stands where."""

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dsh.cli.columns import width
from dsh.cli.explain_text import WIDTH, described
from dsh.composition.explain.shape import Explanation, Place, RowInfo, ServiceInfo, ValueInfo, WaitInfo

PLACE = Place(layer="base", file="/x/base.yml", line=3, column=5, short="base:3")


def value(path: str, of: object, **fields: object) -> ValueInfo:
    given = {"expression": None, "source": "written", "place": PLACE, "unknown": False, **fields}
    return ValueInfo(path=tuple(path.split(".")), value=of, **given)  # type: ignore[arg-type]


def row(row_id: str = "a", **fields: object) -> RowInfo:
    empty: dict[str, object] = dict.fromkeys(
        ("changes", "dropped", "config", "settings", "injects", "waits"), ()
    )
    plain = {"plugin": "dsh 1", "state": "ready", "group": None, "optional": False, "provides": ()}
    given = {**empty, **plain, "disabled": None, "problem": None, **fields}
    return RowInfo(id=row_id, name="plug", origin=PLACE, **given)  # type: ignore[arg-type]


def explanation(*rows: RowInfo, services: tuple[ServiceInfo, ...] = ()) -> Explanation:
    return Explanation(
        version=1,
        dsh="1",
        profile="p",
        digest="sha256:0",
        layers=(),
        warnings=(),
        rows=rows,
        removed=(),
        services=services,
    )


def text(*rows: RowInfo, services: tuple[ServiceInfo, ...] = ()) -> str:
    return described(explanation(*rows, services=services), is_one=False)


def line_with(shown: str, words: str) -> str:
    (line,) = [line for line in shown.splitlines() if line.strip().startswith(words)]
    return re.sub(" {2,}", "  ", line.strip())


def test_each_value_has_its_place_on_the_right() -> None:
    shown = text(
        row(
            config=(
                value("a.b", 1),
                value("c", "two words"),
                value("d", [1, "x"]),
                value("e", ""),
                value("f", None, expression="cwd"),
                value("g", 5, source="default", place=None),
                value("h", 5, source="default"),
                value("i", True, unknown=True),
            )
        )
    )

    assert line_with(shown, "a.b:") == "a.b: 1  base:3"
    assert line_with(shown, "c:") == "c: two words  base:3"
    assert line_with(shown, "d:") == 'd: [1, "x"]  base:3'
    assert line_with(shown, "e:") == 'e: ""  base:3'
    assert line_with(shown, "f:") == "f: !expr cwd  base:3"
    assert line_with(shown, "g:") == "g: 5  default"
    assert line_with(shown, "h:") == "h: 5  default, null at base:3"
    assert line_with(shown, "i:") == "i: true  unknown key, base:3"


def test_what_would_stop_a_start_is_told_last() -> None:
    wait = WaitInfo(service="fs", because=("one", "two"), next="do this")

    lines = text(
        row("a", state="waiting", waits=(wait,)), row("b", state="failing", problem="bad")
    ).splitlines()

    assert lines[-4:] == [
        "2 rows, 0 off; a start would stop at",
        "  row a waits for fs: two",
        "    next: do this",
        "  row b: bad",
    ]


def test_a_start_does_not_stop_at_an_optional_row() -> None:
    wait = WaitInfo(service="fs", because=("one",), next="do this")

    lines = text(row("a", state="waiting", optional=True, waits=(wait,))).splitlines()

    assert lines[-4:] == [
        "1 row, 0 off; nothing is missing",
        "a start would do without the optional",
        "  row a waits for fs: one",
        "    next: do this",
    ]


def test_places_stand_in_one_column_behind_chinese_text_as_well() -> None:
    lines = text(row("模型", config=(value("名字", "深度求索 " * 20), value("a", 1)))).splitlines()

    ends = [width(line) for line in lines if line.endswith("base:3")]
    assert ends == [WIDTH] * 3
    (cut,) = [line for line in lines if "名字" in line]
    assert "深度求索" in cut and "…" in cut


def test_reasons_in_chinese_are_wrapped_by_what_they_take_on_the_terminal() -> None:
    wait = WaitInfo(service="fs", because=("一个 " * 40,), next="再试")

    lines = text(row("a", state="waiting", waits=(wait,))).splitlines()

    reasons = [line for line in lines if "一个" in line]
    assert WIDTH - 6 < max(map(width, reasons)) <= WIDTH


def test_two_providers_of_one_service_are_told() -> None:
    service = ServiceInfo(service="fs", realm="default", providers=("a", "b"), consumers=())

    assert text(row(), services=(service,)).endswith("  service fs: more than one provides it: a, b\n")


def test_paths_below_the_users_folder_are_shortened() -> None:
    mine = Place(layer=None, file="", line=1, column=1, short=f"{Path.home()}/x/more.yml:1")
    other = Place(layer=None, file="", line=1, column=1, short=f"{Path.home()}x/more.yml:1")

    shown = text(row(config=(value("a", 1, place=mine), value("b", 1, place=other))))

    assert line_with(shown, "a:") == "a: 1  ~/x/more.yml:1"
    assert line_with(shown, "b:").endswith(f"{Path.home()}x/more.yml:1")


WORDS = st.text(max_size=200)


@given(row_id=WORDS, of=WORDS | st.lists(WORDS) | st.integers(), expression=st.none() | WORDS, reason=WORDS)
def test_no_text_breaks_the_lines_or_reaches_the_terminal_as_a_command(
    row_id: str, of: object, expression: str | None, reason: str
) -> None:
    wait = WaitInfo(service="s", because=(reason,), next=reason)

    shown = text(row(row_id, config=(value("k", of, expression=expression),), waits=(wait,), state="waiting"))

    assert all(line.isprintable() for line in shown.split("\n"))
    head, _, _ = shown.partition("  waits for")
    assert max(map(width, head.splitlines())) <= WIDTH
