"""Row `token-meter`, mounted: the meter follows a loop; its projections are there with their own row."""

import json
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities.projections import PROJECTIONS
from dsh.capabilities.token_meter import TOKEN_METER, Measurement
from dsh.plugins import session_projection, token_meter
from dsh.plugins.token_meter.fold import MeterFold
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.testing.workspace import Workspace
from tests.agent.kit import loop, settled, text
from tests.aio import aio
from tests.e2e.model import serve
from tests.e2e.reply import bash
from tests.e2e.reply import text as said

KEYS = {"tokenUsage", "contextPressure", "contextBreakdown"}


def measured(log: Session) -> Measurement:
    fold = MeterFold()
    fold.take(log.entries())
    return fold.measurement()


@aio
async def test_a_loop_is_measured_between_its_turns() -> None:
    async with loop(text("hello " * 30, usage=True)) as run:
        await settled(run.ctx.plugin(token_meter, {}))
        meter = run.ctx.use(TOKEN_METER)
        agent = await run.agent()
        seen = []
        for number in range(3):
            agent.followup(user_message(f"question {number} " * 20))
            await agent.when_idle()
            seen.append(meter.measure(agent.session))

        assert [one.log_length for one in seen] == sorted({one.log_length for one in seen})
        assert seen[-1] == measured(agent.session)
        assert [node.seq for node in seen[-1].nodes] == list(agent.session.surface_nodes)
        assert seen[0].surface_tokens < seen[1].surface_tokens < seen[2].surface_tokens


@aio
@pytest.mark.parametrize("comes_first", [token_meter, session_projection])
async def test_the_projections_are_there_as_long_as_both_rows_are(comes_first: Any) -> None:
    async with loop(text("hi", usage=True)) as run:
        rows = [token_meter, session_projection]
        fibers = {
            row: run.ctx.plugin(row, {}) for row in sorted(rows, key=lambda row: row is not comes_first)
        }
        for fiber in fibers.values():
            await settled(fiber)
        agent = await run.agent()
        agent.followup(user_message("hello"))
        await agent.when_idle()

        values = run.ctx.use(PROJECTIONS).snapshot(agent.session).values
        assert values.keys() >= KEYS
        assert values["tokenUsage"]["uncachedInputTokens"] == 10
        assert values["contextPressure"]["contextWindow"] == 1000

        await fibers[token_meter].dispose()
        assert not run.ctx.use(PROJECTIONS).snapshot(agent.session).values.keys() & KEYS


METER = """
import json
inject = ["tokenMeter", "sessions", "agents"]
provide = ()

def apply(ctx):
    ctx.on("session/event", lambda appended: note(ctx, appended))

def note(ctx, appended):
    if appended.event.type != "turn/end":
        return
    seen = ctx.tokenMeter.measure(appended.session)
    with open("seen.json", "w") as file:
        json.dump([seen.baseline, seen.total_tokens, len(seen.nodes)], file)
"""


def test_a_plugin_measures_a_real_job_and_gets_what_the_provider_counted(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    space.write("meter.py", METER)
    space.write("meter.yml", "- insert: [{id: my-meter, name: ./meter.py}]")
    usage = {"prompt_tokens": 21_000, "completion_tokens": 12, "total_tokens": 21_012}
    with serve([bash("echo one"), said("ok") | {"usage": usage}]) as model:
        space.use_model(model.base_url)
        done = space.run("run", "--patch", "meter.yml", "look")

    assert (done.code, done.stdout) == (0, "ok\n"), done.stderr
    baseline, total, nodes = json.loads((space.work / "seen.json").read_text())
    assert (baseline, total) == ("usage", 21_012)
    assert nodes >= 4
