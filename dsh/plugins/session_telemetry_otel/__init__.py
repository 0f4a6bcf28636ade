"""Row `session-telemetry-otel`: sends a copy of what is logged to an OTLP receiver, if the user wants that.

Off unless `mode` says otherwise, and then to the user's own address only. Records hold prompts, tool output
and paths; what has the form of a key is masked (`spec/persistence.md` §11).
"""

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from dsh import __version__
from dsh.agent.contract import AGENT_ERROR
from dsh.capabilities.bounds import Amount, TimerMs
from dsh.capabilities.launch import HOME_PATH, LAUNCH_ENVIRONMENT
from dsh.capabilities.session_telemetry import FEEDBACK
from dsh.errors import CompositionError
from dsh.kernel import Context, ServiceKey
from dsh.session.store import SESSION_CREATED, SESSION_DISPOSED, SESSION_EVENT, SESSIONS, Appended

if TYPE_CHECKING:
    from dsh.plugins.session_telemetry_otel.capture import Capture

__all__ = ["Config", "apply", "inject", "provide"]

inject = [SESSIONS]
TELEMETRY: "ServiceKey[Capture | None]" = ServiceKey("sessionTelemetry")
"""Provided so that there is one: a second would send everything twice."""

provide = [TELEMETRY]

Secret = Annotated[str, msgspec.Meta(extra={"role": "secret"})]


class Exporter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Where records go."""

    url: str | None = None
    """The receiver's whole address, such as `https://collector.example/v1/logs`."""
    headers: dict[str, Secret] = {}
    """Sent with each request."""
    compression: Literal["gzip", "none"] = "gzip"
    """How requests are packed."""
    timeout_millis: TimerMs = 1_000
    """For one batch with its repetitions."""


class Processor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """How records are gathered."""

    scheduled_delay_millis: TimerMs = 10_000
    """How long a record waits for others."""
    max_queue_size: Amount = 2_048
    """Records that wait at most; then the oldest is dropped."""
    max_export_batch_size: Amount = 2_048
    """Records of one request at most."""
    export_timeout_millis: TimerMs = 1_500
    """Given to the library, which bounds a request by the exporter's `timeoutMillis` so far."""


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    mode: Literal["FULL", "FEEDBACK_ONLY", "DISABLED"] = "DISABLED"
    """`FULL` sends everything, `FEEDBACK_ONLY` a session up to each feedback, `DISABLED` nothing."""
    shutdown_timeout_millis: TimerMs = 3_000
    """How long the end of dsh may wait for what has not been sent."""
    mask_keys: bool = True
    """Put `***` in place of what has the form of a key or password, and of secret variables' values."""
    exporter: Exporter = Exporter()
    """Where records go."""
    processor: Processor = Processor()
    """How records are gathered."""


def apply(ctx: Context, config: Config) -> None:
    if config.mode == "DISABLED":
        ctx.provide(TELEMETRY)

        def appended(appended: Appended) -> None:
            if appended.event.type == FEEDBACK:
                ctx.logger.warning("feedback was recorded; telemetry is off, so it stays in the log")

        ctx.on(SESSION_EVENT, appended)
    else:
        _send(ctx, config)


def _send(ctx: Context, config: Config) -> None:
    from dsh.capabilities.anonymous_id import FILE, anonymous_id
    from dsh.plugins.session_telemetry_otel.capture import Capture
    from dsh.plugins.session_telemetry_otel.wire_value import as_it_is, masking, secrets_of

    url = _checked(config)
    home = ctx.get(HOME_PATH)
    try:
        from dsh.plugins.session_telemetry_otel.otlp import Outlet, Way
    except ImportError as error:
        raise CompositionError(
            f"telemetry is {config.mode} and its library is not installed ({error})",
            hint="install the extra, `pip install 'dsh[otel]'`, or set mode: DISABLED",
        ) from error
    environment = ctx.get(LAUNCH_ENVIRONMENT)
    secrets = secrets_of(environment.mapping()) if environment is not None else []
    exporter, processor = config.exporter, config.processor
    way = Way(
        url=url,
        headers=exporter.headers,
        is_compressed=exporter.compression == "gzip",
        timeout_ms=exporter.timeout_millis,
        delay_ms=processor.scheduled_delay_millis,
        queue_size=processor.max_queue_size,
        batch_size=processor.max_export_batch_size,
        export_timeout_ms=processor.export_timeout_millis,
        text=masking(secrets) if config.mask_keys else as_it_is,
    )
    resource = {"service.name": "dsh", "service.version": __version__}
    if home is not None:
        resource["user.id"] = anonymous_id(home(FILE))
    outlet = Outlet(way, resource, ctx.logger)
    capture = Capture(ctx, outlet.emit, only_feedback=config.mode == "FEEDBACK_ONLY")

    async def drain() -> None:
        capture.end()
        await outlet.close(config.shutdown_timeout_millis)

    ctx.effect(lambda: drain, "send the rest of the telemetry")
    ctx.provide(TELEMETRY, capture)
    ctx.on(SESSION_CREATED, capture.follow)
    ctx.on(SESSION_EVENT, capture.appended)
    ctx.on(SESSION_DISPOSED, capture.disposed)
    ctx.on(AGENT_ERROR, capture.agent_failed, global_=True)
    for session in ctx.use(SESSIONS).list():
        capture.follow(session)


def _checked(config: Config) -> str:
    """The address to send to.

    Raises:
        CompositionError: there is none, or the queue's sizes do not fit.
    """
    from urllib.parse import urlsplit

    url = config.exporter.url
    if not url:
        raise CompositionError(
            f"telemetry is {config.mode}, and nothing says where to send it",
            hint="set exporter.url of the row session-telemetry-otel (or DSH_TELEMETRY_OTLP_URL), "
            "or mode: DISABLED",
        )
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise CompositionError(
            "exporter.url is no http or https address", hint="write it with scheme and host"
        )
    processor = config.processor
    if processor.max_export_batch_size > processor.max_queue_size:
        raise CompositionError(
            f"processor.maxExportBatchSize {processor.max_export_batch_size} is more than "
            f"maxQueueSize {processor.max_queue_size}"
        )
    return url
