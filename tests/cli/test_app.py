"""Commands and their options: a slip is told with the word that was meant."""

import pytest

from dsh.cli.app import run
from dsh.errors import UsageError

SESSIONS = "list, show, inspect, stats, verify, export, fork, delete, prune, pack"


@pytest.mark.parametrize(
    ("line", "told", "hint"),
    [
        ("plugin instal x", "No such command 'instal'", "did you mean 'add'? dsh plugin --help"),
        ("plugin uninstall x", "No such command 'uninstall'", "did you mean 'remove'? dsh plugin --help"),
        ("plugin lst", "No such command 'lst'", "did you mean 'list'? dsh plugin --help"),
        ("plugin frobnicate", "No such command 'frobnicate'", "dsh plugin --help"),
        ("sessions inspct x", "No such command 'inspct'", "did you mean 'inspect'? dsh sessions --help"),
        ("sessions", f"Missing command: {SESSIONS}", "dsh sessions --help"),
        ("sessions show", "Missing argument 'TARGET'", "dsh sessions show --help"),
        (
            "sessions list -n x",
            "Invalid value for '--limit' / '-n': 'x' is not a whole number",
            "dsh sessions list --help",
        ),
        ("sessions prune", "Missing option '--older-than'", "dsh sessions prune --help"),
        ("sessions list --jsn", "No such option: --jsn", "did you mean '--json'? dsh sessions list --help"),
        ("explain --jsn", "No such option: --jsn", "did you mean '--json'? dsh explain --help"),
        ("explain --prof=x llm", "No such option: --prof", "did you mean '--profile'? dsh explain --help"),
        ("explain --frobnicate", "No such option: --frobnicate", "dsh explain --help"),
        (
            "plugin remove --profil a b",
            "No such option: --profil",
            "did you mean '--profile'? dsh plugin remove --help",
        ),
        (
            "plugin add --profil a b",
            "--profile NAME is required, found --profil",
            "dsh plugin add --profile NAME",
        ),
        ("plugin add --no-deps b", "--profile NAME is required", "dsh plugin add --profile NAME"),
    ],
)
def test_a_slip_names_the_closest_word(line: str, told: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        run(line.split())
    assert (caught.value.message, caught.value.hint) == (told, hint)
