"""Which results are shown when there are too many."""

import json

from hypothesis import given
from hypothesis import strategies as st

from dsh.plugins.tool_fs_search.page import longest_fitting, sampled
from dsh.plugins.tool_fs_search.place import shown_path

PATHS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 20)).map(lambda part: f"{part[0]}/{part[1]}"),
    unique=True,
)


def folder(path: str) -> str:
    return path.split("/")[0]


@given(paths=PATHS, cap=st.integers(1, 30))
def test_every_folder_gets_a_place_before_any_gets_two(paths: list[str], cap: int) -> None:
    page = sampled(paths, ".", cap)

    counts = {name: sum(folder(path) == name for path in page) for name in dict.fromkeys(map(folder, paths))}
    for name, count in counts.items():
        available = sum(folder(path) == name for path in paths)
        assert count == available or count >= max(counts.values()) - 1
    assert len(page) == min(cap, len(paths))
    assert len(set(page)) == len(page)


@given(paths=PATHS, cap=st.integers(1, 30))
def test_groups_and_members_keep_their_order(paths: list[str], cap: int) -> None:
    page = sampled(paths, ".", cap)

    groups = [name for name in dict.fromkeys(map(folder, paths)) if name in set(map(folder, page))]
    assert list(dict.fromkeys(map(folder, page))) == groups
    for name in groups:
        members = [path for path in page if folder(path) == name]
        assert members == [path for path in paths if folder(path) == name][: len(members)]


def test_groups_are_counted_from_the_search_root() -> None:
    assert sampled(["src/a/1", "src/a/2", "src/b/1"], "src", 2) == ["src/a/1", "src/b/1"]
    assert sampled(["/x/a/1", "/x/a/2", "/x/b"], "/x", 2) == ["/x/a/1", "/x/b"]


@given(items=st.lists(st.text(max_size=10), max_size=20), max_bytes=st.integers(1, 200))
def test_as_much_as_fits_is_kept_and_at_least_one(items: list[str], max_bytes: int) -> None:
    def made(count: int) -> list[str]:
        return items[:count]

    def size(value: list[str]) -> int:
        return len(
            json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        )

    kept = longest_fitting(len(items), made, max_bytes)

    assert len(kept) == min(1, len(items)) or size(kept) <= max_bytes
    assert len(kept) == len(items) or size(made(len(kept) + 1)) > max_bytes


def test_paths_are_shown_relative_to_the_working_directory() -> None:
    assert shown_path("./a/b", "/ws") == "a/b"
    assert shown_path("/ws/a", "/ws") == "a"
    assert shown_path("/ws", "/ws") == "."
    assert shown_path("/wsx/a", "/ws") == "/wsx/a"
    assert shown_path("../a", "/ws") == "../a"
    assert shown_path("/a", "/") == "a"
