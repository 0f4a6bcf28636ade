"""A log that refuses a row, each one in turn: the agent comes to rest, says so, and sends nothing broken."""

from collections.abc import Callable
from typing import Any

import pytest

from dsh.agent.contract import AGENT_ERROR, Agent
from dsh.agent.transcript import sound_prefix
from dsh.session.log import Session
from dsh.session.message import user_message
from tests.agent.kit import Loop, calls, data_of, ends, loop, short, text
from tests.aio import aio

SCRIPT = (calls(("c1", "echo", "{}"), ("c2", "echo", "{}")), text("done"))
ROWS = 24
"""More than the rows of the turn, chunks left out."""


class Full(OSError):
    """The disk is full."""


Refuse = Callable[..., list[str]]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """`refuse(nth, kind)`: let the nth append (of a type, if one is given) fail; answers what was refused."""
    real = Session.append

    def install(nth: int, kind: str | None = None) -> list[str]:
        refused: list[str] = []
        seen = 0

        def append(self: Session, event_type: str, *args: Any, **options: Any) -> Any:
            nonlocal seen
            if kind is None or kind == event_type:
                seen += 1
                if seen == nth:
                    refused.append(event_type)
                    raise Full("no space left")
            return real(self, event_type, *args, **options)

        monkeypatch.setattr(Session, "append", append)
        return refused

    return install


async def started(it: Loop) -> tuple[Agent, list[Any]]:
    async def echo(args: Any, execution: Any) -> str:
        return "echoed"

    it.tool("echo", echo)
    told: list[Any] = []
    it.ctx.on(AGENT_ERROR, told.append)
    return await it.agent(), told


@pytest.mark.parametrize("nth", range(2, ROWS))
@aio
async def test_any_row_may_be_refused(nth: int, refuse: Refuse) -> None:
    async with loop(*SCRIPT) as it:
        agent, told = await started(it)
        agent.inject(user_message("note"))
        refused = refuse(nth)
        await it.prompt(agent, "go")

        assert agent.status == "idle"
        assert len(told) == (2 if refused == ["step/end"] else len(refused)), "told at once"
        is_broken = agent.session.open_turn is not None
        await it.prompt(agent, "again")
        assert agent.status == "idle"
        if is_broken:
            assert len(told) > len(refused), "an unbalanced log takes no further turn, and says so"
        else:
            assert ends(agent.session)[-1] == {"kind": "completed"}
        for request in it.model.requests:
            assert sound_prefix(request.messages) == len(request.messages)


@aio
async def test_what_was_claimed_before_the_claim_failed_waits_again(refuse: Refuse) -> None:
    async with loop(text("done")) as it:
        agent, _ = await started(it)
        agent.inject(user_message("note"))
        refuse(3, "agent/inbox/spliced")  # of: the prompt, the claim of the note, the claim of the prompt
        await it.prompt(agent, "go")

        waiting = [m["content"][0]["text"] for m in (*agent.inbox.next_step, *agent.inbox.next_turn)]  # type: ignore[typeddict-item]
        assert waiting == ["note", "go"]
        assert short(agent.session) == "spliced spliced turn/start spliced spliced turn/end"
        await it.prompt(agent, "again")
        said = [data["content"][0]["text"] for data in data_of(agent.session, "user/message")]
        assert said == ["note", "go", "again"]


@aio
async def test_a_refused_turn_start_leaves_the_prompt_pending_and_names_the_turn_before(
    refuse: Refuse,
) -> None:
    async with loop(text("done")) as it:
        agent, told = await started(it)
        await it.prompt(agent, "first")
        refuse(1, "turn/start")
        await it.prompt(agent, "go")
        assert [(error.turn, error.step) for error in told] == [(1, 0)]
        assert len(agent.inbox.next_turn) == 1
        assert it.statuses[-2:] == ["running", "idle"]


@pytest.mark.parametrize(("kind", "errors"), [("step/end", 2), ("turn/end", 1)])
@aio
async def test_a_refused_end_is_told_and_not_tried_again_and_no_turn_follows(
    kind: str, errors: int, refuse: Refuse
) -> None:
    """An open step refuses the end of its turn as well, which is told in its turn."""
    async with loop(text("done")) as it:
        agent, told = await started(it)
        refuse(1, kind)
        await it.prompt(agent, "go")
        assert len(told) == errors
        assert data_of(agent.session, "turn/end") == []

        await it.prompt(agent, "again")
        assert len(it.model.requests) == 1
        assert len(told) == errors + 1
        assert len(agent.inbox.next_turn) == 1, "the prompt waits for the repair"
