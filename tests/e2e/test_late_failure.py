"""What fails after the start is told in one line that names the rows around it, and nothing else ends."""

import pytest

from dsh.testing.workspace import Workspace

APP = """
import asyncio
inject = ["appExit", "timer"]
def apply(ctx):
    ctx.timeout(lambda: ctx.appExit(0), 500)
"""
LATE = """
import asyncio
inject = ["timer"]
loads = []
def inner(ctx):
    raise ValueError("out of luck")
def apply(ctx, config):
    loads.append(1)
    if len(loads) == 2:
        inner(ctx)
    ctx.timeout(lambda: %s, 100)
"""
KINDS = {
    "what it mounts": ("(ctx.plugin(inner, name='inner'),)", "inner in late (./late.py)"),
    "what waited for a service": (
        "(ctx.inject(['fact'], inner), ctx.root.provide('fact', 1))",
        "inner in late (./late.py)",
    ),
    "itself": ("asyncio.ensure_future(ctx.fiber.restart())", "late (./late.py)"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_after_the_start_is_told_once_with_the_rows_around_it(space: Workspace, kind: str) -> None:
    code, chain = KINDS[kind]
    folder = space.home / "profiles/stay"
    folder.mkdir(parents=True)
    (folder / "profile.yml").write_text("bundles: []\n")
    (folder / "app.py").write_text(APP)
    (folder / "late.py").write_text(LATE % code)
    (folder / "dsh.patch.yml").write_text(
        "- insert:\n    - {id: timer, name: timer}\n    - {id: app, name: ./app.py}\n"
        "    - {id: late, name: ./late.py}\n"
    )
    done = space.run("--profile", "stay")

    assert done.code == 0
    [line] = done.errors
    assert line.startswith(f"dsh: {chain} failed: ValueError: out of luck ("), line
