"""Payloads of plugins' events, against the types that their packages give. Imports those packages."""

from dsh.errors import DshError
from dsh.session.error import InvalidEvent
from dsh.session.event import SessionEvent
from dsh.session.verify.finding import Findings
from dsh.session.vocabulary import check_payload, payload_of


class PluginPayloads:
    """Looks at the events that format 0 does not define; those of format 0 were looked at before."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._unloadable: set[str] = set()
        """Told once for a type, not once for an event."""

    def see(self, event: SessionEvent) -> None:
        """Take the next event of the log."""
        kind = event.type
        if kind in self._unloadable or payload_of(kind) is not None:
            return
        try:
            check_payload(kind, event.data, ignorable=event.ignorable)
        except InvalidEvent as error:
            self._findings.error("IRREGULAR", event.seq, error.message)
        except DshError as error:
            self._unloadable.add(kind)
            self._findings.warning("PAYLOAD_UNCHECKED", event.seq, error.message)
