"""The way out: records go into the OTLP library's bounded queue at once, its thread sends them in batches."""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import (
    BatchLogRecordProcessor,
    LogRecordExporter,
    LogRecordExportResult,
)
from opentelemetry.sdk.resources import Resource

from dsh.capabilities.session_telemetry import TelemetryRecord
from dsh.masking import masked
from dsh.plugins.session_telemetry_otel.wire_value import Text, wire_value

_SEVERITY = {"info": SeverityNumber.INFO, "warn": SeverityNumber.WARN, "error": SeverityNumber.ERROR}


class Way(NamedTuple):
    """Where records go and how."""

    url: str
    headers: Mapping[str, str]
    is_compressed: bool
    timeout_ms: int
    """For one request with its repetitions."""
    delay_ms: int
    """How long a record waits for others."""
    queue_size: int
    batch_size: int
    export_timeout_ms: int
    text: Text
    """What to send for a text."""


class Outlet:
    """An open way. State: the library's queue and thread, how much was handed over, what it complained of."""

    def __init__(self, way: Way, resource: Mapping[str, str], log: logging.Logger) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._sender = _Sender(way)
        processor = BatchLogRecordProcessor(
            self._sender,
            schedule_delay_millis=way.delay_ms,
            max_export_batch_size=way.batch_size,
            export_timeout_millis=way.export_timeout_ms,
            max_queue_size=way.queue_size,
        )
        self._provider = LoggerProvider(Resource.create(dict(resource)), shutdown_on_exit=False)
        self._provider.add_log_record_processor(processor)
        self._logger = self._provider.get_logger("dsh.session-telemetry")
        self._complaints = _Complaints(self._told)
        self._was_told = False
        self._emitted = 0

    def emit(self, record: TelemetryRecord) -> None:
        """Put a record into the queue; when that is full the oldest one is dropped."""
        self._emitted += 1
        self._logger.emit(
            LogRecord(
                timestamp=record.time * 1_000_000,
                severity_number=_SEVERITY[record.severity],
                severity_text=record.severity.upper(),
                body=record.body,
                attributes={"telemetry.channel": record.channel, **record.attributes},
            )
        )

    async def close(self, timeout_ms: int) -> None:
        """Send what is left, for no longer than this; what could not be sent is told."""
        done = asyncio.Event()
        thread = threading.Thread(target=self._drain, args=(done,), name="dsh-telemetry-drain", daemon=True)
        thread.start()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await done.wait()
        except TimeoutError:
            self._sender.shutdown()
        self._complaints.close()
        if lost := self._emitted - self._sender.sent:
            within = "" if done.is_set() else f" within {timeout_ms} ms"
            self._log.warning("telemetry: %d of %d records could not be sent%s", lost, self._emitted, within)

    def _drain(self, done: asyncio.Event) -> None:
        try:
            self._provider.shutdown()
        finally:
            self._in_loop(done.set)

    def _told(self, message: str) -> None:
        """Called by the library's thread."""
        self._in_loop(self._tell, message)

    def _tell(self, message: str) -> None:
        if not self._was_told:
            self._was_told = True
            self._log.warning("telemetry: %s", masked(message))

    def _in_loop(self, function: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return


class _Sender(LogRecordExporter):
    """Sends batches, bodies made fit to be sent here, in the thread. Counts what was taken."""

    def __init__(self, way: Way) -> None:
        self.sent = 0
        self._is_over = False
        self._text = way.text
        self._exporter = OTLPLogExporter(
            endpoint=way.url,
            headers=dict(way.headers),
            timeout=way.timeout_ms / 1000,
            compression=Compression.Gzip if way.is_compressed else Compression.NoCompression,
        )

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        for one in batch:
            record = one.log_record
            record.body = wire_value(record.body, self._text)
            record.attributes = wire_value(record.attributes or {}, self._text)
        result = self._exporter.export(batch)
        if result is LogRecordExportResult.SUCCESS:
            self.sent += len(batch)
        return result

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._exporter.shutdown()  # type: ignore[no-untyped-call]


class _Complaints(logging.Handler):
    """Hears what the library logs, in place of the handlers that would print it."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self._source = logging.getLogger("opentelemetry")
        self._propagated = self._source.propagate
        self._source.addHandler(self)
        self._source.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())

    def close(self) -> None:
        self._source.removeHandler(self)
        self._source.propagate = self._propagated
        super().close()
