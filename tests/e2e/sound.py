"""Whether the logs of a workspace hold together, as `dsh sessions verify` says; without its process."""

from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.view import build_view
from dsh.session.verify.log import verify
from dsh.testing.workspace import Workspace


def errors_in(space: Workspace) -> list[str]:
    """What is wrong with the logs, of which there is one at least."""
    logs = space.logs()
    assert logs
    found = [finding for path in logs for finding in verify(build_view(read_log(path))).findings]
    return [f"{finding.code}: {finding.message}" for finding in found if finding.level == "error"]
