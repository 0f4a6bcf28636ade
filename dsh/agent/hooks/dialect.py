"""The two dialects of hook files, and the points at which hooks run (`spec/capabilities-more.md` §4)."""

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

Point = Literal[
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "Stop",
    "SubagentStart",
    "SubagentStop",
]
_COMMON: tuple[Point, ...] = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop")
WITHOUT_MATCHER: frozenset[Point] = frozenset({"UserPromptSubmit", "Stop"})
"""Points whose hooks all run, whatever their matchers say."""
AGENT_TYPE = "general-purpose"
"""What a child agent is called; there are no other types."""

TOOL_NAMES: Mapping[str, str] = {
    "Bash": "bash",
    "Edit": "edit",
    "Glob": "glob",
    "Grep": "grep",
    "MultiEdit": "edit",
    "Read": "read",
    "TodoWrite": "todo_write",
    "WebFetch": "web_fetch",
    "WebSearch": "web_search",
    "Write": "write",
    "apply_patch": "edit",
}
"""Names that hook files use for tools of other programs, and what those tools are called here."""

Matches = Callable[[str], bool]
_WORDS = re.compile(r"[A-Za-z0-9_|]+")


class Dialect(msgspec.Struct, frozen=True):
    """What the two have not in common."""

    name: Literal["claude-code", "codex"]
    owner: str
    """The row, and the `source.plugin` of what its hooks tell the model."""
    points: tuple[Point, ...]
    has_exact_words: bool
    """A matcher of plain words is a list of names; otherwise each is a pattern that is searched for."""

    def matches(self, matcher: str | None) -> Matches:
        """Whether a tool, or the source of a session, is meant by a matcher.

        Raises:
            re.error: it is no regular expression.
        """
        if matcher is None or matcher in ("", "*"):
            return lambda _: True
        if self.has_exact_words and _WORDS.fullmatch(matcher):
            return frozenset(matcher.split("|")).__contains__
        with warnings.catch_warnings():  # of what Python may read otherwise one day
            warnings.simplefilter("ignore")
            pattern = re.compile(matcher)
        return lambda text: pattern.search(text) is not None


CLAUDE_CODE = Dialect(
    "claude-code", "hooks-claude-code", (*_COMMON, "SubagentStart", "SubagentStop"), has_exact_words=True
)
CODEX = Dialect("codex", "hooks-codex", _COMMON, has_exact_words=False)
