"""Splits the command line by hand, before anything is loaded: the launcher's flags, then the app's words.

The first word that is no launcher flag starts the app's arguments, which are kept as they are
(`spec/composition.md` §9). A command of the launcher is one only as the very first word.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from dsh.errors import UsageError

Action = Literal["boot", "dump", "dump-default", "version", "help", "command"]

COMMANDS = ("doctor", "explain", "plugin", "replay", "sessions")
"""What stands behind the first word as a command of its own; `run` is rewritten instead."""
DEFAULT_PROFILE = "headless"
"""What `dsh run` starts and what is dumped where no profile is named."""

_WITH_VALUE = {
    "--profile": "--profile NAME",
    "--patch": "--patch FILE",
    "--locked": "--locked FILE",
    "--cwd": "--cwd DIR",
    "-C": "-C DIR",
}
_SWITCHES = {
    "--dump-config": "dump",
    "--dump-default-config": "dump-default",
    "--lock": "lock",
    "--version": "version",
    "-V": "version",
    "--help": "help",
    "-h": "help",
}
_TASK = 'a task is given to run: dsh run "fix the failing test"'
_HELP = "dsh --help lists the options"
LONGEST_WORD = 100
"""Longer ones are texts: comparing them takes the square of their length."""


class Invocation(NamedTuple):
    """What one command line asks for."""

    action: Action
    profile: str = ""
    patches: tuple[str, ...] = ()
    """As written; relative ones are meant from the invoking directory."""
    cwd: str | None = None
    rest: tuple[str, ...] = ()
    """The app's arguments (`boot`), or the command and its words (`command`)."""
    locked: str | None = None
    """The lock that the composition has to keep to."""
    is_lock: bool = False
    """The dump is to be printed as a lock."""


def parse(argv: Sequence[str]) -> Invocation:
    """Read the words after the program's name.

    Raises:
        UsageError: a flag without its value, flags that do not fit together, no profile, an unknown command.
    """
    if argv and argv[0] in COMMANDS:
        return Invocation("command", rest=tuple(argv))
    is_run = bool(argv) and argv[0] == "run"
    words = ["--profile", DEFAULT_PROFILE, *argv[1:]] if is_run else list(argv)
    given: dict[str, list[str]] = {flag: [] for flag in _WITH_VALUE}
    switches: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        flag, equals, value = word.partition("=")
        if flag in _WITH_VALUE and (not equals or flag.startswith("--")):
            if not equals:
                if position + 1 == len(words):
                    raise UsageError(f"{_WITH_VALUE[flag]} needs a value", hint=_HELP)
                position += 1
                value = words[position]
            if not value:
                raise UsageError(f"{_WITH_VALUE[flag]} needs a value that is not empty", hint=_HELP)
            given["--cwd" if flag == "-C" else flag].append(value)
        elif word in _SWITCHES and not (_SWITCHES[word] == "help" and given["--profile"]):
            switches.append(_SWITCHES[word])
        else:
            break
        position += 1
    rest = words[position:]
    if rest and rest[0] == "--" and not is_run:  # `dsh run -- "-x"` leaves it to the app, whose task it marks
        rest = rest[1:]
    found = Invocation(
        "boot",
        _last(given["--profile"]) or "",
        tuple(given["--patch"]),
        _last(given["--cwd"]),
        tuple(rest),
        _last(given["--locked"]),
    )
    return _decide(found, set(switches))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The beginning of a hint that names the known word most like this one; empty where none is."""
    from difflib import get_close_matches  # only for who mistyped something

    found = get_close_matches(word, list(known), n=1) if 1 < len(word) <= LONGEST_WORD else []
    return f"did you mean {found[0]!r}? " if found else ""


def _last(values: list[str]) -> str | None:
    return values[-1] if values else None


def _decide(found: Invocation, switches: set[str]) -> Invocation:
    if "version" in switches:
        return found._replace(action="version")
    if "help" in switches:
        return found._replace(action="help")
    if switches:
        return _dump(found, switches)
    if found.profile:
        return found
    if found.rest and found.rest[0] in ("run", *COMMANDS):
        raise UsageError(
            f"{found.rest[0]} is a command only as the first word", hint=f"dsh {found.rest[0]} …"
        )
    if found.rest and not found.rest[0].startswith("-"):
        meant = did_you_mean(found.rest[0], ("run", *COMMANDS))
        raise UsageError(
            f"no command {found.rest[0]!r}",
            hint=f"{meant}{_TASK}; dsh --help lists the commands",
        )
    if found.rest:
        meant = did_you_mean(found.rest[0].partition("=")[0], (*_WITH_VALUE, *_SWITCHES))
        raise UsageError(f"unknown option {found.rest[0]!r}", hint=meant + _HELP)
    raise UsageError(
        "--profile NAME is required", hint='for one task: dsh run "fix the failing test"; more: dsh --help'
    )


def _dump(found: Invocation, switches: set[str]) -> Invocation:
    is_lock = "lock" in switches
    switches = switches - {"lock"}
    if is_lock and switches != {"dump"}:
        raise UsageError(
            "--lock is a form of --dump-config", hint="dsh --profile NAME --dump-config --lock > dsh.lock.yml"
        )
    if len(switches) > 1:
        raise UsageError("--dump-config and --dump-default-config exclude each other")
    if found.rest:
        raise UsageError(f"a dump takes no further arguments, got {found.rest[0]!r}")
    profile = found.profile or DEFAULT_PROFILE
    if "dump" in switches:
        return found._replace(action="dump", profile=profile, is_lock=is_lock)
    for flag, value in (("--patch", found.patches), ("--locked", found.locked)):
        if value:
            raise UsageError(f"--dump-default-config shows bundles alone, so {flag} does not fit to it")
    return found._replace(action="dump-default", profile=profile)
