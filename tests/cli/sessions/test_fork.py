"""`dsh sessions fork`: what the child begins with, what it says of its parent, and that the parent stays."""

import pytest

from dsh.cli.sessions.described import cached_title
from dsh.cli.sessions.fork import fork
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.target import find_stored
from dsh.cli.sessions.whereabouts import open_place
from dsh.persistence.view import LogView
from dsh.session.log import END_SEED
from tests.cli.sessions.home import Call, Home, Told
from tests.persistence.golden import line, turn_end, turn_start, types_of

HERE = Place()
TURNS = turn_start(0) + turn_end(1) + turn_start(2, 2) + turn_end(3, 2) + turn_start(4, 3) + turn_end(5, 3)


def forked(call: Call, target: str, at: int = 0) -> tuple[LogView, Told]:
    told = call(lambda: fork(target, HERE, at=at))
    assert told.code == 0
    return find_stored(told.out.removesuffix("\n"), open_place(HERE)).view(), told


def test_a_fork_is_the_whole_log_and_an_end_seed(home: Home, call: Call) -> None:
    path = home.store("mother", TURNS, agentPreset="code")
    before = path.read_bytes()

    child, told = forked(call, "moth")

    assert told.err == ""
    assert types_of(child) == ["turn/start", "turn/end"] * 3 + ["session/end-seed"]
    header = child.header
    assert header.id.startswith("session-") and header.id != "mother"
    assert (header.parent_session, header.seed_length) == ("mother", 6)
    assert (header.cwd, header.agent_preset) == (str(home.work), "code")
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["session.jsonl"]


def test_a_fork_has_the_title_that_its_part_of_the_log_has(home: Home, call: Call) -> None:
    first, then = (line("session/title", seq, {"title": title}) for seq, title in ((2, "First"), (6, "Then")))
    second, third = turn_start(3, 2) + turn_end(4, 2), turn_start(5, 3) + then + turn_end(7, 3)
    home.store("mother", turn_start(0) + turn_end(1) + first + second + third)

    titles = [forked(call, "mother", at)[0].header.id for at in (0, 2, 1)]
    stored = {one.header.id: cached_title(one) for one in open_place(HERE).list().sessions}

    assert [stored[child] for child in titles] == ["Then", "First", None]


def test_a_fork_may_end_with_any_turn(home: Home, call: Call) -> None:
    home.store("mother", TURNS)

    for turn in (1, 2, 3):
        child, _ = forked(call, "mother", turn)
        assert child.header.seed_length == 2 * turn
        assert types_of(child) == ["turn/start", "turn/end"] * turn + ["session/end-seed"]


def test_the_last_turn_of_a_log_that_was_cut_off_is_closed_in_the_fork(home: Home, call: Call) -> None:
    path = home.store("mother", TURNS + turn_start(6, 4) + b'{"type":"assis')
    before = path.read_bytes()

    child, told = forked(call, "mother")
    earlier, told_earlier = forked(call, "mother", 3)

    assert types_of(child)[-3:] == ["turn/start", "turn/end", "session/end-seed"]
    assert child.event(7).data["reason"] == {"kind": "interrupted"}
    torn, closed = told.err.splitlines()
    assert torn.startswith(f"dsh: {path}: line 9: ") and torn.endswith("; the fork does without it")
    assert closed == "dsh: mother was cut off or is still open: the fork closes its last turn"
    assert told_earlier.err == "" and earlier.length == 7
    assert path.read_bytes() == before


def test_a_fork_of_a_fork_names_its_own_parent(home: Home, call: Call) -> None:
    home.store("mother", TURNS)
    child, _ = forked(call, "mother", 1)

    grandchild, _ = forked(call, child.header.id)

    assert (grandchild.header.parent_session, grandchild.header.seed_length) == (child.header.id, 3)
    assert types_of(grandchild) == ["turn/start", "turn/end", "session/end-seed"]  # it ends with one already


def test_two_forks_have_nothing_to_do_with_each_other(home: Home, call: Call) -> None:
    home.store("mother", TURNS)
    one, _ = forked(call, "mother")
    other, _ = forked(call, "mother")
    backend = open_place(HERE)
    stored = backend.open(one.header.id)
    assert stored is not None

    session = one.to_session()
    session.append("turn/start", {"turn": 4})
    backend.append(one.header, session.entries(one.length))
    backend.close()

    assert find_stored(one.header.id, open_place(HERE)).view().length == one.length + 2  # and its closer
    assert find_stored(other.header.id, open_place(HERE)).view().length == other.length
    assert find_stored("mother", open_place(HERE)).view().length == 6


def test_an_empty_session_has_an_empty_fork(home: Home, call: Call) -> None:
    home.store("mother", b"")

    child, _ = forked(call, "mother")

    assert (child.header.seed_length, types_of(child)) == (0, ["session/end-seed"])


@pytest.mark.parametrize(
    ("turn", "said"), [(4, "has no turn 4: its turns are 1 to 3"), (10**30, "has no turn")]
)
def test_a_turn_that_is_not_there_is_refused(home: Home, call: Call, turn: int, said: str) -> None:
    home.store("mother", TURNS)

    told = call(lambda: fork("mother", HERE, at=turn))

    assert (told.code, told.out) == (1, "")
    assert said in told.err and told.err.splitlines()[1].startswith("hint: ")
    assert home.ids() == ["mother"]


@pytest.mark.parametrize(
    "body", [line("acme/note", 0, {}), turn_start(5) + turn_end(6), b"\xff\n" + turn_end(0)]
)
def test_a_log_that_cannot_be_opened_has_no_fork(home: Home, call: Call, body: bytes) -> None:
    path = home.store("mother", body)

    told = call(lambda: fork("mother", HERE, at=0))

    assert (told.code, told.out) == (1, "") and str(path) in told.err
    assert home.ids() == ["mother"]


def test_no_place_for_the_fork_leaves_nothing(home: Home, call: Call) -> None:
    path = home.store("mother", TURNS)
    path.parent.parent.rename(home.sessions / "elsewhere")
    path.parent.parent.symlink_to("/dev/null/nowhere")

    told = call(lambda: fork("mother", HERE, at=0))

    assert told.code == 1 and told.out == ""
    assert "internal error" not in told.err


def test_a_fork_is_stored_as_the_profile_says(home: Home, call: Call) -> None:
    home.profile(
        "- id: session-persistence-jsonl\n  config: {root: !expr home('sessions'), compression: none}\n"
    )
    home.store("mother", TURNS, is_plain=False)

    child, _ = forked(call, "mother")

    (path,) = home.sessions.glob(f"*/{child.header.id}/*.jsonl")
    assert path.name == "session.jsonl"
    assert END_SEED in path.read_text()
