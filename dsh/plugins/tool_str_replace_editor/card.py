"""What displays show of a call of the editor. Pure; imported where a display asks."""

from dsh.tools.definition import Args
from dsh.tools.presentation import CallCard, Diff, DiffCall, GenericCall, Location


def call(args: Args) -> CallCard:
    """The change as it is asked for; a view is just named."""
    path, command = args["path"], args["command"]
    if command == "view":
        line = next(iter(args.get("view_range") or ()), None)
        place = Location(path=path, line=line if line is not None and line > 0 else None)
        return GenericCall(title=f"View {path}", kind="read", locations=(place,))
    old = args.get("old_str") if command == "str_replace" else None
    new = args.get("file_text" if command == "create" else "new_str") or ""
    verb = {"create": "Create", "insert": "Insert into"}.get(command, "Edit")
    diff = Diff(path=path, old_text=old, new_text=new)
    return DiffCall(title=f"{verb} {path}", diffs=(diff,), locations=(Location(path=path),))
