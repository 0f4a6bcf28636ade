"""How the outcome of a replay is told, to people and to programs."""

import msgspec

from dsh.capabilities.replay import ReplayReport
from dsh.cli.sessions.output import line
from dsh.masking import masked
from dsh.session.replay.cursor import Counts, Divergence
from dsh.session.value import encode

SHOWN = 300
"""Characters of a value that are shown."""


def as_json(report: ReplayReport) -> str:
    """One object on one line; `divergence` is null where there is none."""
    return encode(msgspec.to_builtins(report)).decode() + "\n"


def as_text(report: ReplayReport) -> str:
    """What was compared, or where the replay parts; then the notes."""
    counts = _counted(report.compared)
    if report.divergence is None:
        out = [f"{report.session} replays as recorded: {counts}"]
    else:
        out = [f"{report.session} diverges {_where(report.divergence)}: {report.divergence.problem}"]
        out += _sides(report.divergence)
        out.append(f"  equal before: {counts}")
    out += [f"note: {note}" for note in report.notes]
    return "".join(line(one) + "\n" for one in out)


def _counted(counts: Counts) -> str:
    told = [
        (counts.events, "event"),
        (counts.turns, "turn"),
        (counts.steps, "step"),
        (counts.requests, "model reply"),
        (counts.tool_results, "tool result"),
    ]
    return ", ".join(f"{count} {_plural(noun, count)}" for count, noun in told)


def _plural(noun: str, count: int) -> str:
    if count == 1:
        return noun
    return noun.removesuffix("y") + "ies" if noun.endswith("y") else f"{noun}s"


def _where(divergence: Divergence) -> str:
    places = (("seq", divergence.seq), ("turn", divergence.turn), ("step", divergence.step))
    known = [f"{name} {value}" for name, value in places if value is not None]
    return f"at {', '.join(known)}" if known else "at its end"


def _sides(divergence: Divergence) -> list[str]:
    if divergence.path is None:
        sides = (("recorded", divergence.recorded), ("replayed", divergence.replayed))
        return [f"  {side}: {_shown(value)}" for side, value in sides if value is not None]
    recorded, replayed = _around(divergence.recorded, divergence.replayed)
    return [f"  in {divergence.path}", f"  recorded: {recorded}", f"  replayed: {replayed}"]


def _around(recorded: object, replayed: object) -> tuple[str, str]:
    """Both values, long texts from a little before the place where they part."""
    if not (isinstance(recorded, str) and isinstance(replayed, str)):
        return _shown(recorded), _shown(replayed)
    start = 0
    while start < min(len(recorded), len(replayed)) and recorded[start] == replayed[start]:
        start += 1
    start = max(start - 40, 0)
    return _shown(recorded[start:], cut=start > 0), _shown(replayed[start:], cut=start > 0)


def _shown(value: object, *, cut: bool = False) -> str:
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else encode(msgspec.to_builtins(value)).decode()
    text = masked(repr(text) if isinstance(value, str) else text)
    if len(text) > SHOWN:
        text = text[:SHOWN] + " …"
    return f"… {text}" if cut else text
