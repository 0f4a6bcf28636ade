"""The shipped compositions through the program: they start, and a row that is missed is named."""

import pytest

from dsh.testing.workspace import Workspace


@pytest.fixture
def space(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("space"))


def test_the_demo_starts_with_an_empty_home_and_no_key(space: Workspace) -> None:
    done = space.run("--profile", "demo", "Run: echo hello")
    assert done.code == 0
    assert "hello" in done.stdout


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("session", "agent-loop (agent-loop): pending (waiting for service(s): sessions)"),
        (
            "agent",
            "headless-runner (headless-runner): pending (waiting for service(s): agents, agentFactory)",
        ),
        ("subprocess", "sandbox (sandbox): pending (waiting for service(s): subprocess)"),
        ("headless-startup", "approval (approval): pending (waiting for service(s): headlessStartup)"),
    ],
)
def test_removing_a_provider_names_every_row_that_waits_for_it(
    space: Workspace, row: str, named: str
) -> None:
    space.write("p.yml", f"- {{id: {row}, remove: true}}\n")
    done = space.run("--profile", "demo", "--patch", "p.yml", "x")
    assert (done.code, done.stdout) == (3, "")
    assert "did not activate:" in done.errors[0]
    assert named in done.errors
    assert space.logs() == []


def test_misses_are_told_alike_at_boot_and_in_dumps(space: Workspace) -> None:
    patch = space.write(
        "p.yml",
        "- insert: [{id: added, name: llm}]\n"
        "- {id: added, disabled: true}\n"
        "- {id: ghost, disabled: true}\n"
        "- {id: added, name: wrong-name, config: {z: 1}}\n"
        "- {insert: [{id: k, name: p}], id: added}\n"
        "- {config: {q: 1}}\n",
    )
    dumped = space.run("--profile", "demo", "--patch", "p.yml", "--dump-config")
    booted = space.run("--profile", "demo", "--patch", "p.yml", "hello")
    assert (dumped.code, booted.code) == (0, 0)
    misses = [line for line in dumped.errors if line.startswith(f"dsh: [{patch}] patch")]
    assert len(misses) == 4
    assert [line for line in booted.errors if line in misses] == misses
    assert dumped.stdout.endswith(f"# == {patch}\n- id: added\n  name: llm\n  disabled: true\n")
