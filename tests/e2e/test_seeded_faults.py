"""Seeded faults through the whole program, on every wire: requests, log and exit code as the policy says."""

import random
import signal
from typing import Any

import pytest

from dsh.testing.mock_server import MockModelServer, MockOptions
from dsh.testing.workspace import Workspace, finish, log_rows
from tests.contract.wire.recovery import ANSWERED, FINAL, PASSING, Expected, expected_turns
from tests.contract.wire.wires import (
    ANTHROPIC_WIRE,
    DEEPSEEK_WIRE,
    OPENAI_WIRE,
    Wire,
    over_wires,
    spelling,
    url_of,
)
from tests.process import wait_until

OPTIONS = MockOptions(chunk_delay_ms=1, disconnect_delay_ms=1, retry_after_ms=0)
BUDGET = 4
HUNDREDS = 300
DOZENS = 60
ROUTE = """{{apiKeyEnv: {key}, baseURL: "{url}", streamIdleTimeoutMs: 400,
    retryPolicy: {{{policy}, backoff: {{initialDelayMs: 1, maxDelayMs: 2}}}}}}"""
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


def use(space: Workspace, wire: Wire, server: MockModelServer, policy: str) -> None:
    """Write `p.yml`: the wire's route on this server, with this policy."""
    route = ROUTE.format(key=wire.key_variable, url=url_of(wire, server), policy=policy)
    config = f"{{providers: {{{wire.route}: {route}}}}}" if wire.is_nested else route
    space.write("p.yml", PATCH.format(row=wire.row.replace("_", "-"), config=config, route=wire.route))
    space.env[wire.key_variable] = "mock-key"


def rows_of(space: Workspace) -> list[dict[str, Any]]:
    """The rows of the one log there is, which verifies."""
    [log] = space.logs()
    assert space.run("sessions", "verify", str(log)).code == 0
    return log_rows(log)[1:]


@pytest.mark.parametrize("seed", range(3))
@over_wires
def test_a_run_ends_as_the_policy_says(space: Workspace, wire: Wire, seed: int) -> None:
    turn = turn_of(wire, 10 * len(wire.name) + seed)
    with MockModelServer(turn.behaviours, options=OPTIONS, dialect=spelling(wire)).in_thread() as server:
        use(space, wire, server, f"maxRetries: {BUDGET}")
        done = space.run("run", "--patch", "p.yml", "say it")
    rows = rows_of(space)
    kinds = [row["type"] for row in rows]

    assert [request.behavior for request in server.requests] == list(turn.behaviours)
    assert done.code == (0 if turn.kind == "completed" else 4 if turn.code == "AUTH" else 1)
    assert rows[-1]["data"]["reason"]["kind"] == turn.kind
    assert kinds.count("llm/retry") == kinds.count("llm/retry-started") == len(turn.retries)
    assert "Traceback" not in done.stderr and "mock-key" not in done.stderr + done.stdout + str(rows)


@pytest.mark.parametrize(
    ("wire", "faults", "budget", "last", "code"),
    [
        (DEEPSEEK_WIRE, HUNDREDS, HUNDREDS, "success", 0),
        (OPENAI_WIRE, DOZENS, DOZENS - 1, "success", 1),
        (ANTHROPIC_WIRE, DOZENS, DOZENS, "auth_error", 4),
    ],
)
def test_hundreds_of_faults_in_one_step_end_with_the_budget_and_not_before(
    space: Workspace, wire: Wire, faults: int, budget: int, last: str, code: int
) -> None:
    quick = [name for name in PASSING if name not in ("silent", "stall", "stall_after_text")]
    script = [*random.Random(budget).choices(quick, k=faults), last]
    with MockModelServer(script, options=OPTIONS, dialect=spelling(wire)).in_thread() as server:
        use(space, wire, server, f"maxRetries: {budget}")
        done = space.run("run", "--patch", "p.yml", "say it")
    kinds = [row["type"] for row in rows_of(space)]

    assert (done.code, len(server.requests)) == (code, budget + 1)
    assert kinds.count("llm/retry") == kinds.count("llm/retry-started") == budget
    assert len(done.errors) == (code > 0)


@pytest.mark.parametrize("end", ["SIGINT", "SIGTERM", "timeout"])
@over_wires
def test_mode_always_is_ended_by_a_signal_and_by_the_limit_of_time(
    space: Workspace, wire: Wire, end: str
) -> None:
    script = random.Random(end).choices([*PASSING, *FINAL], k=2000)
    with MockModelServer(script, options=OPTIONS, dialect=spelling(wire)).in_thread() as server:
        use(space, wire, server, "mode: always")
        if end == "timeout":
            space.write("q.yml", "- id: headless-runner\n  merge: {timeoutMs: 500}\n")
            done = space.run("run", "--patch", "p.yml", "--patch", "q.yml", "say it")
        else:
            process = space.start("run", "--patch", "p.yml", "say it")
            wait_until(lambda: len(server.requests) > 7, process)
            process.send_signal(getattr(signal, end))
            done = finish(process, timeout_s=20)
    [*_, last] = rows_of(space)

    assert done.code == {"SIGINT": 130, "SIGTERM": 143, "timeout": 124}[end]
    assert (last["type"], last["data"]["reason"]["kind"]) == ("turn/end", "aborted")
