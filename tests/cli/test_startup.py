"""What the quick commands load, exactly. Start-up time follows from this set and from nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dsh.testing.workspace import Workspace
from tests.e2e.model import serve
from tests.e2e.reply import text

PROBE = """
import os, sys
before = set(sys.modules)
from dsh.cli.main import main
code = main(sys.argv[1:])
loaded = sorted(set(sys.modules) - before)
import json
os.write(2, json.dumps([code, loaded]).encode())
"""

LAUNCHER = {"dsh", "dsh.errors", "dsh.unicode", "dsh.cli"} | {
    f"dsh.cli.{module}" for module in ("argv", "directory", "main", "stream")
}
COMPOSITION = {
    "dsh.composition",
    "dsh.masking",
    *(
        f"dsh.composition.{module}"
        for module in (
            "compose",
            "dump",
            "expression",
            "expression.language",
            "grammar",
            "home",
            "patch",
            "plugin_name",
            "profile",
            "row",
            "text",
            "text.render",
            "text.source",
            "text.yaml",
            "value",
        )
    ),
}
TYPER = {"annotated_doc", "shellingham", "typer"}
RUAMEL = {"_cython_3_0_11", "_ruamel_yaml", "cython_runtime", "ruamel"}
HEAVY = {"asyncio", "concurrent", "dataclasses", "http", "json", "logging", "socket", "sqlite3", "ssl"}
"""Of the standard library: what costs more than two milliseconds and none of these commands needs."""


def modules_loaded_by(*words: str) -> tuple[set[str], set[str], set[str]]:
    """What a command line loads beyond a bare interpreter: of dsh, of others (top level), of Python."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60
    )
    code, loaded = json.loads(done.stderr.decode())
    assert code == 0
    tops = {name.partition(".")[0] for name in loaded}
    ours = {name for name in loaded if name.partition(".")[0] == "dsh"}
    return ours, tops - {"dsh"} - sys.stdlib_module_names, tops & sys.stdlib_module_names


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_loads_typer_and_nothing_of_the_product(flag: str) -> None:
    ours, others, standard = modules_loaded_by(flag)
    assert ours == LAUNCHER | {"dsh.cli.app"}
    assert others == TYPER
    assert standard & HEAVY == set()


def test_version_loads_next_to_nothing() -> None:
    ours, others, standard = modules_loaded_by("--version")
    assert ours == LAUNCHER
    assert others == set()
    assert standard & HEAVY == set()


@pytest.mark.parametrize("flag", ["--dump-config", "--dump-default-config"])
def test_dump_loads_the_pure_part_of_composition(flag: str) -> None:
    ours, others, standard = modules_loaded_by(flag)
    assert ours == LAUNCHER | COMPOSITION | {"dsh.cli.dump"}
    assert others - RUAMEL == set()
    assert standard & HEAVY == set()


def test_a_lock_imports_no_plugin_and_nothing_that_would_run_one() -> None:
    ours, others, standard = modules_loaded_by("--dump-config", "--lock")
    needed = {
        f"dsh.composition.{module}"
        for module in (
            "lock",
            "lock.digest",
            "lock.document",
            "lock.plugin_version",
            "mount",
            "mount.include",
        )
    }
    assert ours == LAUNCHER | COMPOSITION | {"dsh.cli.dump"} | needed
    assert others - RUAMEL == set()
    assert standard & HEAVY == {"json"}


INTERRUPTED = """
import sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "dsh.cli.argv":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
from dsh.cli.entry import main
sys.exit(main())
"""


def test_an_interrupt_while_modules_are_loaded_is_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


LOADED = (
    "import atexit, sys\n"
    "atexit.register(lambda: open('loaded.txt', 'w').write(' '.join(sys.modules)))\n"
    "from dsh.cli.entry import main\n"
    "sys.exit(main())\n"
)


def loaded_by(space: Workspace, *words: str) -> set[str]:
    """Every module that a run of the program has loaded by its end."""
    space.program = (sys.executable, "-c", LOADED)
    done = space.run(*words)
    assert done.code == 0, done.stderr
    return set((space.work / "loaded.txt").read_text().split())


def test_a_run_that_only_writes_its_log_loads_what_writes_it(tmp_path: Path) -> None:
    loaded = loaded_by(Workspace(tmp_path), "--profile", "demo", "hello")
    jsonl = {"backend", "frames", "layout", "lookup", "open_log", "stable", "writer"}
    assert {name for name in loaded if name.startswith("dsh.persistence.jsonl.")} == {
        f"dsh.persistence.jsonl.{name}" for name in jsonl
    }
    assert not loaded & {"dsh.persistence.tail", "dsh.persistence.system", "dsh.session.restore", "sqlite3"}
    compaction = {name for name in loaded if name.startswith("dsh.plugins.compaction_basic.")}
    assert compaction == {f"dsh.plugins.compaction_basic.{name}" for name in ("config", "trigger")}


def test_a_request_that_is_answered_loads_nothing_that_tells_failures_apart(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    with serve([text("ok")]) as model:
        space.use_model(model.base_url)
        loaded = loaded_by(space, "run", "hello")
    assert "dsh.llm.transport.attempt" in loaded
    assert "dsh.plugins.model_catalogue" in loaded
    assert not any(name.startswith("dsh.llm.catalogue") for name in loaded), "its data are not asked for"
    messages = {name for name in loaded if name.startswith("dsh.llm.anthropic.")}
    settings = {f"dsh.llm.anthropic.{name}" for name in ("adapter", "route", "thinking")}
    assert messages == settings, "another wire is not loaded"
    assert not loaded & {
        "dsh.capabilities.http_failure",
        "dsh.llm.transport.refusal",
        "dsh.llm.transport.classify",
        "dsh.llm.transport.wording",
        "html",
    }
