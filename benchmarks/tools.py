"""Rows about tools: each benchmark is a module of its own that prints its figures by name."""

from benchmarks.row import Row, alone, named


def tools() -> list[Row]:
    """All of them, in the order of the table."""
    return [*search()]


def search() -> list[Row]:
    """In process: `glob` and `grep` over 10,000 files (`benchmarks.search`)."""
    found = named(alone("search"))
    return [
        Row(
            "in process: `glob` over 10,000 files, all of them found; one of them",
            "",
            f"{found['glob_all_ms']:.0f} ms; {found['glob_one_ms']:.0f} ms",
            "",
        ),
        Row(
            "in process: `grep` over 10,000 files, 1,000 lines found; none",
            "",
            f"{found['grep_ms']:.0f} ms; {found['grep_none_ms']:.0f} ms",
            "",
        ),
    ]
