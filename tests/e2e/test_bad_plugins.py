"""Plugins that misbehave while the tree starts or ends: each is named, none takes the program along."""

import os

import pytest

from dsh.testing.workspace import Finished, Workspace

ROW = "- insert:\n    - {id: bad, name: ./bad.py%s}\n"
ANSWER = "offline demo model: hello\n"
STAND_IN = "dsh: offline/demo answers by fixed rules; it is not a model"


def run(space: Workspace, code: str, fields: str = "", **env: str) -> Finished:
    space.write("bad.py", code)
    space.write("p.yml", ROW % fields)
    mode = {"DSH_PERMISSION_MODE": "danger-full-access"}  # chosen, so that nothing is said of it
    done = space.run("--profile", "demo", "--patch", "p.yml", "hello", env={**mode, **env})
    assert "Traceback" not in done.stderr
    return done


def refused(space: Workspace, code: str, fields: str = "", **env: str) -> list[str]:
    """The lines that say why; nothing was done."""
    done = run(space, code, fields, **env)
    assert (done.code, done.stdout, space.logs()) == (3, "", []), done
    return done.errors


def answered(space: Workspace, code: str, fields: str = "") -> list[str]:
    done = run(space, code, fields)
    assert (done.code, done.stdout) == (0, ANSWER), done
    return done.errors


SILENT = "class Own(Exception):\n    def __str__(self): raise ValueError\n"
RAISED = {
    "raise ValueError('why')": "ValueError: why",
    "raise ValueError('a\\n- b\\x1b[31m')": "ValueError: a - b\\x1b[31m",
    "raise ExceptionGroup('two', [ValueError('a'), OSError('b')])": "ValueError: a; OSError: b",
    "import sys; sys.exit(0)": "SystemExit: 0",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "import asyncio; raise asyncio.CancelledError": "CancelledError",
    "raise GeneratorExit": "GeneratorExit",
    "raise StopIteration": "StopIteration",
    "raise MemoryError": "MemoryError",
    "raise Own": "its text cannot be had (ValueError)",
    "raise type('Rare', (BaseException,), {})('base')": "Rare: base",
    "raise ValueError('x' * 10_000_000)": "ValueError: xxx",
    "f = lambda: f(); f()": "RecursionError",
}


@pytest.mark.parametrize("statement", RAISED)
@pytest.mark.parametrize("where", ["{}", "def apply(ctx): {}", "async def apply(ctx): {}"])
def test_whatever_is_raised_the_row_is_named_with_the_place(
    space: Workspace, where: str, statement: str
) -> None:
    code = SILENT + (f"{statement}\n" if where == "{}" else where.format(f"\n    {statement}") + "\n")
    summary, line = refused(space, code)
    assert summary in ("dsh: 1 plugin failed to load:", "dsh: 1 entry did not activate:")
    assert line.startswith("bad (./bad.py): ")
    assert RAISED[statement] in line
    assert len(line) < 2_500
    assert f"{space.work}/bad.py:" in line or "sub-exceptions" in line


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("", "exports no plugin"),
        ("apply = 5", "invalid plugin"),
        ("def apply(): ...", "TypeError: apply() takes 0 positional arguments"),
        ("inject = 5\ndef apply(ctx): ...", "inject must be a service or a list of services, not 5"),
        ("Config = 5\ndef apply(ctx, config): ...", "a msgspec.Struct, not a value of type int"),
        ("class Config: a = 1\ndef apply(ctx, config): ...", "Config must be a msgspec.Struct, not Config"),
        (
            "import msgspec\nclass Config(msgspec.Struct):\n    a: 'Nope' = 1\ndef apply(ctx, config): ...",
            "the plugin's Config is no schema: name 'Nope' is not defined",
        ),
        ("def apply(ctx): ...\ndefault = apply", "exports both apply and default"),
        ("plugin = default = lambda ctx: None", "exports both plugin and default"),
        (
            "class Sly:\n    @property\n    def Config(self): raise ValueError('sly')\n"
            "    def apply(self, ctx): ...\nplugin = Sly()",
            "ValueError: sly",
        ),
        ("inject = ['']\ndef apply(ctx): ...", "inject holds '', which is neither"),
        ("provide = [5]\ndef apply(ctx): ...", "provide holds 5, which is neither"),
        ("def apply(ctx): return 5", "Invalid effect: 5"),
        ("def __getattr__(name): raise ValueError(name)\ndef apply(ctx): ...", "ValueError"),
        ("provide = []\ndef apply(ctx): ctx.provide('mine', 1)", 'provides "mine" but declares: nothing'),
        ("def apply(ctx): ctx.provide('llm', 1)", 'service "llm" has been registered'),
        ("inject = ['me']\ndef apply(ctx): ctx.provide('me', 1)", "pending (waiting for service(s): me)"),
        ("def apply(ctx): ctx.never_heard_of", "never_heard_of"),
        (
            "async def apply(ctx):\n    import asyncio\n    await asyncio.sleep(1000)",
            "still loading after 0.3 s",
        ),
    ],
)
def test_what_is_no_plugin_or_never_ready_is_named(space: Workspace, code: str, says: str) -> None:
    _, line, *_ = refused(space, code, DSH_START_TIMEOUT="0.3")
    assert line.startswith("bad (./bad.py): ")
    assert says in line


def test_nothing_of_a_start_that_failed_stays_behind(space: Workspace) -> None:
    code = (
        "import pathlib\n"
        "def apply(ctx):\n"
        "    here = pathlib.Path('here'); here.touch()\n"
        "    ctx.effect(lambda: here.unlink)\n"
        "    ctx.plugin(child)\n"
        "def child(ctx):\n"
        "    there = pathlib.Path('there'); there.touch()\n"
        "    ctx.effect(lambda: there.unlink)\n"
    )
    space.write("bad.py", code)
    space.write("worse.py", "async def apply(ctx): raise ValueError")
    space.write("p.yml", ROW % "" + "    - {id: worse, name: ./worse.py}\n")
    done = space.run("--profile", "demo", "--patch", "p.yml", "hello")
    assert (done.code, done.stdout, space.logs()) == (3, "", [])
    assert {path.name for path in space.work.iterdir()} - {"__pycache__"} == {"bad.py", "worse.py", "p.yml"}


PRINTS = {
    "while imported": "print('noise')\ndef apply(ctx): ...",
    "in apply": "def apply(ctx): print('noise', flush=True)",
    "to the descriptor": "import os\ndef apply(ctx): os.write(1, b'noise\\n')",
    "to the old object": "import sys\ndef apply(ctx): print('noise', file=sys.__stdout__, flush=True)",
    "by a child": "import subprocess\ndef apply(ctx): subprocess.run(['echo', 'noise'])",
    "from a thread": "import threading\ndef apply(ctx):\n"
    "    thread = threading.Thread(target=print, args=('noise',))\n    thread.start()\n    thread.join()",
    "at the end": "def apply(ctx): ctx.effect(lambda: lambda: print('noise'))",
}


@pytest.mark.parametrize("code", PRINTS.values(), ids=list(PRINTS))
def test_what_a_plugin_prints_is_no_part_of_the_answer(space: Workspace, code: str) -> None:
    errors = answered(space, code)
    assert "noise" in errors


@pytest.mark.parametrize("done_in", ["import", "apply"])
@pytest.mark.parametrize(
    "statement",
    [
        "os.close(1)",
        "sys.stdout.close()",
        "sys.stdout = sys.stderr = None",
        "os.dup2(os.open('/dev/null', os.O_RDONLY), 1)",
        "os.chdir('/')",
        "threading.Thread(target=time.sleep, args=(1000,)).start()",
        "threading.Thread(target=chatter, daemon=True).start()",
    ],
)
def test_what_a_plugin_does_to_the_process_spoils_no_answer(
    space: Workspace, statement: str, done_in: str
) -> None:
    code = (
        "import os, sys, threading, time\n"
        "def chatter():\n    while True:\n        os.write(1, b'noise\\n'); time.sleep(0.001)\n"
    )
    code += (
        f"def apply(ctx):\n    {statement}\n" if done_in == "apply" else f"{statement}\ndef apply(ctx): ...\n"
    )
    answered(space, code)
    [log] = space.logs()
    assert os.path.getsize(log) > 0  # noqa: PTH202


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("raise ValueError('at the end')", "ValueError: at the end"),
        ("raise Own", "Own: its text cannot be had (ValueError)"),
        ("import sys; sys.exit(5)", "SystemExit: 5"),
    ],
)
def test_a_disposer_that_raises_is_told_and_keeps_nobody(space: Workspace, statement: str, says: str) -> None:
    code = f"{SILENT}def undo():\n    {statement}\ndef apply(ctx): ctx.effect(lambda: undo)\n"
    lines = [line for line in answered(space, code) if line != STAND_IN]
    assert len(lines) == 1
    assert lines[0].startswith("dsh: disposing ") and " of bad (./bad.py) failed: " in lines[0]
    assert says in lines[0]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def apply(ctx): ctx.spawn(work(), 'work')", "task work of bad (./bad.py) failed: KeyError: 'k'"),
        ("def apply(ctx): ctx.effect(work, 'link')", "effect link of bad (./bad.py) failed: KeyError: 'k'"),
    ],
)
def test_work_that_fails_in_the_background_names_its_row(space: Workspace, code: str, says: str) -> None:
    space.write("bad.py", f"async def work(): {{}}['k']\n{code}\n")
    space.write("p.yml", ROW % "")
    done = space.run("--profile", "demo", "--patch", "p.yml", "hello")
    assert f"dsh: {says}" in done.errors


@pytest.mark.parametrize(
    "code",
    [
        "raise ValueError('why')",
        "def apply(ctx): raise ValueError('why')",
        "inject = ['why']\ndef apply(ctx): ...",
    ],
)
def test_an_optional_row_that_does_not_come_up_is_a_warning(space: Workspace, code: str) -> None:
    line = answered(space, code, ", optional: true")[0]
    assert line.startswith("dsh: optional row bad (./bad.py): ")
    assert "why" in line


def two(space: Workspace, first: str, second: str) -> list[str]:
    space.write("a.py", first)
    space.write("b.py", second)
    space.write("p.yml", "- insert: [{id: a, name: ./a.py}]\n- insert: [{id: b, name: ./b.py}]\n")
    done = space.run("--profile", "demo", "--patch", "p.yml", "hello")
    assert (done.code, done.stdout, space.logs()) == (3, "", [])
    return done.errors


def test_rows_that_wait_for_each_other_are_both_named(space: Workspace) -> None:
    lines = two(
        space,
        "inject = ['b']\ndef apply(ctx): ctx.provide('a', 1)",
        "inject = ['a']\ndef apply(ctx): ctx.provide('b', 1)",
    )
    assert lines == [
        "dsh: 2 entries did not activate:",
        "a (./a.py): pending (waiting for service(s): b)",
        "b (./b.py): pending (waiting for service(s): a)",
        "hint: dsh explain a, with the same --profile and --patch, says why",
    ]


def test_rows_that_declare_what_the_other_waits_for_are_said_to_wait_in_a_circle(space: Workspace) -> None:
    lines = two(
        space,
        "inject = ['b', 'llm']\nprovide = ['a']\ndef apply(ctx): ctx.provide('a', 1)",
        "inject = ['a', 'nobody']\nprovide = ['b']\ndef apply(ctx): ctx.provide('b', 1)",
    )
    assert lines[1:] == [
        "a (./a.py): pending (waiting for service(s): b); the rows wait in a circle: a -> b -> a",
        "b (./b.py): pending (waiting for service(s): a, nobody); the rows wait in a circle: b -> a -> b",
        "hint: dsh explain a, with the same --profile and --patch, says why",
    ]


def test_two_rows_that_provide_the_same_are_named_with_their_files(space: Workspace) -> None:
    code = "def apply(ctx): ctx.provide('mine', 1)"
    [_, line] = two(space, code, code)
    assert line.startswith('b (./b.py): service "mine" has been registered at ./a.py')
    rows = f"rows a ({space.work}/p.yml:1:12) and b ({space.work}/p.yml:2:12) provide the same: disable one"
    assert line.endswith(rows)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def apply(ctx): ctx.provide('sessions', 1)", "/bundles/base.yml:"),
        ("def apply(ctx): ctx.provide('cmdlineArgs', 1)", "the program itself provides it"),
        ("def apply(ctx): [ctx.provide('twice', 1) for _ in '12']", "the row provides it twice"),
        ("provide = ['mine']\ndef apply(ctx): ctx.provide('other', 1)", 'add "other" to its `provide` list'),
    ],
)
def test_what_a_row_may_not_provide(space: Workspace, code: str, says: str) -> None:
    assert says in refused(space, code)[1]


@pytest.mark.parametrize("config", ["{a: 1}", "5", "[x]"])
def test_a_config_for_a_plugin_that_takes_none_is_told(space: Workspace, config: str) -> None:
    told = answered(space, "def apply(ctx): ...", f", config: {config}")[0]
    assert told == f"dsh: bad (./bad.py): {space.work}/p.yml:2:41: the plugin takes no config: left out"
    assert len(answered(space, "def apply(ctx): ...", ", config: {}")) == 1
