"""`dsh sessions …` in Typer: signatures only, each body is imported when it runs."""

from typing import Annotated, Literal

import typer

from dsh.cli.sessions.place import Place

Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="An id, the start of one, `last`, or a log file.")
]
StoredTarget = Annotated[
    str, typer.Argument(metavar="ID", help="The id of a stored session, its start, or `last`.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Root = Annotated[
    str,
    typer.Option("--root", metavar="PATH", help="A folder of logs or a SQLite database, not the profile's."),
]
Profile = Annotated[
    str, typer.Option("--profile", metavar="NAME", help="Where this profile keeps its sessions.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Everywhere = Annotated[bool, typer.Option("--all", help="Sessions of every directory, not of this one.")]
Directory = Annotated[
    str, typer.Option("--cwd", "-C", metavar="DIR", help="Sessions of DIR, which need not exist any more.")
]


def list_(
    everywhere: Everywhere = False,
    cwd: Directory = "",
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, metavar="N", help="The newest N only.")
    ] = None,
    as_json: AsJson = False,
    root: Root = "",
    profile: Profile = "",
) -> None:
    """List the sessions of this directory, the last written first. Reads headers only."""
    from dsh.cli.sessions.listing import show as body
    from dsh.cli.sessions.scope import Scope

    scope = Scope.of(everywhere=everywhere, cwd=cwd)
    raise typer.Exit(body(Place(root, profile), scope, limit=limit or 0, as_json=as_json))


def show(
    target: Target,
    chunks: Annotated[
        bool, typer.Option("--chunks", help="Also each piece of each reply, as it was streamed.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="The stored text as it is, also of a damaged log.")
    ] = False,
    root: Root = "",
    profile: Profile = "",
) -> None:
    """Show the conversation and the tool calls as a person reads them."""
    from dsh.cli.sessions.show import show as body

    raise typer.Exit(body(target, Place(root, profile), chunks=chunks, raw=raw))


def inspect(target: Target, as_json: AsJson = False, root: Root = "", profile: Profile = "") -> None:
    """Show what a log holds, repaired in memory; the file is only read."""
    from dsh.cli.sessions.inspect import inspect as body

    raise typer.Exit(body(target, Place(root, profile), as_json=as_json))


def stats(
    target: Target,
    rows: Annotated[
        bool, typer.Option("--rows", help="The storage instead: rows, packed rows, what they save.")
    ] = False,
    requests: Annotated[
        bool, typer.Option("--requests", help="Also each model request: its tokens, its cost.")
    ] = False,
    as_json: AsJson = False,
    root: Root = "",
    profile: Profile = "",
) -> None:
    """Show tokens, times, tools, and a timeline of the steps."""
    from dsh.cli.sessions.stats import stats as body

    raise typer.Exit(body(target, Place(root, profile), rows=rows, requests=requests, as_json=as_json))


def verify(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TARGET...]", help="Ids, their starts, `last`, or log files."),
    ] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="Every stored session.")] = False,
    as_json: AsJson = False,
    root: Root = "",
    profile: Profile = "",
) -> None:
    """Check logs beyond what opening them takes, and say what is wrong where."""
    from dsh.cli.sessions.verify import verify as body

    raise typer.Exit(body(targets or [], Place(root, profile), everywhere=everywhere, as_json=as_json))


def export(
    target: Target,
    form: Annotated[
        Literal["jsonl", "markdown", "html"] | None,
        typer.Option("--format", "-f", help="What to write; else as FILE is called, else jsonl."),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="A new file, not standard output.")
    ] = "",
    root: Root = "",
    profile: Profile = "",
) -> None:
    """Write a session as JSON lines, Markdown or one HTML page."""
    from dsh.cli.sessions.export import export as body

    raise typer.Exit(body(target, Place(root, profile), form=form, output=output))


def fork(
    target: StoredTarget,
    at: Annotated[
        int | None, typer.Option("--at", min=1, metavar="TURN", help="With the turns up to this one only.")
    ] = None,
    root: Root = "",
    profile: Profile = "",
) -> None:
    """Store a new session that begins with another one's turns; print its id."""
    from dsh.cli.sessions.fork import fork as body

    raise typer.Exit(body(target, Place(root, profile), at=at or 0))


def delete(
    targets: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids, their starts, or `last`.")],
    yes: Yes = False,
    root: Root = "",
    profile: Profile = "",
) -> None:
    """Delete stored sessions with all that lies beside their logs."""
    from dsh.cli.sessions.delete import delete as body

    raise typer.Exit(body(targets, Place(root, profile), yes=yes))


def prune(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Not written for so long: 30d, 12h, 2w.")
    ],
    everywhere: Everywhere = False,
    cwd: Directory = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    yes: Yes = False,
    root: Root = "",
    profile: Profile = "",
) -> None:
    """Delete sessions of this directory that were not written for long."""
    from dsh.cli.sessions.delete import prune as body
    from dsh.cli.sessions.scope import Scope

    scope = Scope.of(everywhere=everywhere, cwd=cwd)
    raise typer.Exit(body(older_than, Place(root, profile), scope, dry_run=dry_run, yes=yes))


def pack(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID...]", help="Ids, their starts, or `last`; else all of here."),
    ] = None,
    everywhere: Everywhere = False,
    cwd: Directory = "",
    root: Root = "",
    profile: Profile = "",
) -> None:
    """Store sessions in less space; what they say stays the same."""
    from dsh.cli.sessions.pack import pack as body
    from dsh.cli.sessions.scope import Scope

    scope = Scope.of(everywhere=everywhere, cwd=cwd, ids=targets)
    raise typer.Exit(body(targets or [], Place(root, profile), scope))


def add_commands(app: typer.Typer) -> None:
    """Register all of them, in the order of the help; done once."""
    if app.registered_commands:
        return
    app.command("list")(list_)
    for command in (show, inspect, stats, verify, export, fork, delete, prune, pack):
        app.command(command.__name__)(command)
