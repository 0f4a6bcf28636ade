"""`dsh plugin` with a real pip and an index in a folder: what lands in a profile, and what never changes."""

import json
import os
import signal
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dsh.testing.workspace import Finished, Workspace, finish
from tests.process import is_gone, wait_until
from tests.wheel import make_wheel

ROW = "- insert: [{{id: {0}, name: {0}}}]\n"
PLUGIN = "import sys\ndef apply(ctx): print('{0} runs', file=sys.stderr)\n"


class Shop(Workspace):
    """A workspace with an index of packages of its own."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.index = self.work / "index"
        self.env.update(PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull, UV_NO_CONFIG="1", UV_OFFLINE="1")
        make_wheel(self.index, "extra-rows", "1.0", **self.bundle("extra"), needs=["helper<2", "dsh>=0.0.1"])
        make_wheel(self.index, "helper", "1.5")
        make_wheel(self.index, "helper", "2.0")
        make_wheel(
            self.index,
            "lone",
            "1.0",
            points="[dsh.plugins]\nlone = lone.row\n",
            row__py=PLUGIN.format("lone"),
        )
        make_wheel(self.index, "needs-two", "1.0", needs=["helper>=2"])

    @staticmethod
    def bundle(name: str) -> dict[str, Any]:
        """The parts of a package with a bundle and its plugin."""
        return {
            "points": f"[dsh.bundles]\n{name} = {name}_rows\n[dsh.plugins]\n{name} = {name}_rows.row\n",
            "dsh__patch__yml": ROW.format(name),
            "row__py": PLUGIN.format(name),
        }

    def plugin(self, command: str, *words: str, profile: str = "mine", **options: Any) -> Finished:
        """One command of `dsh plugin`; `add` looks into the index."""
        index = ["--find-links", "index"] if command == "add" else []
        return self.run("plugin", command, "--profile", profile, *index, *words, **options)

    def add(self, *words: str, profile: str = "mine") -> Finished:
        done = self.plugin("add", *words, profile=profile)
        assert (done.code, done.stdout) == (0, ""), done.stderr
        return done

    def folder(self, profile: str = "mine") -> Path:
        return self.home / "profiles" / profile

    def manifest(self, profile: str = "mine") -> str:
        return (self.folder(profile) / "profile.yml").read_text()

    def listed(self, profile: str = "mine") -> dict[str, Any]:
        done = self.plugin("list", "--json", profile=profile)
        assert done.code == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def versions(self, profile: str = "mine") -> dict[str, str]:
        return {one["name"]: one["version"] for one in self.listed(profile)["packages"]}

    def state(self) -> dict[str, bytes]:
        """Every file of the home, but for lock files."""
        files = (path for path in self.home.rglob("*") if path.is_file() and path.suffix != ".lock")
        return {str(path): path.read_bytes() for path in files}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def ours(done: Finished) -> list[str]:
    """What dsh itself said."""
    return [line.removeprefix("dsh: ") for line in done.errors if line.startswith("dsh: ")]


def test_a_bundle_is_installed_listed_mounted_and_removed(shop: Shop) -> None:
    done = shop.add("extra-rows", profile="demo")
    assert ours(done) == [
        f"initialized profile demo at {shop.folder('demo')}",
        "profile demo: added extra-rows 1.0",
        "profile demo: added helper 1.5, which another package needs",
        "profile demo: bundle extra is now part of it",
    ]
    assert shop.manifest("demo").endswith(
        "bundles:\n  - base\n  - headless\n  - demo\n  - extra\nrequires:\n  - extra-rows\n"
    )
    assert shop.versions("demo") == {"extra-rows": "1.0", "helper": "1.5"}

    ran = shop.run("--profile", "demo", "hello")
    assert (ran.code, ran.stdout) == (0, "offline demo model: hello\n")
    assert "extra runs" in ran.errors

    done = shop.plugin("remove", "Extra_Rows", profile="demo")
    assert ours(done) == [
        "profile demo: removed extra-rows 1.0",
        "profile demo: removed helper 1.5",
        "profile demo: bundle extra is no longer part of it",
    ]
    assert shop.manifest("demo").endswith("bundles:\n  - base\n  - headless\n  - demo\n")
    assert sorted(path.name for path in shop.folder("demo").iterdir()) == ["profile.yml"]
    assert "extra runs" not in shop.run("--profile", "demo", "hello").errors


def test_a_package_without_a_bundle_says_once_how_to_mount_its_plugins(shop: Shop) -> None:
    note = (
        "lone brings no bundle; to mount its plugins, write into "
        + str(shop.folder() / "dsh.patch.yml")
        + ":"
    )
    done = shop.add("lone")
    assert note in ours(done)
    (shop.folder() / "dsh.patch.yml").write_text(done.errors[-1] + "\n")
    (shop.folder() / "profile.yml").write_text("bundles: [base, headless, demo]\nrequires: [lone]\n")
    assert "lone runs" in shop.run("--profile", "mine", "hello").errors

    assert note not in ours(shop.add("extra-rows"))
    assert shop.manifest() == "bundles: [base, headless, demo, extra]\nrequires: [lone, extra-rows]\n"


def test_the_profile_may_be_named_before_the_command(shop: Shop) -> None:
    done = shop.run("plugin", "--profile", "mine", "add", "--find-links", "index", "lone")
    assert (done.code, done.stdout) == (0, "")
    assert shop.run("plugin", "--profile", "mine", "list").stdout == shop.plugin("list").stdout
    assert "lone 1.0" in shop.run("plugin", "--profile", "other", "list", "--profile", "mine").stdout
    assert shop.run("plugin", "--profile=mine", "remove", "lone").code == 0
    assert shop.versions() == {}


def test_a_new_profile_says_at_once_that_it_has_no_app(shop: Shop) -> None:
    manifest = shop.folder() / "profile.yml"
    told = f"profile mine: {{}}; to add one, write headless into bundles of {manifest}"
    assert told.format("it cannot run: it has no app") in ours(shop.add("lone"))
    manifest.write_text(manifest.read_text().replace("- base\n", "- base\n  - headless\n"))
    assert shop.run("--profile", "mine", "--help").code == 0
    assert not any("no app" in line for line in ours(shop.add("helper")))

    other = told.replace("mine", "other").format("unless extra brings an app, it cannot run")
    assert other in ours(shop.add("extra-rows", profile="other"))


def test_a_new_profile_starts_from_the_base_bundle_and_comments_stay(shop: Shop) -> None:
    shop.add("lone")
    text = shop.manifest()
    assert text.endswith("bundles:\n  - base\nrequires:\n  - lone\n")
    shop.folder().joinpath("profile.yml").write_text(
        "# mine\nbundles:\n- base # first\n# then\n- headless\nrequires:\n- lone # why\n"
    )
    shop.add("extra-rows>=1.0")
    assert shop.manifest() == (
        "# mine\nbundles:\n- base # first\n# then\n- headless\n- extra\n"
        "requires:\n- lone # why\n- extra-rows>=1.0\n"
    )


def test_what_is_there_is_neither_fetched_nor_changed(shop: Shop) -> None:
    shop.add("extra-rows", "lone")
    for wheel in shop.index.glob("*.whl"):
        if not wheel.name.startswith("needs"):
            wheel.unlink()
    make_wheel(shop.index, "helper", "1.9")
    make_wheel(shop.index, "other", "1.0", needs=["helper"])
    assert ours(shop.add("other")) == [
        "profile mine: added other 1.0",
        "other names neither a bundle nor a plugin; rows may name its modules",
    ]
    assert shop.versions() == {"extra-rows": "1.0", "helper": "1.5", "lone": "1.0", "other": "1.0"}

    assert ours(shop.plugin("remove", "extra-rows"))[:1] == ["profile mine: removed extra-rows 1.0"]
    assert shop.versions() == {"helper": "1.5", "lone": "1.0", "other": "1.0"}
    assert ours(shop.add()) == ["profile mine: nothing to change"]


def test_upgrades_replace_the_old_version_whole(shop: Shop) -> None:
    shop.add("extra-rows")
    make_wheel(shop.index, "extra-rows", "1.1", **shop.bundle("extra"), needs=["helper"], more__py="")
    assert ours(shop.add()) == ["profile mine: nothing to change"]
    assert ours(shop.add("extra-rows")) == ["profile mine: changed extra-rows from 1.0 to 1.1"]
    assert ours(shop.add("-U")) == ["profile mine: changed helper from 1.5 to 2.0"]
    site = shop.folder() / "site"
    assert sorted(path.name for path in site.glob("*.dist-info")) == [
        "extra_rows-1.1.dist-info",
        "helper-2.0.dist-info",
    ]
    make_wheel(shop.index, "extra-rows", "1.2", needs=["helper"])
    assert ours(shop.add("extra-rows==1.2")) == [
        "profile mine: changed extra-rows from 1.1 to 1.2",
        "profile mine: bundle extra is no longer part of it",
    ]
    assert not (site / "extra_rows/more.py").exists()
    assert shop.manifest().endswith("bundles:\n  - base\nrequires:\n  - extra-rows==1.2\n")


def test_a_conflict_with_what_is_there_changes_nothing(shop: Shop) -> None:
    shop.add("extra-rows")
    make_wheel(shop.index, "wants-dsh", "1.0", needs=["dsh>=999"])
    before = shop.state()
    for package in ("needs-two", "wants-dsh", "nowhere"):
        done = shop.plugin("add", package)
        assert (done.code, done.stdout) == (1, "")
        assert ours(done) == [f"pip failed in profile directory {shop.folder()}; nothing has changed"]
        assert shop.state() == before


def test_a_failed_first_package_leaves_no_profile(shop: Shop) -> None:
    assert shop.plugin("add", "nowhere").code == 1
    assert not shop.folder().exists()
    assert shop.run("--profile", "mine", "x").code == 3


def test_a_broken_bundle_is_refused_by_name_and_place(shop: Shop) -> None:
    broken = {**shop.bundle("extra"), "dsh__patch__yml": "- insert: [{id: 7}]\n"}
    make_wheel(shop.index, "extra-rows", "3.0", **broken)
    done = shop.plugin("add", "extra-rows")
    assert done.code == 3
    assert "dsh.patch.yml:1:" in ours(done)[0]
    assert not shop.folder().exists()
    lost = {**shop.bundle("extra")}
    del lost["dsh__patch__yml"]
    make_wheel(shop.index, "extra-rows", "4.0", **lost)
    done = shop.plugin("add", "extra-rows")
    assert (done.code, "holds no file dsh.patch.yml" in ours(done)[0]) == (3, True)


def test_a_package_of_the_installation_is_not_installed_again(shop: Shop) -> None:
    done = shop.add("msgspec")
    told = [line for line in ours(done) if line.startswith("msgspec 0.")]
    assert [line.partition(" is ")[2] for line in told] == ["part of the installation already"]
    assert shop.versions() == {}


def test_a_bundle_of_a_shipped_name_is_told_and_not_used(shop: Shop) -> None:
    make_wheel(shop.index, "base-rows", "1.0", **shop.bundle("base"))
    assert "profile mine: its bundle base is not used: dsh or the installation brings one" in ours(
        shop.add("base-rows")
    )
    assert "  - base\nrequires" in shop.manifest()


def test_a_plugin_of_a_shipped_name_is_told_and_not_offered(shop: Shop) -> None:
    for name, points in (("mixed", "tools = mixed.row\nown = mixed.row"), ("twin", "tool_bash = twin.row")):
        make_wheel(shop.index, name, "1.0", points=f"[dsh.plugins]\n{points}\n", row__py=PLUGIN.format(name))
    done = shop.add("mixed", "twin")
    told = "its plugin {} is not used: dsh has one of that name"
    assert f"mixed: {told.format('tools')}" in ours(done)
    assert f"twin: {told.format('tool_bash')}" in ours(done)
    assert [line for line in done.errors if line.startswith("- insert")] == [
        "- insert: [{id: own, name: own}]"
    ]
    listed = shop.plugin("list").stdout
    assert "  plugin own\n  plugin tools  (not used: dsh has one of that name)\n" in listed


def test_a_path_is_meant_from_the_invoking_folder_and_written_down_absolute(shop: Shop) -> None:
    wheel = make_wheel(shop.work / "here", "pathy", "1.0")
    shop.add("./here/" + wheel.name)
    assert f"- pathy @ {wheel.as_uri()}\n" in shop.manifest()
    make_wheel(shop.work / "here", "pathy", "1.0", more__py="")
    shop.add("here/" + wheel.name)
    assert (shop.folder() / "site/pathy/more.py").exists()
    wheel.unlink()
    shop.add("lone")
    assert shop.versions() == {"lone": "1.0", "pathy": "1.0"}


def test_a_source_folder_is_built_and_written_down_by_its_name(shop: Shop) -> None:
    shop.write(
        "tool/pyproject.toml",
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "source-tool"\nversion = "0.1"\n'
        '[project.entry-points."dsh.plugins"]\nsource-tool = "source_tool"\n',
    )
    shop.write("tool/source_tool/__init__.py", PLUGIN.format("source"))
    shop.add("--no-build-isolation", "./tool")
    assert f"- source-tool @ {(shop.work / 'tool').as_uri()}\n" in shop.manifest()
    shop.add("--no-build-isolation", "./tool")
    assert shop.listed()["packages"][0]["plugins"] == ["source-tool"]


def test_a_copied_manifest_is_installed_by_add_alone(shop: Shop) -> None:
    shop.folder().mkdir(parents=True)
    text = "bundles: [base, headless, demo, extra]\nrequires: [extra-rows, lone]\n"
    (shop.folder() / "profile.yml").write_text(text)
    ran = shop.run("--profile", "mine", "hello")
    assert (ran.code, ran.stdout) == (3, "")
    place = shop.folder() / "profile.yml"
    assert ran.errors == [
        f"dsh: {place}:1:33: bundle 'extra' does not exist",
        "hint: dsh plugin add --profile mine installs what is missing: extra-rows, lone; "
        f"or take 'extra' out of {place}:1",
    ]
    assert shop.listed()["missing"] == ["extra-rows", "lone"]
    assert shop.plugin("list").stdout.splitlines()[1:] == [
        "bundle extra  (nothing brings it)",
        "extra-rows  (not installed; dsh plugin add --profile mine)",
        "lone  (not installed; dsh plugin add --profile mine)",
    ]
    shop.add()
    assert shop.manifest() == text
    assert "extra runs" in shop.run("--profile", "mine", "hello").errors


def test_what_somebody_put_into_the_folder_by_hand_stays(shop: Shop) -> None:
    site = shop.folder() / "site"
    (site / "by_hand").mkdir(parents=True)
    (site / "by_hand/__init__.py").write_text("")
    (site / "single.py").write_text("x = 1\n")
    shop.add("lone")
    shop.plugin("remove", "lone")
    assert sorted(path.name for path in site.iterdir()) == ["by_hand", "single.py"]


def test_packages_that_share_a_folder_do_not_take_each_other_away(shop: Shop) -> None:
    for name in ("one", "two"):
        make_wheel(shop.index, f"ns-{name}", "1.0", points=f"[dsh.plugins]\nns-{name} = shared.{name}\n")
    for name in ("one", "two"):
        path = shop.index / f"ns_{name}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path) as wheel:
            files = {entry: wheel.read(entry).decode() for entry in wheel.namelist()}
        files[f"shared/{name}.py"] = PLUGIN.format(name)
        files[f"ns_{name}-1.0.dist-info/RECORD"] += f"shared/{name}.py,,\n"
        with zipfile.ZipFile(path, "w") as wheel:
            for entry, text in files.items():
                wheel.writestr(entry, text)
    shop.add("ns-one")
    shop.add("ns-two")
    shared = shop.folder() / "site/shared"
    assert sorted(path.name for path in shared.glob("*.py")) == ["one.py", "two.py"]
    shop.plugin("remove", "ns-one")
    assert sorted(path.name for path in shared.glob("*.py")) == ["two.py"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["add", "lone"], "--profile NAME is required"),
        (["list"], "--profile NAME is required"),
        (["--profile", "demo"], "Missing command"),
        (["remove", "--profile", "demo"], "Missing argument"),
        (["add", "--profile", "demo", "--target", "/tmp", "x"], "--target does not fit here"),
        (["add", "--profile", "demo", "--manager", "npm", "x"], "no package manager 'npm'"),
        (["remove", "--profile", "demo", "ghost"], "profile 'demo' has no package 'ghost'"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(shop: Shop, words: list[str], told: str) -> None:
    done = shop.run("plugin", *words)
    assert (done.code, done.stdout) == (2, "")
    assert done.errors[0].startswith(f"error: {told}")
    assert not shop.folder("demo").exists()


@pytest.mark.parametrize("command", ["remove", "list"])
def test_only_add_makes_a_profile(shop: Shop, command: str) -> None:
    done = shop.plugin(command, *(["x"] if command == "remove" else []), profile="nobody")
    assert done.code == 3
    assert "profile 'nobody' does not exist" in done.stderr
    assert shop.state() == {}


def test_a_dependency_is_not_removed_from_under_a_package(shop: Shop) -> None:
    shop.add("extra-rows")
    done = shop.plugin("remove", "helper")
    assert (done.code, done.errors) == (
        2,
        [
            "error: helper is in profile 'mine' only because another of its packages needs it",
            "hint: packages that can be removed: extra-rows",
        ],
    )
    shop.add("helper<2")
    assert "requires:\n  - extra-rows\n  - helper<2\n" in shop.manifest()
    assert shop.plugin("remove", "helper").code == 0
    assert shop.versions() == {"extra-rows": "1.0", "helper": "1.5"}
    assert "helper" not in shop.manifest()
    assert shop.plugin("remove", "helper").code == 2


def test_without_a_package_manager_the_exit_code_is_127(shop: Shop, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    start = "import sys; sys.modules['pip'] = None; from dsh.cli.entry import main; sys.exit(main())"
    bare = Workspace(tmp_path / "bare", program=(sys.executable, "-P", "-c", start))
    done = bare.run("plugin", "add", "--profile", "mine", "x", env={"PATH": str(blocked)})
    assert done.code == 127
    assert done.errors[0] == "dsh: neither pip nor uv is there to install packages with"
    assert done.errors[1].startswith("hint: ")
    assert list(bare.home.iterdir()) == []


def test_a_command_that_is_told_to_end_leaves_everything_as_it_was(shop: Shop) -> None:
    shop.add("lone")
    before = shop.state()
    slow = shop.write(
        "slow/backend.py",
        "import os, pathlib, time\npathlib.Path('started').write_text(str(os.getpid()))\ntime.sleep(60)\n",
    )
    shop.write(
        "slow/pyproject.toml",
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    )
    scratch = shop.root / "scratch"
    scratch.mkdir()
    shop.env["TMPDIR"] = str(scratch)
    process = shop.start("plugin", "add", "--profile", "mine", "--no-build-isolation", "./slow")
    started = slow.with_name("started")
    wait_until(lambda: started.exists() and started.read_text(), process)
    process.send_signal(signal.SIGTERM)
    assert finish(process).code == 143
    assert is_gone(int(started.read_text())), "the build that the package manager started goes with it"
    assert list(scratch.iterdir()) == []
    assert shop.state() == before
    assert sorted(path.name for path in shop.folder().iterdir()) == ["profile.yml", "site"]


def test_a_swap_that_was_cut_off_is_undone_by_the_next_command(shop: Shop) -> None:
    shop.add("lone")
    staging = shop.folder() / ".staging"
    (staging / "new").mkdir(parents=True)
    (shop.folder() / "site").rename(staging / "old")
    shop.add("extra-rows")
    assert shop.versions() == {"extra-rows": "1.0", "helper": "1.5", "lone": "1.0"}
    assert not staging.exists()


def test_a_package_manager_that_outlives_its_dsh_puts_nothing_into_the_next_change(shop: Shop) -> None:
    shop.add("lone")
    staging = shop.folder() / ".staging"
    stray = staging / "new-0/stray"
    stray.mkdir(parents=True)
    before = {path.name for path in staging.iterdir()}
    shop.add("extra-rows")
    assert shop.versions() == {"extra-rows": "1.0", "helper": "1.5", "lone": "1.0"}
    assert before == {"new-0"} and not staging.exists()


@pytest.mark.parametrize("after_s", [0.15, 0.3, 0.45])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_at_any_time_leaves_all_or_nothing(
    shop: Shop, number: int, code: int, after_s: float
) -> None:
    shop.add("lone")
    before = shop.state()
    process = shop.start("plugin", "add", "--profile", "mine", "--find-links", "index", "extra-rows")
    time.sleep(after_s)
    process.send_signal(number)
    done = finish(process)
    if done.code:
        assert shop.state() == before
    assert done.code in (0, code, -number)
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in shop.folder().iterdir()) == ["profile.yml", "site"]


def test_two_commands_at_once_both_count(shop: Shop) -> None:
    words = ("plugin", "add", "--profile", "mine", "--find-links", "index")
    both = [shop.start(*words, name) for name in ("lone", "extra-rows")]
    assert [finish(process).code for process in both] == [0, 0]
    assert shop.versions() == {"extra-rows": "1.0", "helper": "1.5", "lone": "1.0"}
    assert {"- lone", "- extra-rows"} <= {line.strip() for line in shop.manifest().splitlines()}


def test_the_list_for_people_names_versions_bundles_and_plugins(shop: Shop) -> None:
    assert shop.plugin("list", profile="demo").stdout == (
        "profile demo: bundles base, headless, demo\nno packages of its own\n"
    )
    assert shop.state() == {}
    shop.add("extra-rows", profile="demo")
    assert shop.plugin("list", profile="demo").stdout == (
        "profile demo: bundles base, headless, demo, extra\n"
        "extra-rows 1.0\n  bundle extra\n  plugin extra\n"
        "helper 1.5  (another package needs it)\n"
    )


def test_a_broken_manifest_is_told_before_anything_runs(shop: Shop) -> None:
    shop.folder().mkdir(parents=True)
    (shop.folder() / "profile.yml").write_text("bundels: []\n")
    for command in ("add", "remove", "list"):
        done = shop.plugin(command, *([] if command == "list" else ["lone"]))
        assert (done.code, "profile.yml:1:1: unknown key 'bundels'" in done.stderr) == (3, True)
        assert not (shop.folder() / "site").exists()


def test_a_linked_manifest_stays_a_link(shop: Shop) -> None:
    real = shop.write("dotfiles/profile.yml", "bundles: [base]\n")
    shop.folder().mkdir(parents=True)
    (shop.folder() / "profile.yml").symlink_to(real)
    shop.add("lone")
    assert (shop.folder() / "profile.yml").is_symlink()
    assert real.read_text() == "bundles: [base]\nrequires:\n  - lone\n"


def test_uv_does_the_same(shop: Shop) -> None:
    beside_python = Path(sys.executable).parent
    shop.env["PATH"] = f"{beside_python}{os.pathsep}{os.environ['PATH']}"
    shop.env["UV_CACHE_DIR"] = str(shop.root / "cache")
    shop.env["UV_NO_INDEX"] = "1"
    shop.add("--manager", "uv", "extra-rows")
    assert shop.versions() == {"extra-rows": "1.0", "helper": "1.5"}
    assert "requires:\n  - extra-rows\n" in shop.manifest()
    shop.add("--manager", "uv", "lone")
    assert shop.plugin("remove", "extra-rows", "--manager", "uv").code == 0
    assert shop.versions() == {"lone": "1.0"}
