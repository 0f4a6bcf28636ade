"""The table of what we promise and what we measure: `python -m benchmarks [--runs N] [--install] [--write]`.

Whole processes against a local streaming server in a process of its own, medians over several runs, except
where a row says otherwise. Promised figures and those of the original (Node 24, another machine of the same
kind) come from the design; with `--original COMMAND` an installed original is measured here beside ours.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
from datetime import date
from pathlib import Path

from benchmarks.bench import CHUNKS, FEW_RUNS, REPOSITORY, Bench, arguments, server, stream
from benchmarks.measure import machine
from benchmarks.row import Row, alone, named
from benchmarks.tools import tools

RESULTS = REPOSITORY / "benchmarks" / "results.md"
OURS = [sys.executable, "-P", "-m", "dsh"]
TURNS = 10


def turns(bench: Bench) -> float:
    """How ten times the steps, each with a bash call, compare in CPU time."""
    none = bench.job("text-1")
    few, many = bench.job(f"turns-{TURNS}"), bench.job(f"turns-{TURNS * 10}")
    return (many.cpu_s - none.cpu_s) / (few.cpu_s - none.cpu_s)


def opening() -> str:
    """In process: open the log of the chunk benchmark and derive its messages."""
    events, rows, spent = alone("open_log").split()
    return f"{float(spent):.0f} ms ({events} events, {rows} rows)"


def kernel() -> list[Row]:
    """In process: rows mounted and disposed of, events dispatched (`benchmarks.mounting`)."""
    mount, dispose, growth, emit = map(float, alone("mounting").split())
    return [
        Row(
            "in process: mount 1,000 rows, and dispose of them, for each",
            "",
            f"{mount:.0f} + {dispose:.0f} µs",
            "",
        ),
        Row("10,000 rows, for each against 1,000", "at most 1.3 times", f"{growth:.1f} times", ""),
        Row("10,000 emits to 20 listeners, for each", "", f"{emit:.1f} µs", ""),
    ]


def sessions() -> list[Row]:
    """In process: stored sessions opened, listed and written (`benchmarks.sessions`)."""
    found = named(alone("sessions"))

    def flush(name: str) -> str:
        return f"{found[f'flush_{name}_us']:.0f} µs, {found[f'flush_{name}_growth']:.1f} times"

    return [
        Row(
            "in process: open 1,000,000 chunk events and derive; each against 250,000",
            "at most 1.1 times",
            f"{found['open_s'] * 1000:.0f} ms, {found['open_growth']:.1f} times",
            "",
        ),
        Row("memory kept for each of them", "0.3 KiB", f"{found['kept_kib']:.2f} KiB", ""),
        Row(
            "in process: list 5,000 sessions, headers only; each against 500",
            "at most 1.1 times",
            f"{found['list_s'] * 1000:.0f} ms, {found['list_growth']:.1f} times",
            "",
        ),
        Row(
            "append and flush, JSONL; each of 5,000 against each of 1,000",
            "at most 1.1 times",
            flush("jsonl"),
            "",
        ),
        Row("append and flush, SQLite; the same", "at most 1.1 times", flush("sqlite"), ""),
    ]


def steps(base_url: str) -> list[Row]:
    """In process: a thousand steps in one session, two hundred agents at once (`benchmarks.steps`)."""
    found = named(alone("steps", "--server", base_url))
    flat = "at most 1.1 times"
    return [
        Row(
            "in process: a step in a session of 1,000 steps; against one in a new session",
            flat,
            f"{found['step_us'] / 1000:.1f} ms, {found['step_growth']:.2f} times",
            "",
        ),
        Row(
            "the same with the DeepSeek adapter and a server, the sending of the bytes taken off",
            flat,
            f"{found['wire_us'] / 1000:.1f} ms, {found['wire_growth']:.2f} times",
            "",
        ),
        Row(
            f"to send the {found['sent_kib']:.0f} KiB of the last of these requests",
            "",
            f"{found['sent_us'] / 1000:.1f} ms",
            "",
        ),
        Row(
            "200 agents at once, five steps each: for each agent",
            "",
            f"{found['agent_ms']:.1f} ms, {found['agent_kib']:.0f} KiB",
            "",
        ),
    ]


def installed() -> str:
    """Size and packages of `pip install .` into a new environment, pip and setuptools left out."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        pip = Path(folder, "bin", "pip")
        subprocess.run([pip, "install", "--quiet", str(REPOSITORY)], check=True, capture_output=True)
        site = next(Path(folder, "lib").glob("python*/site-packages"))
        for tool in (
            *site.glob("pip*"),
            *site.glob("setuptools*"),
            *site.glob("_distutils*"),
            *site.glob("pkg_resources*"),
        ):
            shutil.rmtree(tool, ignore_errors=True)
        places = (site, Path(folder, "bin"))
        size = sum(
            f.stat().st_size
            for place in places
            for f in place.rglob("*")
            if f.is_file() and not f.is_symlink()
        )
        packages = sum(1 for _ in site.glob("*.dist-info"))
    return f"{size / 1e6:.0f} MB, {packages} packages"


def wires(bench: Bench) -> list[Row]:
    """The streamed chunks of each wire format, in whole processes."""
    rows = []
    for wire, name in (("openai", "OpenAI"), ("anthropic", "Anthropic")):
        cost = stream(bench, wire)
        rows += [
            Row(
                f"{CHUNKS:,} text chunks on the {name} wire, per chunk",
                "20 µs CPU, 0.3 KiB kept",
                cost.each(),
                "",
            ),
            Row(
                f"ten times the chunks, {name} wire",
                "at most 11 times the time",
                f"{cost.growth:.1f} times",
                "",
            ),
            Row(
                f"memory kept for each of {CHUNKS * 10:,} chunks, {name} wire",
                "0.3 KiB",
                f"{cost.long_kept_kib:.2f} KiB",
                "",
            ),
        ]
    for wire, name in (("deepseek", "DeepSeek"), ("openai", "OpenAI"), ("anthropic", "Anthropic")):
        work = f"{CHUNKS:,} fragments of one call's arguments on the {name} wire, for each"
        rows.append(Row(work, "20 µs CPU, 0.3 KiB kept", arguments(bench, wire), ""))
    return rows


def figures(bench: Bench) -> list[str]:
    """What is measured of any program, in the order of the table."""
    job = bench.job("job")
    dump, usage = bench.quick("--profile", "headless", "--dump-config"), bench.quick("--help")
    cost = stream(bench)
    return [
        f"{job.wall_s:.2f} s, {job.peak_mib:.0f} MiB",
        f"{dump.wall_s * 1000:.0f} ms",
        f"{usage.wall_s * 1000:.0f} ms",
        cost.each(),
        f"{cost.growth:.1f} times",
        f"{cost.long_kept_kib:.2f} KiB",
        f"{turns(bench):.1f} times",
    ]


def table(rows: list[Row]) -> str:
    lines = ["| work | promised | measured | the original |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {r.work} | {r.promised} | {r.ours} | {r.original} |" for r in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=7, help="counted runs of each command")
    parser.add_argument("--install", action="store_true", help="also measure a fresh installation")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results.md")
    parser.add_argument("--original", metavar="COMMAND", help="an installed original to measure beside ours")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as address:
        own = Bench(OURS, Path(folder, "ours"), address, options.runs)
        ours = figures(own)
        others = wires(own)
        loop = steps(f"{address}/v1")
        theirs = [
            "0.76 s, 172 MiB",
            "93 ms",
            "49 ms",
            "52 µs CPU, 3.3 KiB kept",
            "quadratic in places",
            "",
            "",
        ]
        if options.original:
            program = shlex.split(options.original)
            theirs = figures(Bench(program, Path(folder, "original"), address, options.runs))
    works = [
        ("one job: one bash call, two requests", "0.30 s, 60 MiB"),
        ("`--dump-config` of the headless profile", "90 ms"),
        ("`--help`", "60 ms"),
        ("50,000 text chunks in one reply, per chunk beyond a one-chunk reply", "20 µs CPU, 0.3 KiB kept"),
        ("ten times the chunks", "at most 11 times the time"),
        (f"memory kept for each of {CHUNKS * 10:,} chunks", "0.3 KiB"),
        ("ten times the steps, each with a bash call", "at most 11 times the time"),
    ]
    rows = [
        Row(work, goal, mine, other) for (work, goal), mine, other in zip(works, ours, theirs, strict=True)
    ]
    rows[6:6] = others
    rows.insert(4, Row("in process: open such a log and derive its messages", "60 ms", opening(), "133 ms"))
    rows.extend(sessions())
    rows.extend(loop)
    rows.extend(kernel())
    rows.extend(tools())
    if options.install:
        rows.append(Row("installed size, packages (no extras)", "65 MB, 30", installed(), "473 MB, 455"))
    text = table(rows)
    sys.stdout.write(f"{text}\n\n{machine()}\n")
    if options.write:
        RESULTS.write_text(
            f"# Benchmark results\n\n{date.today().isoformat()}, {machine()}.\n"
            f"Medians of {options.runs} whole processes, of {FEW_RUNS} for {CHUNKS * 10:,} chunks and for "
            "arguments; rows in process take the quick ones of several: "
            f"`python -m benchmarks --install --write`.\n\n{text}\n",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
