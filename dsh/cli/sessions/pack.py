"""`dsh sessions pack`: sessions that nobody has open are stored anew in fewer, larger pieces.

What they say stays the same to the last event; a log that cannot be packed is told and stops no other.
"""

from collections.abc import Collection, Sequence
from typing import Any

from dsh.cli.sessions.described import size_text
from dsh.cli.sessions.event_types import know_plugin_types
from dsh.cli.sessions.output import line, write
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.reading import failed
from dsh.cli.sessions.scope import Scope
from dsh.cli.sessions.several import listed, named, told_problems
from dsh.cli.sessions.whereabouts import open_place
from dsh.cli.stream import notice
from dsh.errors import DshError
from dsh.persistence.backend import Backend, Packed
from dsh.persistence.error import PackingUnsupported


def pack(targets: Sequence[str], place: Place, scope: Scope) -> int:
    """Pack the sessions that are named, else those in the scope; answers the exit code.

    It is 1 if one of them could not be packed.

    Raises:
        UsageError, CompositionError: there is no such place.
    """
    backend = open_place(place)
    found: Collection[str]
    found, code = named(targets, backend) if targets else _listed(backend, scope)
    know_plugin_types()
    sums = [0, 0]
    for session_id in found:
        try:
            packed = backend.pack(session_id)
        except PackingUnsupported as error:
            return failed(error)
        except (DshError, OSError) as error:
            code = failed(error)
            continue
        if packed is not None:
            write(f"{line(session_id)}  {_saved(packed)}\n")
            sums = [sums[0] + packed.before, sums[1] + packed.after]
    if not found and code == 0:
        notice("no sessions to pack")
    elif len(found) > 1:
        write(f"together  {_saved(Packed(*sums))}\n")
    return code


def _saved(packed: Packed) -> str:
    if packed.after >= packed.before:
        return f"{size_text(packed.before)}, nothing to save"
    share = 1 - packed.after / packed.before
    return f"{size_text(packed.before)} -> {size_text(packed.after)}, {share:.0%} saved"


def _listed(backend: Backend[Any], scope: Scope) -> tuple[list[str], int]:
    """The ids of what is in a scope, and the exit code."""
    listing = listed(backend)
    if listing is None:
        return [], 1
    told_problems(listing)
    return [stored.header.id for stored in scope.chosen(listing)], 0
