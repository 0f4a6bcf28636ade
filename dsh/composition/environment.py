"""The launch environment: what was inherited, over the project's `.env`, over the home's.

Source: `spec/composition.md` §12; the grammar of `.env` there was taken from the original by running it.
"""

import re
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from dsh.composition.text.source import MAX_BYTES, read_bytes
from dsh.errors import CompositionError
from dsh.masking import masked

EnvSource = Literal["process", "project-env", "user-env"]

FORBIDDEN_PREFIXES = ("DSH_", "XDG_", "DYLD_", "BASH_FUNC_")
FORBIDDEN_SUFFIX = "_BASE_URL"
"""A cloned repository must not send the user's key elsewhere."""
_NAMES = """
    PATH HOME USERPROFILE SHELL NODE_OPTIONS NODE_PATH NODE_EXTRA_CA_CERTS LD_PRELOAD LD_LIBRARY_PATH
    LD_AUDIT BASH_ENV ENV SHELLOPTS BASHOPTS PERL5OPT PERL5LIB PYTHONSTARTUP PYTHONPATH PYTHONHOME RUBYOPT
    RUBYLIB JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS GIT_SSH GIT_SSH_COMMAND GIT_EXTERNAL_DIFF
    GIT_PAGER GIT_EDITOR GIT_ASKPASS SSH_ASKPASS GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM GIT_CONFIG_COUNT EDITOR
    VISUAL PAGER BROWSER DEEPSEEK_BASE_URL DEEPSEEK_SEARCH_BASE_URL SSL_CERT_FILE SSL_CERT_DIR HTTP_PROXY
    HTTPS_PROXY ALL_PROXY NO_PROXY REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_TLS_REJECT_UNAUTHORIZED
    PYTHONINSPECT PYTHONBREAKPOINT PYTHONWARNINGS VIRTUAL_ENV
    PYTHONUSERBASE GIT_CONFIG_PARAMETERS GIT_EXEC_PATH GIT_PROXY_COMMAND GIT_SEQUENCE_EDITOR GIT_TEMPLATE_DIR
    RIPGREP_CONFIG_PATH
"""
FORBIDDEN = frozenset(_NAMES.split())
MAX_SHOWN = 60
"""How many characters of a wrong name a warning shows."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_QUOTES = "'\"`"


class EnvValue(NamedTuple):
    """One variable and where it came from."""

    value: str
    source: EnvSource
    path: str | None = None
    """The `.env` file, where it came from one."""


class Assignment(NamedTuple):
    """One assignment of a `.env` file."""

    name: str
    """As it stands there: perhaps no name at all."""
    value: str
    line: int
    """Where it begins, counted from 1."""


class Environment:
    """The environment as it was at start. Implements `dsh.capabilities.launch.LaunchEnvironment`."""

    def __init__(self, inherited: Mapping[str, str], files: list[tuple[EnvSource, Path, Mapping[str, str]]]):
        """`files` are the `.env` layers, the higher one first."""
        self._layers: dict[EnvSource, dict[str, EnvValue]] = {
            "process": {name: EnvValue(value, "process") for name, value in inherited.items()}
        }
        for source, path, values in files:
            self._layers[source] = {n: EnvValue(v, source, str(path)) for n, v in values.items()}
        merged: dict[str, str] = {}
        for layer in self._layers.values():
            for name, found in layer.items():
                merged.setdefault(name, found.value)
        self._merged = MappingProxyType(merged)

    def get(self, name: str) -> EnvValue | None:
        """The variable as the highest layer that has it sets it; an empty value counts as set."""
        return self.get_from(name, ("process", "project-env", "user-env"))

    def get_from(self, name: str, sources: tuple[EnvSource, ...]) -> EnvValue | None:
        """The same, from these layers only, in the order given."""
        for source in sources:
            if found := self._layers.get(source, {}).get(name):
                return found
        return None

    def mapping(self) -> Mapping[str, str]:
        """All names and values, read-only."""
        return self._merged


def load_environment(cwd: Path, home: Path, inherited: Mapping[str, str]) -> tuple[Environment, list[str]]:
    """Read `<cwd>/.env` and `<home>/.env` (skipped when both are one folder).

    Nothing is set in the process: call `export` for that.

    Returns:
        The environment, and warnings to print as `dsh: {warning}`.

    Raises:
        CompositionError: a file sets a name that only the launching environment may set; nothing of
            either file counts then.
    """
    warnings: list[str] = []
    layers: list[tuple[EnvSource, Path, Mapping[str, str]]] = []
    places: list[tuple[EnvSource, Path]] = [("project-env", cwd / ".env")]
    if not _same_folder(cwd, home):
        places.append(("user-env", home / ".env"))
    for source, path in places:
        try:
            text = _text_of(path)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            warnings.append(f"failed to load .env: {path}: {reason}")
            continue
        layers.append((source, path, _accepted(path, read_env(text), warnings)))
    return Environment(inherited, layers), warnings


def _text_of(path: Path) -> str:
    data = read_bytes(path)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None


def _accepted(path: Path, assignments: list[Assignment], warnings: list[str]) -> dict[str, str]:
    """The names and values that count; the last of two equal names does."""
    accepted = {}
    for name, value, line in assignments:
        if is_forbidden(name):
            raise CompositionError(
                f'{path}:{line}: sets "{name}", which only the launching environment may set',
                hint=f"remove the line and export {name} in the shell that starts dsh",
            )
        if not _NAME.match(name):
            warnings.append(f"{path}:{line}: skipped {_shown(name)}, which is not a variable name")
        elif "\0" in value:
            warnings.append(f"{path}:{line}: skipped {name}, whose value holds a zero byte")
        else:
            accepted[name] = value
    return accepted


def _shown(name: str) -> str:
    """What stands before the `=` on one line, cut and without what has the form of a key."""
    text = masked(name)
    return repr(text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…")


def _same_folder(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return one == other


def is_forbidden(name: str) -> bool:
    """Whether a `.env` file may not set this name; case does not matter."""
    upper = name.upper()
    return upper in FORBIDDEN or upper.startswith(FORBIDDEN_PREFIXES) or upper.endswith(FORBIDDEN_SUFFIX)


def parse_env(text: str) -> dict[str, str]:
    """Names and values of a `.env` text; the last of two equal names counts."""
    return {name: value for name, value, _ in read_env(text)}


def read_env(text: str) -> list[Assignment]:
    """What a `.env` text assigns, in its order. Total: what is no assignment is skipped."""
    found: list[Assignment] = []
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    at, number = 0, 1
    while at < len(text):
        end = _line_end(text, at)
        line = text[at:end]
        name, equals, _ = line.partition("=")
        name = name.strip()
        if name.startswith(("export ", "export\t")):
            name = name[7:].strip()
        if not equals or not name or name.startswith("#"):
            at, number = end + 1, number + 1
            continue
        value, after = _value(text, at + line.index("=") + 1, end)
        found.append(Assignment(name, value, number))
        number += text.count("\n", at, after)
        at = after
    return found


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _value(text: str, at: int, line_end: int) -> tuple[str, int]:
    """The value that starts at `at`, and where the next line starts."""
    while at < line_end and text[at] in " \t":
        at += 1
    if at < line_end and text[at] in _QUOTES:
        quote = text[at]
        close = text.find(quote, at + 1)
        if close >= 0:
            value = text[at + 1 : close]
            if quote == '"':
                value = value.replace("\\n", "\n")
            return value, _line_end(text, close) + 1
    return text[at:line_end].partition("#")[0].strip(), line_end + 1


def export(environment: Environment, environ: MutableMapping[str, str]) -> None:
    """Add what the files set to `environ` (such as `os.environ`); what is there, also if empty, stays."""
    for name, value in environment.mapping().items():
        environ.setdefault(name, value)
