"""Seeded faults through the whole program, on every wire: requests, log and exit code as the policy says."""

import random

import pytest

from dsh.testing.mock_server import MockModelServer, MockOptions
from dsh.testing.workspace import Workspace, log_rows
from tests.contract.wire.recovery import ANSWERED, FINAL, PASSING, Expected, expected_turns
from tests.contract.wire.wires import WIRES, Wire, spelling, url_of

OPTIONS = MockOptions(chunk_delay_ms=1, disconnect_delay_ms=1, retry_after_ms=0)
BUDGET = 4
ROUTE = """{{apiKeyEnv: {key}, baseURL: "{url}", streamIdleTimeoutMs: 400,
    retryPolicy: {{maxRetries: {budget}, backoff: {{initialDelayMs: 1, maxDelayMs: 2}}}}}}"""
PATCH = """
- id: {row}
  config: {config}
- id: agent-default-model
  config: {{provider: {route}, model: m}}
"""


def turn_of(wire: Wire, seed: int) -> Expected:
    """One turn of faults that may pass, an answer or a lasting fault at its end unless the budget ends it."""
    rng = random.Random(seed)
    last = rng.choice([*FINAL, *ANSWERED]) if seed % 2 else rng.choice(ANSWERED)
    script = [*rng.choices(list(PASSING), k=rng.randint(1, BUDGET + 2)), last, "success"]
    return next(expected_turns(wire, script, BUDGET))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_a_run_ends_as_the_policy_says(space: Workspace, wire: Wire, seed: int) -> None:
    turn = turn_of(wire, 10 * len(wire.name) + seed)
    with MockModelServer(turn.behaviours, options=OPTIONS, dialect=spelling(wire)).in_thread() as server:
        route = ROUTE.format(key=wire.key_variable, url=url_of(wire, server), budget=BUDGET)
        config = f"{{providers: {{{wire.route}: {route}}}}}" if wire.is_nested else route
        space.write("p.yml", PATCH.format(row=wire.row.replace("_", "-"), config=config, route=wire.route))
        space.env[wire.key_variable] = "mock-key"
        done = space.run("run", "--patch", "p.yml", "say it")
    [log] = space.logs()
    rows = log_rows(log)[1:]
    kinds = [row["type"] for row in rows]

    assert [request.behavior for request in server.requests] == list(turn.behaviours)
    assert done.code == (0 if turn.kind == "completed" else 4 if turn.code == "AUTH" else 1)
    assert rows[-1]["data"]["reason"]["kind"] == turn.kind
    assert kinds.count("llm/retry") == kinds.count("llm/retry-started") == len(turn.retries)
    assert "Traceback" not in done.stderr and "mock-key" not in done.stderr + done.stdout + str(rows)
    assert space.run("sessions", "verify", str(log)).code == 0
