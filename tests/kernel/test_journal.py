"""What a tree remembers of its log, and who receives it (`spec/kernel.md` §10)."""

import logging
import subprocess
import sys

import pytest

from dsh.kernel import Context
from dsh.kernel.journal import MAX_LINE, RING_SIZE, LogEntry
from tests.aio import aio


def texts(ctx: Context) -> list[str]:
    return [entry.text for entry in ctx.kernel.journal.entries]


@aio
async def test_a_record_says_who_logged_it_and_when() -> None:
    root = Context()
    fiber = await root.plugin(
        lambda ctx: ctx.logger.warning("low on %s: %d left", "paper", 3), name="a.printer"
    )
    [entry] = root.kernel.journal.entries

    assert (entry.sn, entry.name, entry.level, entry.fiber) == (1, "a-printer", "warning", fiber.uid)
    assert entry.text == "low on paper: 3 left"
    assert entry.ts > 1_600_000_000_000


@aio
async def test_an_intercept_names_the_logger() -> None:
    root = Context()
    place = root.intercept("logger", {"name": "special"})
    await place.plugin(lambda ctx: ctx.logger.error("x"))
    await root.plugin(lambda ctx: ctx.logger.getChild("part").error("y"), name="plain")

    assert [entry.name for entry in root.kernel.journal.entries] == ["special", "plain-part"]


@aio
async def test_each_tree_has_its_own_records_and_module_loggers_reach_all() -> None:
    one, two = Context(), Context()
    one.logger.error("of one")
    two.logger.error("of two")
    logging.getLogger("dsh.some-module").error("of all")

    assert texts(one) == ["of one", "of all"]
    assert texts(two) == ["of two", "of all"]
    assert [entry.fiber for entry in one.kernel.journal.entries] == [0, None]


@aio
async def test_the_ring_forgets_the_oldest_and_goes_on_counting() -> None:
    root = Context()
    for number in range(RING_SIZE + 5):
        root.logger.error("%d", number)
    entries = root.kernel.journal.entries

    assert len(entries) == RING_SIZE
    assert (entries[0].text, entries[-1].sn) == ("5", RING_SIZE + 5)


@aio
async def test_the_level_of_a_logger_is_that_of_the_journal_too() -> None:
    root = Context()
    fiber = await root.plugin(lambda ctx: None, name="chatty")
    standard = logging.getLogger("dsh.chatty")
    standard.setLevel(logging.ERROR)
    try:
        fiber.ctx.logger.warning("dropped")
        standard.setLevel(logging.WARNING)
        fiber.ctx.logger.warning("kept")
    finally:
        standard.setLevel(logging.NOTSET)

    assert texts(root) == ["kept"]


@aio
async def test_long_lines_are_cut_each_by_itself() -> None:
    root = Context()
    root.logger.error("%s", "a" * (MAX_LINE + 1) + "\n" + "b" * MAX_LINE)

    assert texts(root) == ["a" * MAX_LINE + "...\n" + "b" * MAX_LINE]


@aio
async def test_keys_are_masked() -> None:
    root = Context()
    root.logger.error("key sk-abcdefgh12345678")

    assert texts(root) == ["key sk-***"]


@aio
async def test_causes_come_first_and_members_each() -> None:
    root = Context()
    try:
        try:
            raise ValueError("the cause")
        except ValueError as cause:
            raise ExceptionGroup("both", [KeyError("one"), OSError("two")]) from cause
    except ExceptionGroup as error:
        root.logger.error("it failed", exc_info=error)

    assert texts(root) == ["ValueError: the cause", "KeyError: 'one'", "OSError: two", "it failed"]


@aio
async def test_a_circle_of_causes_ends() -> None:
    root = Context()
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    root.logger.error("it failed", exc_info=one)

    assert texts(root) == ["ValueError: two", "it failed"]


@aio
async def test_an_exporter_goes_with_its_plugin_and_takes_no_other_with_it() -> None:
    root = Context()
    first: list[str] = []
    second: list[str] = []

    def exporting(heard: list[str]) -> object:
        def exporter(entry: LogEntry) -> None:
            heard.append(entry.text)

        return lambda ctx: ctx.export_logs(exporter)

    one = await root.plugin(exporting(first))
    await root.plugin(exporting(second))
    root.logger.error("1")
    await one.dispose()
    root.logger.error("2")

    assert (first, second) == (["1"], ["1", "2"])
    await root.dispose()
    assert root.statistics().exporters == 0


@aio
async def test_an_exporter_that_fails_or_logs_starts_no_circle() -> None:
    root = Context()
    heard: list[str] = []

    def fails(entry: LogEntry) -> None:
        raise ValueError("full")

    def logs(entry: LogEntry) -> None:
        root.logger.error("exported %d", entry.sn)

    root.export_logs(fails)
    root.export_logs(logs)
    root.export_logs(lambda entry: heard.append(entry.text))
    root.logger.error("x")

    assert heard == ["x"]
    assert texts(root) == ["x", "a log exporter failed: full", "exported 1"]


@pytest.mark.parametrize("configured", [False, True])
def test_without_any_handler_warnings_are_still_printed_once(configured: bool) -> None:
    setup = "logging.basicConfig(format='%(message)s')\n" if configured else ""
    program = (
        f"import logging\n{setup}from dsh.kernel import Context\n"
        "ctx = Context()\nctx.logger.info('quiet')\nctx.logger.warning('loud')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert (done.stdout, done.stderr) == ("", "loud\n")
