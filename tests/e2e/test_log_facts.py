"""How the log of a headless run begins (`spec/session-log.md` §5)."""

from pathlib import Path

from dsh.testing.workspace import Workspace, log_rows


def test_three_policies_come_first_and_the_title_between_the_entering_messages_and_the_header(
    tmp_path: Path,
) -> None:
    space = Workspace(tmp_path)
    assert space.run("--profile", "demo", "hello").code == 0
    [log] = space.logs()

    types = [row["type"] for row in log_rows(log)[1:]]

    assert types[:3] == ["permission/preset", "sandbox/mode", "approval/policy"]
    entering = max(place for place, kind in enumerate(types) if kind == "user/message")
    assert entering < types.index("session/title") < types.index("request/header")
