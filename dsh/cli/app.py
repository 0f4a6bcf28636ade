"""The launcher's help and its commands, in Typer: signatures only, each body is imported when it runs.

`dsh run` and the launcher's flags never come here (`argv.py` reads them); they stand here for the help.
"""

import re
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from dsh.cli.argv import DEFAULT_PROFILE, did_you_mean
from dsh.cli.stream import unwritable
from dsh.errors import UsageError

app = typer.Typer(
    name="dsh",
    help="Run an AI coding agent built from plugins.",
    epilog='First try, without a key: dsh --profile demo "Run: echo hello"',
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
sessions = typer.Typer(help="Look at session logs, share them, tidy them.", rich_markup_mode=None)
app.add_typer(sessions, name="sessions")
plugin = typer.Typer(rich_markup_mode=None)
app.add_typer(plugin, name="plugin")

ProfileOption = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="The profile they belong to; required.")
]
ManagerOption = Annotated[
    str | None, typer.Option("--manager", metavar="pip|uv", help="Use this one; by default pip, else uv.")
]


@app.callback()
def launcher(
    profile: Annotated[
        str, typer.Option(metavar="NAME", help="Boot this profile; its app gets the rest.")
    ] = "",
    patch: Annotated[
        list[str], typer.Option(metavar="FILE", help="Apply this patch file as well; repeatable.")
    ] = [],  # noqa: B006 -- Typer copies it
    cwd: Annotated[str, typer.Option("--cwd", "-C", metavar="DIR", help="Work in DIR.")] = "",
    dump_config: Annotated[
        bool, typer.Option("--dump-config", help="Print the composed rows and where they come from.")
    ] = False,
    dump_default_config: Annotated[
        bool, typer.Option("--dump-default-config", help="The same of the bundles alone.")
    ] = False,
    lock: Annotated[
        bool, typer.Option("--lock", help="With --dump-config: print a lock with digest and versions.")
    ] = False,
    locked: Annotated[
        str, typer.Option(metavar="FILE", help="Refuse to run or dump anything but what this lock holds.")
    ] = "",
    version: Annotated[bool, typer.Option("--version", "-V", help="Print the version.")] = False,
) -> None:
    """What stands before a command or the app's own arguments."""


@app.command("run", add_help_option=False)
def run_task(words: Annotated[list[str], typer.Argument(metavar="[FLAGS] TASK...")]) -> None:
    """Do one task and print the answer (dsh run --help)."""


@app.command("explain")
def explain(
    row: Annotated[str, typer.Argument(metavar="[ROW]", help="The id of one row.")] = "",
    profile: Annotated[str, typer.Option(metavar="NAME", help="Explain this profile.")] = DEFAULT_PROFILE,
    patch: Annotated[
        list[str], typer.Option(metavar="FILE", help="Apply this patch file as well; repeatable.")
    ] = [],  # noqa: B006 -- Typer copies it
    cwd: Annotated[str, typer.Option("--cwd", "-C", metavar="DIR", help="As if started in DIR.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show where every row and value comes from, and who provides what to whom. Starts nothing."""
    from dsh.cli.explain import explained

    raise typer.Exit(explained(profile, patch, cwd, row, is_json=as_json))


@app.command("doctor")
def doctor(
    profile: Annotated[str, typer.Option(metavar="NAME", help="Examine for this profile.")] = DEFAULT_PROFILE,
    patch: Annotated[
        list[str], typer.Option(metavar="FILE", help="Apply this patch file as well; repeatable.")
    ] = [],  # noqa: B006 -- Typer copies it
    cwd: Annotated[str, typer.Option("--cwd", "-C", metavar="DIR", help="As if started in DIR.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Tell what this machine lacks for a profile: which sandbox works, and why not. Changes nothing."""
    from dsh.cli.doctor.command import examined

    raise typer.Exit(examined(profile, patch, cwd, is_json=as_json))


@app.command("replay")
def replay(
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="An id, the start of one, `last`, or a log file.")
    ],
    tools: Annotated[
        str, typer.Option(metavar="recorded|live", help="Results from the log, or tools that really run.")
    ] = "recorded",
    directory: Annotated[
        str, typer.Option("--in", metavar="DIR", help="Where live tools work; required for them.")
    ] = "",
    profile: Annotated[
        str, typer.Option(metavar="NAME", help="Run it on the rows of this profile.")
    ] = DEFAULT_PROFILE,
    patch: Annotated[
        list[str], typer.Option(metavar="FILE", help="Apply this patch file as well; repeatable.")
    ] = [],  # noqa: B006 -- Typer copies it
    root: Annotated[
        str, typer.Option(metavar="PATH", help="A folder of logs or a database, not the profile's.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run a recorded session again with the recorded model, and show where it parts from the record."""
    from dsh.cli.replay import ReplayWish, replayed

    wish = ReplayWish(session, tools, directory, profile, tuple(patch), root, as_json)
    raise typer.Exit(replayed(wish))


@sessions.callback()
def stored_sessions() -> None:
    """Its commands are in `dsh.cli.sessions.commands`, which only they load."""


@plugin.callback()
def plugin_profile(ctx: typer.Context, profile: ProfileOption = None) -> None:
    """Install packages of plugins and bundles for a profile."""
    ctx.obj = profile


def _named(ctx: typer.Context, profile: str | None, words: Sequence[str] = ()) -> str:
    """The profile that a `dsh plugin` is about: named after the word `add`, `remove` or `list`, or before."""
    chosen: str | None = ctx.obj if profile is None else profile
    if chosen is None:
        flags = (word.partition("=")[0] for word in words if word.startswith("--"))
        slip = next((flag for flag in flags if did_you_mean(flag, ("--profile",))), None)
        wrong = f", found {slip}" if slip is not None else ""
        raise UsageError(
            f"--profile NAME is required{wrong}", hint=f"dsh plugin {ctx.info_name} --profile NAME"
        )
    return chosen


@plugin.command("add", context_settings={"ignore_unknown_options": True})
def plugin_add(
    ctx: typer.Context,
    profile: ProfileOption = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PKG...]",
            help="Requirements and options of the package manager; without any: what profile.yml requires.",
        ),
    ] = None,
    manager: ManagerOption = None,
) -> None:
    """Install packages into the profile's own folder (-U: newer versions too)."""
    from dsh.cli.plugin import add as body

    raise typer.Exit(body(_named(ctx, profile, words or ()), words or [], manager))


@plugin.command("remove")
def plugin_remove(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="PKG...", help="Names of packages.")],
    profile: ProfileOption = None,
    manager: ManagerOption = None,
) -> None:
    """Take packages out, with those that only they needed."""
    from dsh.cli.plugin import remove as body

    raise typer.Exit(body(_named(ctx, profile), names, manager))


@plugin.command("list")
def plugin_list(
    ctx: typer.Context,
    profile: ProfileOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the packages of a profile, with their bundles and plugins."""
    from dsh.cli.plugin_list import show as body

    raise typer.Exit(body(_named(ctx, profile), as_json))


def run(words: Sequence[str]) -> int:
    """Run one command; answers the exit code.

    Raises:
        UsageError: unknown command, option or missing argument.
        OutputError: standard output cannot be written.
    """
    if words and words[0] == "sessions":
        from dsh.cli.sessions.commands import add_commands

        add_commands(sessions)
    try:
        answer = app(list(words), prog_name="dsh", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit:  # how the library leaves when nobody reads its output
        raise unwritable(BrokenPipeError()) from None
    except OSError as error:
        raise unwritable(error) from error
    except Exception as error:
        message = getattr(error, "format_message", None)  # the base class of Typer's own errors is private
        if message is None:
            raise
        text, hint = _told(str(message()), error)
        path = getattr(getattr(error, "ctx", None), "command_path", None) or f"dsh {words[0]}"
        raise UsageError(text, hint=f"{hint}{path} --help") from error
    return answer if isinstance(answer, int) else 0


_OTHER_WORDS = {"install": "add", "upgrade": "add", "uninstall": "remove", "delete": "remove", "show": "list"}
"""What other package managers call the commands."""


def _told(text: str, error: Exception) -> tuple[str, str]:
    """An error of the library in a sentence, and the beginning of a hint: the word that was meant."""
    command = getattr(getattr(error, "ctx", None), "command", None)
    commands: dict[str, object] = getattr(command, "commands", {})
    if found := re.match(r"No such command '(.*?)'", text):
        others = [word for word, meant in _OTHER_WORDS.items() if meant in commands]
        hint = did_you_mean(found[1], [*others, *commands])
        for other in others:
            hint = hint.replace(repr(other), repr(_OTHER_WORDS[other]))
        return found[0], hint
    if commands and text == "Missing command.":
        return f"Missing command: {', '.join(commands)}", ""
    if found := re.match(r"No such option: (\S+)", text):
        known = [flag for param in getattr(command, "params", ()) for flag in param.opts]
        return found[0], did_you_mean(found[1].partition("=")[0], known)
    return text.removesuffix(".").replace("a valid int range", "a whole number"), ""
