"""An OTLP/HTTP receiver of logs on this machine, which answers as a test wants."""

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue


class Received(NamedTuple):
    """One record as it arrived."""

    attributes: dict[str, Any]
    body: Any
    severity: int
    time_ms: int

    @property
    def kind(self) -> str:
        """`turn/start#0` for a logged event, `shutdown` for an operation."""
        if (op := self.attributes.get("telemetry.op")) is not None:
            return str(op)
        return f"{self.attributes['event.type']}#{self.attributes['event.seq']}"


class Receiver:
    """What has arrived so far."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.records: list[Received] = []
        self.resource: dict[str, Any] = {}
        self.headers: list[dict[str, str]] = []
        self.answer: Callable[[], int] = lambda: 200
        """The status of the next answer; may take its time."""

    @property
    def kinds(self) -> list[str]:
        return [record.kind for record in self.records]

    def take(self, data: bytes) -> None:
        request = ExportLogsServiceRequest.FromString(data)
        for resource in request.resource_logs:
            self.resource = {one.key: _plain(one.value) for one in resource.resource.attributes}
            for scope in resource.scope_logs:
                for record in scope.log_records:
                    attributes = {one.key: _plain(one.value) for one in record.attributes}
                    at = record.time_unix_nano // 1_000_000
                    received = Received(attributes, _plain(record.body), int(record.severity_number), at)
                    self.records.append(received)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver that listens until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                data = gzip.decompress(data)
            status = receiver.answer()
            if status == 200:
                receiver.headers.append(dict(self.headers))
                receiver.take(data)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}/v1/logs")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _plain(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case "array_value":
            return [_plain(item) for item in value.array_value.values]
        case "kvlist_value":
            return {item.key: _plain(item.value) for item in value.kvlist_value.values}
        case None:
            return None
        case name:
            return getattr(value, name)
