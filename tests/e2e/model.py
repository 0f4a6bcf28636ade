"""A scripted model on a real socket, for runs of the program as a process."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from dsh.testing.mock_server import MockModelServer


class Model:
    """A running mock server: where it is, and what it was asked."""

    def __init__(self, server: MockModelServer) -> None:
        self._server = server

    @property
    def base_url(self) -> str:
        return self._server.base_url

    def bodies(self) -> list[dict[str, Any]]:
        """The bodies of the requests so far."""
        return [request.body for request in self._server.requests]


@contextlib.contextmanager
def serve(script: Sequence[dict[str, Any]]) -> Iterator[Model]:
    """Serve these replies in turn from a thread; the last one repeats."""
    with MockModelServer(list(script), repeat_last=True).in_thread() as server:
        yield Model(server)
