"""Every recorded scenario through the program as a process: same answer, code, requests and row types."""

import json
from pathlib import Path

import pytest

from dsh.testing.workspace import Workspace
from tests.corpus import CORPUS, needs_corpus
from tests.e2e.scenario import SIGNALS, differences, load, play
from tests.sandboxes import needs_walls

LATER = frozenset(["subagent"])
"""Scenarios of capabilities that are not built yet."""
SCENARIOS = sorted(path for path in (CORPUS / "scenarios").glob("*.json") if path.stem not in LATER)


def inspected(space: Workspace, log: Path) -> dict[str, object]:
    done = space.run("sessions", "inspect", str(log), "--json")
    assert done.code == 0, done.stderr
    seen: dict[str, object] = json.loads(done.stdout)
    return seen


@needs_corpus
@needs_walls
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario_runs_as_recorded(path: Path, tmp_path: Path) -> None:
    scenario = dict(load(path))
    space = Workspace(tmp_path)

    played = play(scenario, space)

    assert list(differences(scenario, played, space.work)) == []
    cuts = [option for option in SIGNALS if option in scenario["options"]]
    if cuts:
        assert played.logs
    for log in played.logs if cuts else []:
        last = inspected(space, log)["last"]
        assert isinstance(last, dict) and last["type"] == "turn/end"
        assert last["data"]["reason"]["kind"] == ("interrupted" if "kill_after" in cuts else "aborted")


@needs_corpus
def test_a_log_cut_by_kill_is_repaired_and_read_only(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    played = play(dict(load(CORPUS / "scenarios" / "kill-in-tool.json")), space)
    [log] = played.logs
    before = log.read_bytes()

    seen = inspected(space, log)

    assert log.read_bytes() == before
    messages = seen["messages"]
    assert isinstance(messages, list)
    result = messages[-1]["content"][0]
    assert (result["type"], result["isError"]) == ("tool-result", True)
