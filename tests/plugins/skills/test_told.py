"""When the list of skills is due: what counts is what the model still sees."""

from dsh.capabilities.skills import Skill
from dsh.plugins.tool_skill.catalogue import Catalogue, Told, catalogue_of, due
from dsh.session.log import Session
from dsh.session.message import Message, user_message
from tests.session.build import say, session


def listing(*names: str) -> Catalogue:
    skills = [Skill(name=name, description="d") for name in names]
    return catalogue_of(skills, max_description=500, max_bytes=10_000)


def tell(log: Session, message: Message | None) -> int:
    assert message is not None
    return log.append("user/message", message, surface="append").seq


def summarise(log: Session, start: int, end: int) -> None:
    """Put a message in the place of these, as a compaction does."""
    summary = user_message("what was before", {"kind": "plugin", "plugin": "compact", "compactionId": "c"})
    seqs = [seq for seq in log.surface_nodes if start <= seq <= end]
    log.append("user/message", summary, surface={"op": "replace", "start": start, "end": end}, sources=seqs)


def test_a_first_empty_list_is_not_told_and_a_later_one_is() -> None:
    log = session()
    told = Told(log)
    assert due(told, listing()) is None
    tell(log, due(told, listing("a")))
    assert due(told, listing("a")) is None

    update = due(told, listing())
    assert update is not None
    assert update["source"] == {"kind": "skill-catalog", "form": "catalog", "update": True, "entries": ()}
    tell(log, update)
    assert due(told, listing()) is None


def test_a_list_that_a_summary_took_the_place_of_is_told_again_as_a_first_one() -> None:
    log = session()
    told = Told(log)
    say(log, "hello", "m-1")
    at = tell(log, due(told, listing("a")))
    assert due(told, listing("a")) is None

    summarise(log, log.surface_nodes[0], at)

    again = due(told, listing("a"))
    assert again is not None
    assert "update" not in again["source"]
    assert due(Told(log), listing("a")) is not None
    tell(log, again)
    assert due(told, listing("a")) is None


def test_a_summary_of_an_older_list_leaves_the_newer_one() -> None:
    log = session()
    told = Told(log)
    first = tell(log, due(told, listing("a")))
    tell(log, due(told, listing("a", "b")))

    summarise(log, first, first)

    assert due(told, listing("a", "b")) is None
    assert due(Told(log), listing("a", "b")) is None
