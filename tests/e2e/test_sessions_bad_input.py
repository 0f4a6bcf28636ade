"""Every session command on whatever may lie where a log should: code, exit code, and no byte changed."""

import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsh.cli.main import main
from dsh.persistence.lock import LOCK_NAME
from dsh.testing.workspace import Workspace
from tests.cli.sessions.home import Home, Told
from tests.e2e.bad_log import HUGE, NOTHING, SMALL, UNREADABLE, Bad
from tests.nobody import NOBODY, as_nobody, reachable, unprivileged

READING = [
    ("show",), ("show", "--chunks"), ("inspect",), ("inspect", "--json"), ("stats",), ("stats", "--json"),
    ("stats", "--rows"), ("export",), ("export", "-f", "markdown"), ("export", "-f", "html"),
]  # fmt: skip

Run = Callable[..., Told]


@pytest.fixture
def run(home: Home, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run a session command in this process, as its entry point does."""

    def call(*words: str) -> Told:
        code = main(["sessions", *words])
        out, err = capfdbinary.readouterr()
        told = Told(code, out.decode("utf-8", "surrogateescape"), err.decode())
        assert "internal error" not in told.err and "Traceback" not in told.err, told.err
        return told

    return call


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    return _home(tmp_path, monkeypatch)


def _home(root: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home(root)
    for name in ("HOME", "DSH_HOME"):
        monkeypatch.setenv(name, str(made.path))
    monkeypatch.delenv("PWD", raising=False)
    monkeypatch.chdir(made.work)
    return made


def place(home: Home, bad: Bad) -> Path:
    """Put it where session demo.1 would lie."""
    path = home.sessions / "--srv-app--" / "demo.1" / bad.file_name
    path.parent.mkdir(parents=True)
    bad.make(path)
    return path


def state(folder: Path) -> list[tuple[object, ...]]:
    """All that lies there, to the byte; a lock that was taken leaves its file."""
    found: list[tuple[object, ...]] = []
    for path in sorted(folder.rglob("*")):
        if path.name == LOCK_NAME:
            continue
        at = path.lstat()
        digest = None
        if stat.S_ISREG(at.st_mode) and at.st_blocks * 512 >= at.st_size:
            digest = hashlib.sha256(path.read_bytes()).digest()
        time = None if stat.S_ISDIR(at.st_mode) else at.st_mtime_ns
        found.append((path, at.st_mode, at.st_size, time, digest))
    return found


def refused(told: Told, code: str) -> None:
    """Exit 1, nothing on standard output, the code in the first line, advice in the second."""
    assert (told.code, told.out) == (1, ""), told
    first, hint = told.err.splitlines()
    assert first.startswith(f"dsh: {code}: "), first
    assert hint.startswith("hint: ")
    assert len(told.err) < 2_000


small = pytest.mark.parametrize("bad", SMALL, ids=lambda bad: bad.name)


@small
def test_it_is_read_or_refused_by_its_code_and_stays_as_it_is(home: Home, run: Run, bad: Bad) -> None:
    path = place(home, bad)
    before = state(home.path)

    for target in (str(path), "demo.1"):
        code = bad.code or (bad.code_by_id if target == "demo.1" else "")
        for words in READING:
            told = run(*words, target)
            if code and not (bad.can_be_counted and "--rows" in words):
                refused(told, code)
            else:
                assert told.code == 0 and told.out, told
        raw = run("show", "--raw", target)
        assert raw.out if raw.code == 0 else re.match("dsh: [A-Z_]+: ", raw.err)
        told = run("verify", "--json", target)
        (log,) = json.loads(told.out)["logs"]
        assert told.code == (1 if code else 0)
        assert (log["status"] == "refused") == bool(code)
        if code:
            assert log["findings"][0]["code"] == code
            assert f": refused: {code}: " in run("verify", target).out
    assert state(home.path) == before


@small
def test_it_hides_no_other_and_nothing_is_changed_but_what_is_told_to_go(
    home: Home, run: Run, bad: Bad
) -> None:
    healthy = home.store("healthy", age_s=100)
    path = place(home, bad)
    before = state(home.path)
    code, is_listed = bad.code or bad.code_by_id, bad.is_listed

    listed = run("list", "--all", "--json")
    found = json.loads(listed.out)
    assert listed.code == 0 and listed.err == ""
    assert {one["id"] for one in found["sessions"]} == ({"healthy", "demo.1"} if is_listed else {"healthy"})
    assert [(one["code"], one["place"]) for one in found["problems"]] == (
        [] if is_listed else [(code, str(path))]
    )
    lines = run("list", "--all").err.splitlines()
    assert [line.split(": ")[1:3] for line in lines] == ([] if is_listed else [[code, str(path)]])
    assert run("prune", "--all", "--older-than", "60w", "--dry-run").code == 0
    assert run("verify", "--all").code == (1 if code else 0)
    if code:
        refused(run("fork", "demo.1"), code)
        refused(run("pack", "demo.1"), code)
    assert state(home.path) == before

    gone = run("delete", "--yes", "demo.1")
    if stat.S_ISDIR(path.lstat().st_mode) if path.exists() else False:
        refused(gone, code)
    else:
        assert (gone.code, gone.err) == (0, "") and not os.path.lexists(path)
    assert healthy.exists() and run("inspect", "healthy").code == 0


IN_LITTLE_MEMORY = """
import resource, sys
sys.dont_write_bytecode = True  # it would be torn
from dsh.cli.main import main
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("bad", "words"),
    list(zip(HUGE, (("verify",), ("show", "--raw"), ("inspect",), ("stats", "--rows")), strict=True)),
    ids=lambda value: value.name if isinstance(value, Bad) else value[0],
)
def test_what_grows_while_it_is_read_fits_into_little_memory(
    tmp_path: Path, bad: Bad, words: tuple[str, ...]
) -> None:
    workspace = Workspace(tmp_path, program=(sys.executable, "-P", "-c", IN_LITTLE_MEMORY))
    path = workspace.home / "sessions" / "--srv-app--" / "demo.1" / bad.file_name
    path.parent.mkdir(parents=True)
    bad.make(path)
    before = path.stat()

    listed = json.loads(workspace.run("sessions", "list", "--all", "--json").stdout)
    done = workspace.run("sessions", *words, "demo.1")

    assert [one["code"] for one in listed["problems"]] == ([] if bad.is_listed else [bad.code])
    assert done.code == (1 if bad.code else 0), done.stderr
    assert "internal error" not in done.stderr
    assert bad.code in done.stderr + done.stdout
    after = path.stat()
    assert (after.st_size, after.st_blocks, after.st_mtime_ns) == (
        before.st_size,
        before.st_blocks,
        before.st_mtime_ns,
    )


# -- what may not be looked at ----------------------------------------------------------------------------


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home whose owner is not root, for a test that is run `as_nobody`."""
    root = Path(tempfile.mkdtemp(prefix="dsh-nobody-", dir=reachable()))
    try:
        if os.geteuid() == 0:
            os.chown(root, NOBODY, NOBODY)
        with unprivileged():
            home = _home(root, monkeypatch)
        yield home
    finally:
        os.chdir("/")
        for folder, names, _ in os.walk(root):
            for name in names:
                (Path(folder) / name).chmod(0o700)
        shutil.rmtree(root)


@pytest.mark.parametrize("closed", ["log", "session", "project", "root"])
@as_nobody
def test_what_may_not_be_read_is_told_and_hides_nothing(
    nobody: Home, closed: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = nobody.store("closed", cwd="/srv/one")
    nobody.store("healthy", cwd="/srv/two")
    place = {"log": log, "session": log.parent, "project": log.parent.parent, "root": nobody.sessions}[closed]
    place.chmod(0)

    def run(*words: str) -> Told:
        code = main(["sessions", *words])
        out, err = capfdbinary.readouterr()
        return Told(code, out.decode(), err.decode())

    for words in (*READING, ("show", "--raw"), ("fork",), ("pack",), ("delete", "--yes")):
        if words == ("delete", "--yes") and closed == "log":
            continue  # whoever may write in the folder may delete what lies in it
        refused(run(*words, "closed"), NOTHING if closed == "project" else UNREADABLE)
    if closed != "root":
        found = json.loads(run("list", "--all", "--json").out)
        assert [one["id"] for one in found["sessions"]] == ["healthy"]
        assert [(one["code"], one["place"]) for one in found["problems"]] == [(UNREADABLE, str(place))]
        assert run("verify", "--all").code == 1
    else:
        refused(run("list", "--all"), UNREADABLE)
        refused(run("verify", "--all"), UNREADABLE)
    place.chmod(0o700)
    assert log.exists() and run("inspect", "closed").code == 0


@as_nobody
def test_a_place_that_may_not_be_written_is_read(
    nobody: Home, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = nobody.store("one", age_s=100)
    for folder in (log.parent, log.parent.parent, nobody.sessions):
        folder.chmod(0o500)
    before = state(nobody.path)

    for words in (*READING, ("verify",)):
        assert main(["sessions", *words, "one"]) == 0
    capfdbinary.readouterr()
    for words in (("fork",), ("pack",), ("delete", "--yes")):
        code = main(["sessions", *words, "one"])
        out, err = capfdbinary.readouterr()
        refused(Told(code, out.decode(), err.decode()), "SESSION_READ_ONLY")
    assert state(nobody.path) == before


# -- places -----------------------------------------------------------------------------------------------


def test_links_in_a_circle_and_ten_thousand_foreign_folders_hide_nothing(home: Home, run: Run) -> None:
    log = home.store("healthy")
    (home.sessions / "circle").symlink_to("circle")
    (log.parent.parent / "circle").symlink_to("circle")
    for number in range(10_000):
        (home.sessions / f"x{number}").mkdir()

    found = json.loads(run("list", "--json").out)

    assert [one["id"] for one in found["sessions"]] == ["healthy"]
    assert [one["code"] for one in found["problems"]] == [UNREADABLE]
    assert run("inspect", "healthy").code == run("inspect", "last").code == 0


@pytest.mark.parametrize(
    "target", ["no/where", "no/../where", "x" * 10_000, "/" + "y" * 10_000, "a\nb", "\x1b[2J"]
)
@pytest.mark.parametrize("command", ["show", "inspect", "stats", "export"])
def test_no_target_is_too_strange(home: Home, run: Run, command: str, target: str) -> None:
    home.store("one")

    refused(run(command, target), NOTHING)


@pytest.mark.parametrize("kind", ["file", "circle", "nowhere"])
def test_a_root_that_is_no_folder_is_refused_by_commands_and_by_runs(tmp_path: Path, kind: str) -> None:
    workspace = Workspace(tmp_path)
    root = workspace.home / "sessions"
    if kind == "file":
        root.write_text("no folder")
    else:
        root.symlink_to(root if kind == "circle" else "/no/such/folder")

    listed = workspace.run("sessions", "list", "--all")
    ran = workspace.run("--profile", "demo", "Run: echo x")

    told = NOTHING if kind == "nowhere" else UNREADABLE
    refused(Told(listed.code, listed.stdout, listed.stderr), told)
    assert ran.code == 3 and f"root {root} is no folder" in ran.stderr


SMALL_FILES = """
import resource, sys
sys.dont_write_bytecode = True  # it would be torn
from dsh.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
sys.exit(main())
"""


def test_a_file_that_may_not_grow_is_not_durable_and_leaves_nothing(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, program=(sys.executable, "-P", "-c", SMALL_FILES))

    mode = {"DSH_PERMISSION_MODE": "danger-full-access"}
    done = workspace.run("--profile", "demo", "Run: echo x", env=mode)

    assert done.code == 8 and "x\n" not in done.stdout.splitlines()
    first = done.stderr.splitlines()[0]
    assert first.startswith("dsh: SESSION_NOT_DURABLE: ") and "File too large" in first
    assert workspace.logs() == []


# -- the table --------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
_CODE = re.compile(r'"((?:[A-Z]+_)*(?:SESSION|LOG|PACKING)(?:_[A-Z]+)*)"')


def test_the_documented_codes_are_those_there_are() -> None:
    there = {
        code
        for source in (ROOT / "dsh" / "persistence").rglob("*.py")
        for code in _CODE.findall(source.read_text())
    } | set(_CODE.findall((ROOT / "dsh/cli/sessions/target.py").read_text()))
    page = (ROOT / "docs/command-line.md").read_text()
    table = page.partition("## Codes of stored sessions\n")[2].partition("\n## ")[0]

    documented = re.findall(r"^\| `([A-Z_]+)` \|", table, re.M)

    assert sorted(documented) == sorted(there)
    assert {bad.code for bad in (*SMALL, *HUGE)} - {""} <= set(documented)
