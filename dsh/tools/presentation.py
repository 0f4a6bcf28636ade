"""Cards: what a display may show of a call and of its result, beyond the text that the model reads.

A card is made by a pure function of what the log holds (arguments; content, error flag and `meta`), so that
a stored session looks as the live one did. Nothing in a run depends on cards: whatever goes wrong in one is
no card, and the display falls back to the text (`spec/tools.md` §2).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from dsh.tools.execution import ToolResult

T = TypeVar("T")


class _Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Base of cards and their parts; in JSON, fields are camelCase and absent ones left out."""


class Location(_Part, frozen=True):
    """A place in a file that a call is about."""

    path: str
    line: int | None = None
    """Counted from 1."""


class Diff(_Part, frozen=True):
    """One changed piece of a file. Texts are lines without a last LF."""

    path: str
    old_text: str | None
    """None where nothing was there."""
    new_text: str


class Line(_Part, frozen=True):
    """A line of a file, counted from 1."""

    number: int
    text: str


class MatchedLine(_Part, frozen=True):
    """A line that matches a search, counted from 1."""

    line_number: int
    line: str


class MatchedFile(_Part, frozen=True):
    """The matches in one file."""

    path: str
    matches: tuple[MatchedLine, ...]


# -- calls -----------------------------------------------------------------------------------------


class GenericCall(_Part, frozen=True, tag_field="card", tag="generic"):
    """Any call."""

    title: str
    kind: str | None = None
    """What sort of thing it does: `read`, `edit`, `search`, `execute`, `fetch`, `think`, `other`."""
    raw_input: Any = msgspec.UNSET
    """The arguments, where a display should show them."""
    content: tuple[Mapping[str, Any], ...] = ()
    """Content blocks."""
    locations: tuple[Location, ...] = ()


class TerminalCall(_Part, frozen=True, tag_field="card", tag="terminal"):
    """A command."""

    title: str
    """The command itself."""
    description: str | None = None
    cwd: str | None = None
    """Where it runs, as the call says; None where it says nothing."""


class DiffCall(_Part, frozen=True, tag_field="card", tag="diff"):
    """A change of files, as it is asked for."""

    title: str
    diffs: tuple[Diff, ...]
    locations: tuple[Location, ...] = ()


CallCard = GenericCall | TerminalCall | DiffCall

# -- results ---------------------------------------------------------------------------------------


class GenericResult(_Part, frozen=True, tag_field="card", tag="generic"):
    """Any result."""

    title: str | None = None
    content: tuple[Mapping[str, Any], ...] = ()
    """Content blocks."""


class TerminalResult(_Part, frozen=True, tag_field="card", tag="terminal"):
    """How a command ended. At most one of `exit_code` and `signal` is there."""

    output: str | None = None
    exit_code: int | None = None
    signal: str | None = None


class DiffResult(_Part, frozen=True, tag_field="card", tag="diff"):
    """What was changed: one entry for each hunk; none for a new file."""

    diffs: tuple[Diff, ...]


class SearchResult(_Part, frozen=True, tag_field="card", tag="search"):
    """What was found: `files` with shape `matches`, `paths` with shape `paths`."""

    shape: Literal["matches", "paths"]
    truncated: bool
    """There is more than is listed."""
    total: int
    """Matches, or paths, before any cut."""
    files: tuple[MatchedFile, ...] = ()
    paths: tuple[str, ...] = ()


class ReadResult(_Part, frozen=True, tag_field="card", tag="read"):
    """A window of a text file."""

    path: str
    offset: int
    """The first line that was asked for, counted from 1."""
    lines: tuple[Line, ...]
    total_lines: int
    total_is_minimum: bool = False
    """The file may have more lines than `total_lines`."""
    lang: str | None = None
    """Language of the text, for highlighting: `py`, `ts`, …"""


class WebResult(_Part, frozen=True, tag_field="card", tag="web"):
    """What came from the web."""

    kind: Literal["search", "fetch"]
    title: str | None = None
    url: str | None = None
    content: tuple[Mapping[str, Any], ...] = ()


ResultCard = GenericResult | TerminalResult | DiffResult | SearchResult | ReadResult | WebResult


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A result as the log keeps it: all that a card of it may be made of."""

    content: Sequence[Mapping[str, Any]]
    """What the model read, content blocks."""
    is_error: bool = False
    meta: Any = msgspec.UNSET

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join(block["text"] for block in self.content if block.get("type") == "text")


def outcome_of(result: ToolResult) -> Outcome:
    """The outcome of a call that has just settled."""
    return Outcome(content=result.content, is_error=result.is_error, meta=result.meta)


def outcome_in_log(data: Mapping[str, Any]) -> Outcome:
    """The outcome in the payload of a `tool/result`.

    Raises:
        LookupError, TypeError: the payload is none of that type.
    """
    block = data["message"]["content"][0]
    return Outcome(
        content=block["content"],
        is_error=block.get("isError") is True,
        meta=data.get("meta", msgspec.UNSET),
    )


def from_meta(kind: type[T], meta: Any) -> T | None:
    """The card that a tool's `meta` spells out; None where it does not, as in logs of other versions."""
    try:
        return msgspec.convert({**meta, "card": _tag(kind)}, kind)
    except (msgspec.ValidationError, TypeError):
        return None


def call_card(present: Callable[[Any], object], arguments: Any) -> CallCard | None:
    """The card that a presenter makes of a call, its fields held against their types.

    None where it makes none, raises, or answers something else.
    """
    found: CallCard | None = _card(CallCard, present, arguments)
    return found


def result_card(
    present: Callable[[Any, Outcome], object], arguments: Any, outcome: Outcome
) -> ResultCard | None:
    """The same of a result."""
    found: ResultCard | None = _card(ResultCard, present, arguments, outcome)
    return found


def _card(kinds: Any, present: Callable[..., object], *given: object) -> Any:
    try:
        card = present(*given)
        return msgspec.convert(msgspec.to_builtins(card), kinds) if isinstance(card, kinds) else None
    except Exception:
        return None


def card_json(card: CallCard | ResultCard) -> dict[str, Any]:
    """The card as JSON for a display: field `card` names its kind."""
    found: dict[str, Any] = msgspec.to_builtins(card)
    return found


def _tag(kind: type) -> str | int | None:
    return kind.__struct_config__.tag  # type: ignore[attr-defined,no-any-return]
