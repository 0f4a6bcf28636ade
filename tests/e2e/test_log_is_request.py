"""The log of a finished run gives back what the model was sent, and nothing else is needed for that."""

import json
from collections.abc import Callable

import pytest

from dsh.testing.workspace import Workspace
from tests.chat_wire import deepseek_messages
from tests.e2e.model import Model
from tests.e2e.reply import Reply, bash, failure, text

THINKING: Reply = {
    "reasoning": ["look ", "first"],
    "text": ["I will ", "look: 完成 ✓"],
    "tools": [
        {"id": "a", "name": "read", "args": ['{"file_path":', '"notes.txt"}']},
        {"id": "b", "name": "no_such_tool", "args": ["{}"]},
        {"id": "c", "name": "grep", "args": ['{"pattern": broken']},
    ],
}
HALF_A_PAIR: Reply = {
    "tools": [{"id": "d", "name": "bash", "args": ['{"command":"printf \'\\\\xe9\\\\0\'","note":"\\ud99c"}']}]
}


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_the_last_request_is_derived_from_the_log(
    space: Workspace, answering: Callable[..., Model], compression: str
) -> None:
    model = answering(THINKING, failure(503, "busy"), HALF_A_PAIR, bash("exit 3", "e"), text("done"))
    space.write("notes.txt", "one\ntwo 🏷\n")
    space.write("p.yml", f"- id: session-persistence-jsonl\n  merge: {{compression: {compression}}}\n")
    assert space.run("run", "--patch", "p.yml", "look around").code == 0

    [log] = space.logs()
    shown = space.run("sessions", "inspect", str(log), "--json")
    assert (shown.code, shown.stderr) == (0, "")
    log_view = json.loads(shown.stdout)
    header, sent = log_view["requestHeader"], model.bodies()[-1]

    assert len(model.bodies()) == 5
    assert log_view["messages"][-1]["content"] == [{"type": "text", "text": "done"}]
    assert deepseek_messages(header["system"], log_view["messages"][:-1]) == sent["messages"]
    assert header["tools"] == [tool["function"] for tool in sent["tools"]]
    assert header["config"]["maxTokens"] == sent["max_tokens"]
    assert header["config"]["reasoningEffort"] == sent["reasoning_effort"]

    verified = space.run("sessions", "verify", str(log))
    assert (verified.code, verified.stderr) == (0, "")
    assert "5 digests" in verified.stdout
