"""Rows about tools: each benchmark is a module of its own that prints its figures by name."""

from benchmarks.row import Row, alone, named


def tools() -> list[Row]:
    """All of them, in the order of the table."""
    return [*search(), *commands()]


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


def commands() -> list[Row]:
    """In process: commands through the shell (`benchmarks.commands`)."""
    found = named(alone("commands"))

    def beyond(name: str) -> str:
        took = found[f"{name}_ms"]
        return f"{took - found['bare_ms']:.0f} ms" if took >= 0 else "does not work here"

    return [
        Row("in process: a bash call, beyond what bash takes by itself, unconfined", "", beyond("plain"), ""),
        Row("the same under bubblewrap; under Landlock", "", f"{beyond('bwrap')}; {beyond('landlock')}", ""),
        Row(
            "a bash call that prints 100 MB: time, growth of our memory",
            "",
            f"{found['output_s']:.1f} s, {found['output_kib'] / 1024:.1f} MiB",
            "",
        ),
    ]
