"""One call of a model as a script knows it: what is answered, and where it was recorded."""

from typing import Literal, TypeAlias

import msgspec

from dsh.llm.adapter import ModelInfo
from dsh.llm.request import Purpose
from dsh.llm.script.entry import ScriptEntry

Cut: TypeAlias = Literal["cancelled", "crashed"]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One model call. What a script file says has only an entry; the rest comes from a log."""

    entry: ScriptEntry
    seq: int | None = None
    """Of the log's row it begins with: its first chunk, else the row that says that it was made."""
    turn: int | None = None
    step: int | None = None
    attempt: int | None = None
    """Which attempt of its step it is, from 1."""
    purpose: Purpose | Literal["turn"] | None = None
    """What the call was for; None fits every request."""
    model: ModelInfo | None = None
    """Route and model it was made on, and what the adapter of that time knew of it."""
    cut: Cut | None = None
    """Its stream has no end in the log: the caller cancelled it, or the process died. The entry hangs."""
    is_needed: bool = True
    """False: the log does not tell whether this call was made at all; it is passed over where nobody makes
    it."""
