"""What displays show of `read`, `write` and `edit`. Pure; imported where a display asks."""

from itertools import pairwise

from dsh.tools.definition import Args
from dsh.tools.presentation import (
    Diff,
    DiffCall,
    DiffResult,
    GenericCall,
    Location,
    Outcome,
    ReadResult,
    from_meta,
)


def read_call(args: Args) -> GenericCall:
    """The file, at the line where reading starts."""
    path, offset = args["file_path"], args.get("offset")
    line = int(offset) if offset is not None and offset >= 1 else None
    return GenericCall(title=f"Read {path}", kind="read", locations=(Location(path=path, line=line),))


def read_result(args: Args, outcome: Outcome) -> ReadResult | None:
    """The window that was read. None where `meta` holds no window that can be one."""
    card = None if outcome.is_error else from_meta(ReadResult, outcome.meta)
    if card is None or card.offset < 1:
        return None
    numbers = [card.offset - 1, *(line.number for line in card.lines)]
    rises = all(before < after for before, after in pairwise(numbers))
    return card if rises and (not card.lines or numbers[-1] <= card.total_lines) else None


def write_call(args: Args) -> DiffCall:
    """The whole new content; what was there before is not known from the call."""
    return _change("Write", args["file_path"], None, args["content"])


def edit_call(args: Args) -> DiffCall:
    """The replacement as it is asked for."""
    return _change("Edit", args["file_path"], args["old_string"], args["new_string"])


def change_result(args: Args, outcome: Outcome) -> DiffResult | None:
    """The hunks that were changed; none where a new file was made."""
    return None if outcome.is_error else from_meta(DiffResult, outcome.meta)


def _change(verb: str, path: str, old: str | None, new: str) -> DiffCall:
    diff = Diff(path=path, old_text=old, new_text=new)
    return DiffCall(title=f"{verb} {path}", diffs=(diff,), locations=(Location(path=path),))
