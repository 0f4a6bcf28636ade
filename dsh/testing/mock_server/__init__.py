"""A model server that is real on the wire and scripted in what it says: the counterpart of every test.

In process: `async with MockModelServer(["success"]) as server: … server.base_url`. For a program under test:
`with MockModelServer(script).in_thread() as server:`. From a shell: `python -m dsh.testing.mock_server`.

Each accepted `POST …/chat/completions` or `POST …/messages` plays the next entry of the script: the name of
a behaviour, a free-form reply (`scripted`), or a function that makes one of the request's body. A wrong
method, path, key or body consumes nothing.
"""

from dsh.testing.mock_server.behaviour import BEHAVIOURS, RANDOM_WEIGHTS
from dsh.testing.mock_server.plan import MockOptions
from dsh.testing.mock_server.reply import scripted
from dsh.testing.mock_server.script import Entry
from dsh.testing.mock_server.server import MockModelServer, RecordedRequest, RefusedRequest
from dsh.testing.mock_server.strict.rules import Rules

__all__ = [
    "BEHAVIOURS",
    "RANDOM_WEIGHTS",
    "Entry",
    "MockModelServer",
    "MockOptions",
    "RecordedRequest",
    "RefusedRequest",
    "Rules",
    "scripted",
]
