"""The command line of the headless app: its grammar, and the service that carries what was read.

The grammar is a pure function, because two parties need it: the row that publishes the options, and the
launcher, which must know the working directory before anything else is read (`design.md` §10.11).
"""

from collections.abc import Sequence

import msgspec

from dsh.errors import UsageError
from dsh.kernel import ServiceKey
from dsh.unicode import from_system

EXAMPLE = 'dsh run "fix the failing test"'
USAGE = f"""\
Usage: dsh run [FLAGS] TASK...
       dsh --profile headless [FLAGS] [--] TASK...

Do one task in the current directory and print the answer. The words of TASK are joined by blanks.

Flags:
  -C, --cwd DIR   work in DIR instead
  -h, --help      show this text
  --              what follows is the task, even if it starts with a dash

Exit code: 0 done, 1 the model or the agent failed, 2 wrong command line, 3 wrong composition,
4 key missing or refused, 5 a limit reached, 8 session not stored, 124 out of time, 130 interrupted,
143 terminated.

Example: {EXAMPLE}
"""


class HeadlessOptions(msgspec.Struct, frozen=True, rename="camel"):
    """What the command line of the headless app says; read in expressions as `svc.headlessStartup`."""

    task: str
    """The words joined with one blank each; never blank."""


class HeadlessArguments(msgspec.Struct, frozen=True):
    """What was read: options, or the wish for help."""

    options: HeadlessOptions | None
    cwd: str | None = None
    """`-C` among the app's flags. The launcher has acted on it by the time the app reads it."""


HEADLESS_STARTUP: ServiceKey[HeadlessOptions] = ServiceKey("headlessStartup")


def parse_arguments(args: Sequence[str]) -> HeadlessArguments:
    """Read the app's arguments.

    Raises:
        UsageError: an unknown flag, a flag without its value, no task, or a blank one.
    """
    words: list[str] = []
    cwd: str | None = None
    rest = iter(args)
    for word in rest:
        flag, equals, value = word.partition("=")
        if word == "--":
            words.extend(rest)
        elif word in ("-h", "--help"):
            return HeadlessArguments(None, cwd)
        elif word in ("-C", "--cwd") or (flag == "--cwd" and equals):
            cwd = value if equals else next(rest, "")
            if not cwd:
                raise UsageError(f"{flag} needs a directory")
        elif word.startswith("-"):
            raise UsageError(
                f"unknown option {from_system(flag)!r}",
                hint=f"{_meant(flag)}a task that starts with a dash: dsh run -- …",
            )
        else:
            words.append(word)
    task = from_system(" ".join(words))
    if not task.strip():
        raise UsageError(f"a task is required, for example: {EXAMPLE}")
    return HeadlessArguments(HeadlessOptions(task), cwd)


def requested_directory(args: Sequence[str]) -> str | None:
    """`-C` among the app's arguments, for the launcher; a line that cannot be read has none."""
    try:
        return parse_arguments(args).cwd
    except UsageError:
        return None


_BEFORE_THE_TASK = ("--profile", "--patch", "--locked", "--dump-config", "--dump-default-config", "--version")
"""Flags that the launcher reads; a misspelt one ends up here."""


def _meant(flag: str) -> str:
    from dsh.composition.grammar import closest

    found = closest(flag, ["--cwd", "--help", *_BEFORE_THE_TASK])
    return f"did you mean {found[0]!r}? " if found else ""
