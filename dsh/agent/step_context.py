"""Where rows put what they tell the model at the beginning of a step, whatever order they are mounted in.

A listener of `agent/pre-step` calls next and hands the decision to `with_context`. The messages of a step
stand in this order: what was claimed from the inbox, workspace instructions, the runtime-context snapshot,
the catalogue of skills, what other rows say (by their names), invoked skills (`spec/capabilities-core.md`
§20, `spec/capabilities-more.md` §3).
"""

from collections.abc import Sequence
from typing import TypeGuard

from dsh.agent.contract import EnterStep, PreStep, PreStepDecision
from dsh.agent.prompt import RUNTIME_CONTEXT_OWNER
from dsh.session.message import Message

_Rank = tuple[int, str]
_KINDS = {"agent-instructions": 1, "skill-catalog": 3, "skill-invocation": 5}
_SNAPSHOT = 2
_OTHERS = 4


def with_context(step: PreStep, decision: PreStepDecision, *added: Message) -> PreStepDecision:
    """The decision with these messages in their places; one that rejects the step stays as it is.

    A message stands behind all that belong before it or are of its own kind and came earlier. What was
    claimed, or put in by a listener that answers itself, keeps its order.
    """
    if not isinstance(decision, EnterStep) or not added:
        return decision
    claimed = {message["id"] for message in step.messages}
    out = list(decision.messages)
    for message in added:
        out.insert(_position(out, claimed, _rank(message)), message)
    return EnterStep(tuple(out))


def is_entered(decision: PreStepDecision, step: PreStep) -> TypeGuard[EnterStep]:
    """Whether the step comes to be also without what a row would add.

    It does not where listeners have rejected it or dropped all that was claimed for it; what is added then
    would make a request of its own.
    """
    if not isinstance(decision, EnterStep):
        return False
    return bool(decision.messages) or (step.step > 1 and not step.messages)


def _position(messages: Sequence[Message], claimed: set[str], rank: _Rank) -> int:
    for at in range(len(messages), 0, -1):
        before = messages[at - 1]
        if before["id"] in claimed or _rank(before) <= rank:
            return at
    return 0


def _rank(message: Message) -> _Rank:
    """The class of a message that a row adds; in it, names decide."""
    source = message["source"]
    kind = str(source.get("kind"))
    if kind == "plugin":
        name = str(source.get("plugin"))
        return (_SNAPSHOT, "") if name == RUNTIME_CONTEXT_OWNER else (_OTHERS, name)
    return (_KINDS[kind], "") if kind in _KINDS else (_OTHERS, kind)
