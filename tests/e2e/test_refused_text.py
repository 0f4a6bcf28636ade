"""A reply that a filter cut off, through the program: its text is kept only where that is asked for."""

import pytest

from dsh.testing.mock_server import MockModelServer, MockOptions
from dsh.testing.workspace import Workspace, log_rows

PARTIAL = MockOptions().partial_text


@pytest.mark.parametrize("keep", [False, True])
def test_the_text_before_a_content_filter_is_printed_where_the_row_says_so(
    space: Workspace, keep: bool
) -> None:
    space.write("p.yml", f"- id: agent-loop\n  config: {{keepRefusedText: {str(keep).lower()}}}\n")
    with MockModelServer(["content_filter"], repeat_last=True).in_thread() as server:
        space.use_model(server.base_url)
        done = space.run("run", "--patch", "p.yml", "say it")
    [log] = space.logs()
    kinds = [row["type"] for row in log_rows(log)[1:]]

    assert (done.code, done.stdout) == (1, f"{PARTIAL if keep else ''}\n")
    [line] = done.errors
    assert line.startswith("dsh: CONTENT_FILTER: ")
    assert line.endswith("; the answer is cut off there") is keep
    assert ("assistant/message" in kinds) is keep
    assert space.run("sessions", "verify", str(log)).code == 0
