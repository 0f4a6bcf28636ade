"""Expressions that attack, through the program under a limit of memory: refused with their place, soon."""

from pathlib import Path

import pytest

from dsh.testing.workspace import PROGRAM, Workspace

LIMIT_KIB = 1024 * 1024
REFUSED_WHEN_READ = {
    "a dunder walk": "cwd.__class__.__mro__[1].__subclasses__()",
    "an import": "__import__('os').system('touch hacked')",
    "a method": "env.get('PATH')",
    "open": "open('/etc/passwd').read()",
    "a comprehension": "[x for x in [1] * 100000 for y in [1] * 100000]",
    "a lambda": "(lambda: 1)()",
    "an f-string": "f'{1:>9999999999}'",
    "a walrus": "(cwd := 1)",
    "a statement": "1; 2",
    "a shift": "1 << 9999999999",
    "the environment": "{**env}",
    "the services": "svc",
    "a service by text": "svc['headlessStartup']",
    "depth": "(" * 250 + "1" + ")" * 250,
    "length": "1 + " * 600 + "1",
}
REFUSED_WHEN_RUN = {
    "a tower of powers": "9 ** 9 ** 9",
    "a long text": "'a' * 10 ** 18",
    "a padded text": "'%9999999999d' % 1",
    "a list of lists": "[[[[0] * 1000] * 1000] * 1000] * 1000",
    "comparing them": "[[0] * 100000] * 100000 == [[0] * 100000] * 100000",
    "doubling": "[" * 12 + "'x' * 99999" + "] * 99999" * 12,
    "deep json": "json('[' * 100000)",
    "a long number": "json('1' * 100000)",
    "the environment as a value": "[env]",
}


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    shell = ("/bin/sh", "-c", f'ulimit -v {LIMIT_KIB}; exec "$@"', "sh")
    return Workspace(tmp_path, program=(*shell, *PROGRAM))


def written(space: Workspace, text: str, place: str) -> list[str]:
    quoted = "'" + text.replace("'", "''") + "'"
    fields = f"config: {{k: !expr {quoted}}}" if place == "config" else f"disabled: !expr {quoted}"
    space.write("bad.py", "def apply(ctx, config): print('MOUNTED', config)\n")
    space.write("p.yml", f"- insert:\n    - id: bad\n      name: ./bad.py\n      {fields}\n")
    return ["--profile", "demo", "--patch", "p.yml"]


@pytest.mark.parametrize("place", ["config", "disabled"])
@pytest.mark.parametrize("text", REFUSED_WHEN_READ.values(), ids=list(REFUSED_WHEN_READ))
def test_what_is_not_of_the_language_is_refused_when_it_is_read(
    space: Workspace, text: str, place: str
) -> None:
    words = written(space, text, place)
    run, dumped = space.run(*words, "hello"), space.run(*words, "--dump-config")
    assert (run.code, run.stdout, space.logs()) == (3, "", [])
    assert run.errors[0].startswith(f"dsh: {space.work}/p.yml:4:")
    assert "Traceback" not in run.stderr
    assert (dumped.code, dumped.errors) == (3, run.errors)
    assert not (space.work / "hacked").exists()


@pytest.mark.parametrize("place", ["config", "disabled"])
@pytest.mark.parametrize("text", REFUSED_WHEN_RUN.values(), ids=list(REFUSED_WHEN_RUN))
def test_what_explodes_fails_its_row_and_is_shown_as_written_in_a_dump(
    space: Workspace, text: str, place: str
) -> None:
    words = written(space, text, place)
    run, dumped = space.run(*words, "hello"), space.run(*words, "--dump-config")
    assert (run.code, run.stdout, space.logs()) == (3, "", [])
    assert run.errors[1].startswith(f"bad (./bad.py): {space.work}/p.yml:4:")
    assert "MOUNTED" not in run.stderr
    assert "Traceback" not in run.stderr
    assert (dumped.code, dumped.stderr) == (0, "")
    assert text in dumped.stdout.replace('\\"', '"')
