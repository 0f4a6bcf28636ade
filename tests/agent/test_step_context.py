"""Where the messages stand that rows add to a step: the same for every order in which they come."""

import itertools
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from dsh.agent.contract import Agent, EnterStep, PreStep, PreStepDecision, RejectStep
from dsh.agent.prompt import RUNTIME_CONTEXT_OWNER
from dsh.agent.step_context import is_entered, with_context
from dsh.kernel import CancelToken
from dsh.session.message import Message, user_message

TASK = user_message("task", message_id="task")
STEERED = user_message("steered", {"kind": "plugin", "plugin": "a"}, "steered")
SNAPSHOT = user_message("snapshot", {"kind": "plugin", "plugin": RUNTIME_CONTEXT_OWNER}, "snapshot")
RULES = user_message("rules", {"kind": "agent-instructions"}, "rules")
CATALOGUE = user_message("catalogue", {"kind": "skill-catalog"}, "catalogue")
HOOKS = user_message("hooks", {"kind": "plugin", "plugin": "hooks-codex"}, "hooks")
TIME = user_message("time", {"kind": "plugin", "plugin": "time-context"}, "time")
SKILL = user_message("skill", {"kind": "skill-invocation", "name": "s"}, "skill")
ADDED = (RULES, CATALOGUE, HOOKS, TIME, SKILL)


def step(*claimed: Message) -> PreStep:
    return PreStep(cast(Agent, None), claimed, 1, 1, CancelToken())


def entered(decision: PreStepDecision) -> list[str]:
    assert isinstance(decision, EnterStep)
    return [message["id"] for message in decision.messages]


def test_every_order_of_rows_gives_the_order_of_the_specification() -> None:
    at = step(STEERED, TASK)

    for added in itertools.permutations(ADDED):
        decision: PreStepDecision = EnterStep((STEERED, TASK, SNAPSHOT))
        for message in added:
            decision = with_context(at, decision, message)
        assert entered(decision) == [
            "steered", "task", "rules", "snapshot", "catalogue", "hooks", "time", "skill",
        ]  # fmt: skip


@given(st.permutations(ADDED), st.booleans(), st.booleans())
def test_the_order_does_not_depend_on_what_else_is_there(
    added: list[Message], has_task: bool, has_snapshot: bool
) -> None:
    claimed = (TASK,) if has_task else ()
    decision: PreStepDecision = EnterStep((*claimed, *((SNAPSHOT,) if has_snapshot else ())))

    decision = with_context(step(*claimed), decision, *added)

    wanted = ["task", "rules", "snapshot", "catalogue", "hooks", "time", "skill"]
    assert entered(decision) == [i for i in wanted if i in {m["id"] for m in (*claimed, *added)} or (
        i == "snapshot" and has_snapshot
    )]  # fmt: skip


def test_messages_of_one_kind_stay_in_the_order_in_which_they_came() -> None:
    first, second = (user_message(n, {"kind": "skill-invocation", "name": n}, n) for n in ("z", "a"))

    decision = with_context(step(TASK), EnterStep((TASK,)), first, second)

    assert entered(decision) == ["task", "z", "a"]


def test_what_a_claimed_message_replaces_keeps_its_place() -> None:
    """A listener may answer with other messages than were claimed; what is added comes in by its kind."""
    decision = with_context(step(TASK), EnterStep((HOOKS, SKILL)), RULES)

    assert entered(decision) == ["rules", "hooks", "skill"]


def test_a_rejected_step_stays_rejected() -> None:
    assert isinstance(with_context(step(TASK), RejectStep(), RULES), RejectStep)


def test_a_step_that_nothing_enters_is_not_entered_for_what_rows_add() -> None:
    going_on = PreStep(cast(Agent, None), (), 1, 2, CancelToken())
    dropped = PreStep(cast(Agent, None), (TASK,), 1, 2, CancelToken())

    assert is_entered(EnterStep((TASK,)), step(TASK))
    assert is_entered(EnterStep(()), going_on)  # results are owed an answer
    assert not is_entered(EnterStep(()), dropped)
    assert not is_entered(EnterStep(()), step())
    assert not is_entered(RejectStep(), step(TASK))
