"""What `dsh replay` asks of the rows it mounts: which session is run again, and how."""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from dsh.kernel import ServiceKey
from dsh.session.message import Message
from dsh.session.replay.cursor import Counts, Divergence
from dsh.session.replay.recording import Recording

ReplayTools = Literal["recorded", "live"]


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a replay came to. `--json` prints it."""

    session: str
    tools: ReplayTools
    divergence: Divergence | None
    """The first one; None where the replay is what was recorded."""
    compared: Counts
    notes: tuple[str, ...] = ()
    """What is not as it was recorded and was given to the replay all the same."""


class GivenSources:
    """Which messages come from the record. Implements `dsh.capabilities.recorded.Recorded`."""

    def __init__(self) -> None:
        self._sources: list[Mapping[str, str]] = []

    def gives(self, source: Mapping[str, str]) -> None:
        self._sources.append(source)

    def covers(self, message: Message) -> bool:
        """Whether some row has left this message to the record."""
        found = message["source"]
        return any(s and all(found.get(k) == v for k, v in s.items()) for s in self._sources)

    @property
    def has_tools(self) -> bool:
        """Whether some row has left its tools to the record."""
        return {} in self._sources


class ReplayTask(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One replay."""

    recording: Recording
    tools: ReplayTools = "recorded"
    directory: str | None = None
    """Where live tools work, absolute."""
    doubt: Divergence | None = None
    """Where the recording contradicts itself; told where the replay does not part from it before."""
    given: GivenSources = msgspec.field(default_factory=GivenSources)
    """What the rows leave to the record, with recorded tools."""
    show: Callable[[ReplayReport], str]
    """The report as it is printed."""


REPLAY: ServiceKey[ReplayTask] = ServiceKey("replay")
"""Provided by the launcher for `dsh replay`, and by nobody else."""
