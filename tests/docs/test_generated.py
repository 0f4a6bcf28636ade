"""What is generated in the documents is what the code says now, and says something of everything."""

import ast
import re
from pathlib import Path

import pytest

import dsh.kernel
from docs.generate import calls, program, reading, rows, settings
from docs.generate.declared import events, services
from docs.generate.markdown import UnknownSection, filled
from docs.generate.page import made_pages, made_sections, pages
from docs.generate.source import REPOSITORY, module_names, tree_of
from dsh.cli.argv import COMMANDS
from dsh.composition.profile import shipped_names
from dsh.kernel import CancelToken, Context, Fiber

DOCS = REPOSITORY / "docs"
COMMAND_LINE = (DOCS / "command-line.md").read_text(encoding="utf-8")
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
DISPATCHES = ("emit", "parallel", "serial", "bail", "waterfall", "on", "once")


@pytest.mark.parametrize("path", sorted(made_pages()), ids=lambda path: path.name)
def test_the_generated_parts_are_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == made_pages()[path], "run: python -m docs.generate"


def test_every_generated_section_has_its_page() -> None:
    shown = "".join(path.read_text(encoding="utf-8") for path in pages())

    assert [name for name in made_sections() if f"<!-- generated: {name} -->" not in shown] == []


def test_a_section_that_nobody_makes_is_refused() -> None:
    page = "<!-- generated: nothing -->\n<!-- end of generated: nothing -->\n"

    with pytest.raises(UnknownSection, match="nothing"):
        filled(page, {})


def test_every_config_key_says_what_it_means() -> None:
    plugins = [made.plugin for made in rows.rows()] + list(rows.unmounted())
    silent = [f"{p.name}: {key.path}" for p in plugins if p is not None for key in p.keys if not key.meaning]

    assert silent == [], "a docstring below the field is its meaning"


def test_every_event_says_what_it_is_about() -> None:
    assert [event.event.name for event in events() if not event.doc] == []


def test_every_event_and_service_has_its_types() -> None:
    assert [event.event.name for event in events() if not event.payload] == []
    assert [service.key.name for service in services() if not service.interface] == []


def test_every_event_that_is_named_by_text_is_declared() -> None:
    declared = {event.event.name for event in events()}
    named = {
        node.args[0].value
        for module in module_names()
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in DISPATCHES
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
        and re.fullmatch(r"[a-z-]+(?:/[a-z-]+)+", node.args[0].value)
    }

    assert named - declared == set()


def test_every_row_of_a_shipped_bundle_is_in_the_catalogue() -> None:
    catalogue = (DOCS / "rows.md").read_text(encoding="utf-8")
    written = {
        row_id
        for name in shipped_names("bundles")
        for row_id in re.findall(
            r"^ +- id: (\S+)\n", (REPOSITORY / f"bundles/{name}.yml").read_text("utf-8"), re.MULTILINE
        )
    }

    assert len(written) > 20
    assert [row_id for row_id in sorted(written) if f"\n### {row_id}\n" not in catalogue] == []


def test_every_plugin_is_in_the_catalogue() -> None:
    catalogue = (DOCS / "rows.md").read_text(encoding="utf-8")
    folder = REPOSITORY / "dsh" / "plugins"
    names = {path.stem.replace("_", "-") for path in folder.iterdir() if not path.name.startswith("_")}

    assert [name for name in sorted(names) if f"\n### {name}\n" not in catalogue] == []


def test_every_command_and_flag_is_on_the_page_of_the_command_line() -> None:
    shown = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", COMMAND_LINE))

    assert {flag for _, flag in program.flags()} - shown == set()
    assert [words for words in program.commands() if f"dsh {words}".strip() not in COMMAND_LINE] == []
    assert set(COMMANDS) - set(program.commands()) == set()


def test_every_exit_code_is_explained() -> None:
    def codes(page: str) -> set[int]:
        cells = re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE)
        return {int(code) for cell in cells for code in cell.split(",")}

    known = set(program.exit_codes())

    assert known - codes(COMMAND_LINE) == set()
    assert codes(README) - codes(COMMAND_LINE) == set()


def test_every_variable_that_dsh_reads_or_sets_is_explained() -> None:
    assert program.variables() - set(re.findall(r"`(DSH_[A-Z_]+)`", COMMAND_LINE)) == set()


def test_every_name_that_the_kernel_exports_is_on_its_page() -> None:
    page = (DOCS / "kernel.md").read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", page))

    assert [name for name in dsh.kernel.__all__ if name not in words] == []


@pytest.mark.parametrize("cls", [Context, Fiber, CancelToken])
def test_every_call_says_what_it_does(cls: type) -> None:
    assert [name for name, doc in calls.members(cls) if not doc] == []


def test_the_kernel_can_be_read_in_the_order_that_its_page_gives() -> None:
    assert sorted(reading.READING) == sorted(reading.modules())


def test_what_is_left_out_of_the_table_of_a_fiber_is_there() -> None:
    names = {name for name, _ in calls.members(Fiber)}

    assert names >= calls.KERNELS_OWN
    assert {"tree", "restart", "update", "dispose", "missing"} <= names - calls.KERNELS_OWN


def test_a_call_is_shown_with_its_parameters() -> None:
    assert "`ctx.effect(setup, label='anonymous')`" in calls.member_table(Context, "ctx")


def test_every_settings_section_is_documented() -> None:
    calls_of_sections = [
        node
        for module in module_names()
        if module.startswith("dsh.plugins.")
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in ("install_settings_section", "serve_routes")
    ]

    assert len(calls_of_sections) == sum(len(section.plugins) for section in settings.sections())
    assert all(key.meaning for section in settings.sections() for key in section.keys)
