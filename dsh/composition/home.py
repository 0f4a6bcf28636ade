"""Where dsh keeps its files, and how such a path is shown."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from dsh.errors import CompositionError

DEFAULT_HOME = "~/.dsh"


def home_path(environ: Mapping[str, str] | None = None, configured: str | None = None) -> Path:
    """The home directory, absolute: what is configured, else `$DSH_HOME` (blank is unset), else `~/.dsh`.

    Only the inherited environment decides; nothing is created.

    Raises:
        CompositionError: it is relative, and there is no current directory.
    """
    environ = os.environ if environ is None else environ
    text = configured or environ.get("DSH_HOME", "").strip() or DEFAULT_HOME
    try:
        return Path(_expanded(text, environ)).absolute()
    except FileNotFoundError:  # a relative path needs the current directory
        raise CompositionError(
            f"{home_label(environ)} is relative, and the current directory is gone"
        ) from None


def check_home(home: Path) -> None:
    """Refuse a home that can hold no files. One that does not exist yet is fine.

    Raises:
        CompositionError: it is no directory, or cannot be reached.
    """
    hint = "set DSH_HOME to a directory, or unset it for ~/.dsh"
    try:
        if not stat.S_ISDIR(home.stat().st_mode):
            raise CompositionError(f"the home {home} is not a directory", hint=hint)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise CompositionError(f"the home {home} cannot be used: {error.strerror}", hint=hint) from None


def _expanded(text: str, environ: Mapping[str, str]) -> str:
    if text != "~" and not text.startswith("~/"):
        return text
    base = environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 -- the password database is the fallback
    return base + text[1:]


def home_label(environ: Mapping[str, str] | None = None) -> str:
    """How the home is named to people: `$DSH_HOME` or `~/.dsh`, never the real path."""
    environ = os.environ if environ is None else environ
    return "$DSH_HOME" if environ.get("DSH_HOME", "").strip() else DEFAULT_HOME


class HomePaths:
    """Joins path segments under the home. What the launcher provides as `dshHomePath`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, *segments: str) -> Path:
        """An absolute path under the home, the home itself without segments."""
        return self.root.joinpath(*segments)
