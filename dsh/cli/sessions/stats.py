"""`dsh sessions stats`: what a session used, how long it took, and when; or what its storage consists of."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dsh.capabilities.model_facts import SETTINGS_FILE, is_route, price_example
from dsh.cli.columns import padded, width
from dsh.cli.report import describe
from dsh.cli.sessions import requests as one_by_one
from dsh.cli.sessions import storage
from dsh.cli.sessions.output import line, write
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.reading import failed, opened
from dsh.cli.sessions.requests import KINDS, usd
from dsh.cli.sessions.sink import to_output
from dsh.cli.sessions.target import find_log
from dsh.cli.sessions.terminal import Look, look_of_output
from dsh.cli.sessions.timeline import TurnTimes, drawn, duration, timeline
from dsh.cli.stream import notice
from dsh.composition.home import home_path
from dsh.errors import CompositionError, DshError, UsageError
from dsh.masking import masked
from dsh.persistence.view import LogView
from dsh.session.projection.price import Price
from dsh.session.projection.requests import requests as requests_of
from dsh.session.projection.stats import STATS, view
from dsh.session.projection.unit import fold
from dsh.session.value import encode

SHORTEST_MS = 100
"""From this writing time on a speed says something."""


def stats(target: str, place: Place, *, rows: bool, requests: bool, as_json: bool) -> int:
    """Print the figures of one session. Answers the exit code; a log that cannot be opened is 1.

    Args:
        rows: those of its storage instead.
        requests: each model request too.

    Raises:
        CompositionError, UsageError: of the place, not of the log.
        OSError: standard output cannot be written.
    """
    if rows:
        return _storage(target, place, as_json=as_json)
    found = opened(target, place)
    if found is None:
        return 1
    log, session, is_running = found
    walk = session.stored if is_running else session.walk
    price_of = _prices().get
    each = one_by_one.as_json(requests_of(walk()), price_of)
    figures = one_by_one.with_costs(view(fold(STATS, walk())), each)
    turns = timeline(walk())
    if as_json:
        shown = {"session": session.header.id, "log": log.place, "stats": figures, "timeline": turns}
        if requests:
            shown["requests"] = each
        write(encode(shown) + b"\n")
        return 0
    look = look_of_output()
    to_output(_facts(_head(session, log.place, figures), look))
    to_output(_tables(figures, look))
    if requests:
        to_output(_each(each, look))
    to_output(_timeline(turns, look))
    return 0


def _storage(target: str, place: Place, *, as_json: bool) -> int:
    try:
        log = find_log(target, place)
        figures = log.figures()
    except (CompositionError, UsageError):
        raise
    except (DshError, OSError) as error:
        return failed(error)
    if as_json:
        write(encode({"log": log.place, **storage.as_json(figures)}) + b"\n")
    else:
        to_output(_facts([("log", log.place), *storage.in_words(figures)], look_of_output()))
    return 0


def _prices() -> Mapping[str, Price]:
    """What the settings say of prices. Settings that cannot be read are told, and then there are none."""
    home = home_path()
    if not os.path.lexists(home / SETTINGS_FILE):
        return {}
    from dsh.capabilities.prices import read_prices  # the reader of YAML comes along

    try:
        return read_prices(home)
    except DshError as error:
        notice(f"dsh: no prices: {describe(error)}")
        return {}


def _head(session: LogView, place: str, figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "session", session.header.id
    yield "log", place
    turns, steps = figures["turns"], figures["steps"]
    retries = f", retries {figures['retries']:,}" if figures["retries"] else ""
    yield "work", f"turns {turns:,}, steps {steps:,}, requests {figures['requests']:,}{retries}"
    yield "time", f"model {duration(figures['llmMs'])}, tools {duration(figures['toolMs'])}"
    if figures["ttftSteps"]:
        first = duration(figures["ttftMs"] / figures["ttftSteps"])
        speed = ""
        if figures["decodeMs"] >= SHORTEST_MS:
            speed = f", then {figures['decodeTokens'] * 1000 / figures['decodeMs']:.1f} tokens a second"
        yield "speed", f"first token after {first} on average{speed}"
    yield "cost", _cost_in_words(figures)


def _cost_in_words(figures: Mapping[str, Any]) -> str:
    if not figures["tokens"]:
        return "no tokens were reported"
    if figures["costUsd"] is not None:
        return usd(figures["costUsd"])
    unpriced = [route for route, used in figures["tokens"].items() if used["costUsd"] is None]
    routes = ", ".join(map(line, unpriced))
    cost = f"not known: there is no price of {routes}"
    if figures["knownCostUsd"]:
        cost = f"{usd(figures['knownCostUsd'])} and more: there are requests without a price of {routes}"
    sayable = next(filter(is_route, unpriced), None)
    if sayable is None:
        return cost
    return f"{cost}; say one in {SETTINGS_FILE}, such as {line(price_example(sayable))}"


def _facts(facts: Sequence[tuple[str, str]] | Iterator[tuple[str, str]], look: Look) -> Iterator[str]:
    for label, value in facts:
        yield f"{look.styled('dim', padded(label, 8))}  {line(masked(value))}\n"


def _tables(figures: Mapping[str, Any], look: Look) -> Iterator[str]:
    tokens = figures["tokens"]
    if tokens:
        kinds = [kind for kind in KINDS if any(used[kind] for used in tokens.values())]
        table = [["tokens by route", *(KINDS[kind] for kind in kinds), "cost"]]
        for route, used in tokens.items():
            cost = "-" if used["costUsd"] is None else usd(used["costUsd"])
            table.append([line(masked(route)), *(f"{used[kind]:,}" for kind in kinds), cost])
        yield "\n"
        yield from _table(table, look)
    if figures["tools"]:
        table = [["tool", "calls", "errors", "time"]]
        by_time = sorted(figures["tools"].items(), key=lambda item: -item[1]["ms"])
        for name, done in by_time:
            counts = f"{done['calls']:,}", f"{done['errors']:,}"
            table.append([line(masked(name)), *counts, duration(done["ms"])])
        yield "\n"
        yield from _table(table, look)


def _each(requests: Sequence[Mapping[str, Any]], look: Look) -> Iterator[str]:
    if requests:
        yield "\n"
        yield from _table(one_by_one.table(requests), look, names=2)


def _table(table: list[list[str]], look: Look, *, names: int = 1) -> Iterator[str]:
    """Names on the left, figures under each other on the right."""
    widths = [max(map(width, column)) for column in zip(*table, strict=True)]
    for position, row in enumerate(table):
        columns = list(zip(row, widths, strict=True))
        cells = [padded(cell, size) for cell, size in columns[:names]]
        cells += [" " * (size - width(cell)) + cell for cell, size in columns[names:]]
        text = "  ".join(cells).rstrip()
        yield f"{look.styled('head', text) if position == 0 else text}\n"


def _timeline(turns: Sequence[TurnTimes], look: Look) -> Iterator[str]:
    if turns:
        yield "\n"
        yield from drawn(turns, look)
