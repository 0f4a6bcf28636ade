"""The check of a log that opens: what its events say of each other, held together in one pass.

That a log opens proves its format, its sequence and the rules of its surface. Here follow what no reader
needs and a person wants to know: whether calls and results are pairs, whether the messages are what was
streamed, whether each request can be computed again.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from dsh.session.chunk_run import ChunkRun, Entry
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from dsh.session.irregular import MAX_IRREGULARITIES
from dsh.session.verify.bracket import Brackets, Compactions, InboxSplices
from dsh.session.verify.calls import Calls
from dsh.session.verify.finding import Finding, Findings
from dsh.session.verify.plugin_payload import PluginPayloads
from dsh.session.verify.reply import Replies
from dsh.session.verify.request import Requests
from dsh.session.verify.usage import Usages


class ReadableLog(Protocol):
    """What is asked of a log: a session is one, and so is the view of a stored log."""

    @property
    def header(self) -> SessionHeader: ...
    @property
    def length(self) -> int: ...
    @property
    def irregularities(self) -> Sequence[tuple[int, str]]: ...
    def event(self, seq: int) -> SessionEvent: ...
    def last(self, kind: str) -> SessionEvent | None: ...
    def walk(self) -> Iterator[Entry]: ...


class Verdict(Struct, frozen=True):
    """What the check of one log came to."""

    findings: tuple[Finding, ...]
    """In the order of the log."""
    calls: int
    """Tool calls that were paired with their results."""
    replies: int
    """Messages that were compared with the pieces they were made of."""
    digests: int
    """Recorded request digests that were computed again."""


def verify(log: ReadableLog) -> Verdict:
    """Everything that is not as it should be. Costs one pass; nothing is changed.

    A log without any turn is a recording of a model's replies, and is told as such: what stands there
    outside of turns is no error.
    """
    findings = Findings()
    _check_header(log, findings)
    _check_places(log, findings)
    calls, replies = Calls(findings), Replies(findings)
    requests = Requests(findings, log.event)
    brackets, compactions = Brackets(findings), Compactions(findings, log.event)
    inbox = InboxSplices(findings, log.header.seed_length or 0)
    payloads, usages = PluginPayloads(findings), Usages(findings)
    for entry in log.walk():
        replies.see(entry)
        if not isinstance(entry, ChunkRun):
            calls.see(entry)
            requests.see(entry)
            brackets.see(entry)
            compactions.see(entry)
            inbox.see(entry)
            payloads.see(entry)
            usages.see(entry)
    calls.finish()
    replies.finish()
    brackets.finish()
    compactions.finish()
    return Verdict(tuple(findings.all()), calls.checked, replies.checked, requests.checked)


def _check_header(log: ReadableLog, findings: Findings) -> None:
    seeded = log.header.seed_length or 0
    if seeded > log.length:
        said = f"the header says that {seeded} events come from the parent, the log has {log.length}"
        findings.error("SEED_INCOMPLETE", None, said)
    if seeded and log.header.parent_session is None:
        findings.error("SEED_INCOMPLETE", None, "the header counts events of a parent and names none")


def _check_places(log: ReadableLog, findings: Findings) -> None:
    """What was noted when the log was read: events outside of the turn or step they name, odd payloads."""
    odd = log.irregularities
    if not odd:
        return
    if log.last("turn/start") is None:
        seq, said = odd[0]
        findings.warning("RECORDING", seq, f"no turn was ever started, it is a recording of replies: {said}")
        return
    for seq, said in odd:
        findings.error("IRREGULAR", seq, said)
    if len(odd) >= MAX_IRREGULARITIES:
        findings.error("IRREGULAR", None, f"only the first {MAX_IRREGULARITIES} of these are known")
