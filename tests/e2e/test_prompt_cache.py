"""What a provider's prompt cache needs: the beginning of a request never changes without a reason (LS-11)."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from dsh.testing.workspace import Workspace
from tests.e2e.model import Model
from tests.e2e.reply import bash, text

Answering = Callable[..., Model]


def fixed(body: dict[str, Any]) -> tuple[Any, Any]:
    """System text and tools."""
    system = [message["content"] for message in body["messages"] if message["role"] == "system"]
    return system, body["tools"]


def test_each_request_of_a_session_begins_with_the_one_before(space: Workspace, answering: Answering) -> None:
    model = answering(*(bash(f"echo {n}", f"c{n}") for n in range(4)), text("done"))
    done = space.run("run", "count")
    assert (done.code, done.stdout) == (0, "done\n")

    bodies = model.bodies()
    assert len(bodies) == 5
    for earlier, later in pairwise(bodies):
        assert later["messages"][: len(earlier["messages"])] == earlier["messages"]
        assert fixed(later) == fixed(earlier)


def test_sessions_in_one_folder_begin_alike_whatever_the_hash_seed(
    space: Workspace, answering: Answering
) -> None:
    model = answering(text("ok"))
    for seed in ("0", "1", "2"):
        assert space.run("run", "x", env={"PYTHONHASHSEED": seed}).code == 0

    first, second, third = (fixed(body) for body in model.bodies())
    assert first == second == third
    assert first[0] and first[1]
