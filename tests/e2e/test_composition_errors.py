"""What is wrong with profiles, patches and rows: exit 3, the place, no traceback, nothing done."""

from collections.abc import Callable

import pytest

from dsh.testing.workspace import Finished, Workspace
from tests.e2e.model import Model
from tests.e2e.reply import text

Answering = Callable[..., Model]


def refused(space: Workspace, *words: str, **env: str | None) -> Finished:
    done = space.run(*words, env=env)
    assert (done.code, done.stdout) == (3, ""), done
    assert done.errors[0].startswith("dsh: ")
    assert "Traceback" not in done.stderr
    assert space.logs() == []
    return done


def test_unknown_profile_is_answered_with_the_known_ones(space: Workspace) -> None:
    done = refused(space, "--profile", "nope", "x")
    assert "'nope'" in done.stderr and "demo" in done.stderr and "headless" in done.stderr


@pytest.mark.parametrize("name", ["../x", ".", "a/b", "node_modules"])
def test_impossible_profile_name(space: Workspace, name: str) -> None:
    assert "profile name" in refused(space, "--profile", name, "x").stderr


@pytest.mark.parametrize(
    ("patch", "place"),
    [
        ("# notes\n[]\n- id: x\n  disabled: true\n", "p.yml:3:"),
        ("- id: llm\n  disabled: true\n---\n- id: session\n  disabled: true\n", "p.yml:3:"),
        ("id: llm\ndisabled: true\n", "p.yml:1:"),
        ("- llm\n", "p.yml:1:"),
        ("- id: llm\n  config: {a: 1, a: 2}\n", "p.yml:2:"),
        ("- id: llm\n\tdisabled: true\n", "p.yml:2:"),
        ("- id: llm\n  config: !!js process.env\n", "p.yml:2:"),
    ],
)
def test_broken_patch_is_refused_with_its_place_in_every_layer(
    space: Workspace, patch: str, place: str
) -> None:
    space.write("p.yml", patch)
    assert place in refused(space, "--profile", "headless", "--patch", "p.yml", "x").stderr
    (space.home / "dsh.patch.yml").write_text(patch)
    assert place.replace("p.yml", "dsh.patch.yml") in refused(space, "run", "x").stderr
    assert space.run("--dump-default-config").code == 0


def test_rows_below_an_empty_list_are_told_to_delete_it(space: Workspace) -> None:
    space.write("p.yml", "# notes\n[]\n- id: x\n  disabled: true\n")
    done = refused(space, "--profile", "headless", "--patch", "p.yml", "x")
    assert "[]" in done.errors[-1] and "delete" in done.errors[-1]


@pytest.mark.parametrize("patch", ["", "# only a comment\n"])
def test_empty_patch_is_no_layer(space: Workspace, answering: Answering, patch: str) -> None:
    answering(text("ok"))
    space.write("p.yml", patch)
    done = space.run("--profile", "headless", "--patch", "p.yml", "x")
    assert (done.code, done.stdout, done.stderr) == (0, "ok\n", "")


def test_missing_patch_file_is_named(space: Workspace) -> None:
    assert "nope.yml" in refused(space, "--profile", "headless", "--patch", "nope.yml", "x").stderr


def test_unmatched_patch_warns_at_boot_and_in_dumps(space: Workspace, answering: Answering) -> None:
    answering(text("ok"))
    patch = space.write("p.yml", "- id: ghost\n  disabled: true\n")
    booted = space.run("--profile", "headless", "--patch", "p.yml", "x")
    dumped = space.run("--dump-config", "--patch", "p.yml")
    assert (booted.code, booted.stdout, dumped.code) == (0, "ok\n", 0)
    assert booted.errors == dumped.errors
    [line] = booted.errors
    assert line.startswith(f'dsh: [{patch}] patch: entry "ghost" not found')


def test_row_that_waits_for_ever_is_named_with_what_it_waits_for(
    space: Workspace, answering: Answering
) -> None:
    model = answering(text("never"))
    space.write("waiting.py", "inject = ['lighthouse']\ndef apply(ctx): ...\n")
    space.write("p.yml", "- insert:\n    - {id: waiting, name: ./waiting.py}\n")
    done = refused(space, "--profile", "headless", "--patch", "p.yml", "x")
    assert "waiting" in done.stderr and "pending (waiting for service(s): lighthouse)" in done.stderr
    assert model.bodies() == []


def test_all_failing_rows_are_named(space: Workspace) -> None:
    space.write("one.py", "def apply(ctx): raise ValueError('first reason')\n")
    space.write("two.py", "async def apply(ctx): raise OSError('second reason')\n")
    space.write("p.yml", "- insert:\n    - {id: one, name: ./one.py}\n    - {id: two, name: ./two.py}\n")
    done = refused(space, "--profile", "headless", "--patch", "p.yml", "x")
    for words in ("one", "first reason", "two", "second reason"):
        assert words in done.stderr


def test_traceback_is_there_when_asked_for(space: Workspace) -> None:
    space.write("one.py", "def apply(ctx): raise ValueError('first reason')\n")
    space.write("p.yml", "- insert:\n    - {id: one, name: ./one.py}\n")
    done = space.run("--profile", "headless", "--patch", "p.yml", "x", env={"DSH_DEBUG": "1"})
    assert done.code == 3
    assert "Traceback" in done.stderr and "one.py" in done.stderr


@pytest.mark.parametrize(
    "source",
    [
        "def apply(ctx: (",
        "import nowhere_to_be_found\n",
        "x = 1\n",
        "import sys\nsys.exit(0)\n",
        "class Own(BaseException): ...\nraise Own\n",
        "raise KeyboardInterrupt\n",
        "import asyncio\nraise asyncio.CancelledError\n",
        "inject = 5\ndef apply(ctx): ...\n",
    ],
)
def test_plugin_that_cannot_be_imported(space: Workspace, source: str) -> None:
    space.write("bad.py", source)
    space.write("p.yml", "- insert:\n    - {id: bad, name: ./bad.py}\n")
    assert "bad" in refused(space, "--profile", "headless", "--patch", "p.yml", "x").stderr


def test_config_that_does_not_fit_is_named_with_its_key(space: Workspace) -> None:
    space.write("p.yml", "- id: bash-sandbox\n  config: {timeoutMs: soon}\n")
    assert "timeoutMs" in refused(space, "--profile", "headless", "--patch", "p.yml", "x").stderr


def test_profile_without_an_app_is_refused_instead_of_hanging(space: Workspace) -> None:
    folder = space.home / "profiles" / "bare"
    folder.mkdir(parents=True)
    (folder / "profile.yml").write_text("bundles: []\n")
    assert "no app" in refused(space, "--profile", "bare", "x").stderr


@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
def test_confinement_that_nothing_here_can_keep_is_refused_at_the_start(space: Workspace, mode: str) -> None:
    """No bubblewrap on PATH, and walls that are there in part only are not wanted."""
    space.write("p.yml", "- {id: sandbox, config: {requireFull: true}}\n")
    done = refused(space, "run", "--patch", "p.yml", "x", DSH_PERMISSION_MODE=mode, PATH=str(space.root))
    first, cause, rest = done.errors
    assert first == "dsh: 1 entry did not activate:"
    assert cause.startswith(f"sandbox-policy (sandbox-policy): no sandbox here can keep mode '{mode}'")
    assert "bwrap: the program is not installed" in cause and "landlock: " in cause
    assert "install bubblewrap" in cause
    assert "DSH_PERMISSION_MODE=danger-full-access" in cause
    assert rest.startswith("7 more wait for services that did not come: permission, bash-sandbox, ")


def test_a_mode_that_does_not_exist_is_answered_with_those_that_do(space: Workspace) -> None:
    cause = refused(space, "run", "x", DSH_PERMISSION_MODE="hush").errors[1]
    assert "bundles/headless.yml:" in cause
    assert "expected read-only | workspace-write | danger-full-access (at mode)" in cause
    assert "comes from !expr" in cause and "'DSH_PERMISSION_MODE'" in cause
    assert "hush" not in cause


@pytest.mark.parametrize("mode", ["code", "both"])
def test_code_mode_is_refused(space: Workspace, mode: str) -> None:
    assert mode in refused(space, "run", "x", DSH_TOOLS_MODE=mode).stderr


@pytest.mark.parametrize(
    "config", ["{path: './a\\0b.yml'}", "{path: ./nope.yml}", "{path: ./work}", "{path: ./self.yml}", "{}"]
)
def test_an_include_of_nothing_is_named_with_its_place(space: Workspace, config: str) -> None:
    space.write("self.yml", "- {id: c, name: 'cordis:include', config: {path: ./self.yml}}\n")
    path = space.write("p.yml", f"- insert:\n    - {{id: i, name: 'cordis:include', config: {config}}}\n")
    done = refused(space, "--profile", "headless", "--patch", "p.yml", "x")
    assert f"{path}:2:" in done.stderr or "self.yml:1:" in done.stderr


@pytest.mark.parametrize("kind", ["file", "below a file"])
def test_a_home_that_is_no_directory_is_named_once(space: Workspace, kind: str) -> None:
    home = space.write("home", "") if kind == "file" else space.write("home", "") / "x"
    for words in (["run", "x"], ["--dump-config"]):
        done = refused(space, *words, DSH_HOME=str(home))
        assert len(done.errors) == 2 and str(home) in done.errors[0] and "DSH_HOME" in done.errors[1]


def test_keys_that_others_can_read_are_refused_with_the_command_that_helps(space: Workspace) -> None:
    path = space.home / ".credentials.yaml"
    path.write_text("version: 1\nrefs: {DEEPSEEK_API_KEY: sk-hush}\n")
    path.chmod(0o644)
    done = refused(space, "run", "x")
    assert done.errors[1].endswith(f"{path}: mode 0644 lets others at the keys (chmod 600 {path})")
    assert "hush" not in done.stderr


def test_env_file_may_not_set_what_only_the_caller_may(space: Workspace) -> None:
    space.write(".env", "DEEPSEEK_BASE_URL=http://elsewhere\n")
    assert "DEEPSEEK_BASE_URL" in refused(space, "run", "x").stderr


def test_a_bundle_that_is_gone_is_named_where_the_profile_names_it(space: Workspace) -> None:
    folder = space.home / "profiles" / "mine"
    folder.mkdir(parents=True)
    (folder / "profile.yml").write_text("# mine\nbundles:\n  - base\n  - headles\n")
    for words in (["x"], ["--dump-config"], ["--dump-default-config"]):
        done = refused(space, "--profile", "mine", *words)
        assert done.errors[0] == f"dsh: {folder}/profile.yml:4:5: bundle 'headles' does not exist"
        assert "'headless'" in done.errors[1]


def test_files_that_include_each_other_in_a_circle_are_refused_at_boot_and_in_dumps(space: Workspace) -> None:
    for name, following in (("a", "b"), ("b", "c"), ("c", "a")):
        space.write(
            f"{name}.yml", f"- {{id: n, name: 'cordis:include', config: {{path: ./{following}.yml}}}}\n"
        )
    space.write("p.yml", "- insert: [{id: i, name: 'cordis:include', config: {path: ./a.yml}}]\n")
    told = f"{space.work}/c.yml:1:50: {space.work}/a.yml includes itself"
    booted = refused(space, "--profile", "headless", "--patch", "p.yml", "x")
    assert booted.errors[1] == f"i:n:n:n (cordis:include): {told}"
    assert refused(space, "--dump-config", "--patch", "p.yml").errors == [f"dsh: {told}"]


def test_misses_inside_an_included_file_are_told_at_boot_and_in_dumps(
    space: Workspace, answering: Answering
) -> None:
    answering(text("ok"))
    space.write("quiet.py", "def apply(ctx): ...\n")
    space.write("in.yml", "- {id: q, name: ./quiet.py}\n")
    space.write(
        "p.yml",
        "- insert:\n    - id: i\n      name: cordis:include\n"
        "      config: {path: ./in.yml, patches: [{id: ghost, disabled: true}]}\n",
    )
    booted = space.run("--profile", "headless", "--patch", "p.yml", "x")
    dumped = space.run("--dump-config", "--patch", "p.yml")
    assert (booted.code, booted.stdout, dumped.code) == (0, "ok\n", 0)
    at = f"{space.work}/p.yml:4:42"
    assert booted.errors == dumped.errors == [f'dsh: [i] patch: entry "ghost" not found ({at})']


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- insert: [{id: a, name: greet.py}]", "a file beside this one is written ./greet.py"),
        ("- insert: [{id: a, name: 问候.py}]", "a file beside this one is written ./问候.py"),
        ("- id：tools", "is a full-width colon"),
        ("- {id: tools, maxTokens: 1}", "options of the plugin stand under merge or config"),
        ("- {id: mine, name: ./mine.py}", "a new row stands under insert"),
    ],
)
def test_the_slips_of_a_first_patch_are_told_with_the_way_out(space: Workspace, text: str, says: str) -> None:
    space.write("p.yml", f"{text}\n")
    done = space.run("--profile", "demo", "--patch", "p.yml", "hello")
    assert says in done.stderr
