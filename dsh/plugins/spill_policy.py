"""Row `spill-policy`: a result that is too long for the model is kept in a file, and its two ends are shown.

Between them the gap is marked. After them one line says how much is left out and where all of it is; only
lines in brackets, in which tools such as bash tell how it went, stay behind it, the last ones as before; and
where a tool has kept all of its result itself, its own note on that.
So whatever cuts the middle out of an old result leaves the model the way to the file. The row bounds what
every other review of the call has made of the result (`spec/tools.md` §6).
"""

import re
from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec

from dsh.capabilities.retention import head_tail, size_of
from dsh.capabilities.spill import SPILL_STORE, Spilled
from dsh.kernel import Context
from dsh.kernel.foreign import contained, told
from dsh.session.message import text_block
from dsh.session.value import MAX_SAFE_INT
from dsh.tools.content import Blocks, content_of
from dsh.tools.event import TOOLS_POST_EXECUTE, Accept, PostDecision, Settled
from dsh.tools.execution import ToolExecution

provide = ()

EXEMPT = frozenset({"read"})
"""Tools that page by themselves; to send the model from one file to another would help nobody."""
GAP = "\n\n[... the middle is left out, see below ...]\n\n"
MARKS_CHARS = 1024
"""How far from the end they are looked for."""
_MARKS = re.compile(r"(?:\n\[[^\n]*\])+\n*\Z")
"""The last lines, as far as they stand in brackets: `[exit code: 3]`."""


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    max_inline_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_SAFE_INT)] | None = None
    """The longest text of a result that the model gets whole, in bytes of UTF-8; unset: any."""


class SpillPolicy:
    """Bounds results. State: what was told already."""

    def __init__(self, ctx: Context, max_inline_bytes: int) -> None:
        self._ctx = ctx
        self._cap = max_inline_bytes
        self._told: set[str] = set()

    async def bounded(self, call: Settled, following: Callable[[], Awaitable[PostDecision]]) -> PostDecision:
        """A listener of `tools/post-execute`."""
        decision = await following()
        execution = call.execution
        if not isinstance(decision, Accept) or decision.value is not msgspec.UNSET:
            return decision
        if execution.parent is not None or execution.name in EXEMPT:
            return decision
        text = _text_of(call.result.content if decision.content is None else content_of(decision.content))
        if text is None or size_of(text) <= self._cap:
            return decision
        whole = decision.whole
        short = self._shortened(text, whole) if whole else await self._spilled(execution, text)
        return decision if short is None else msgspec.structs.replace(decision, content=[text_block(short)])

    async def _spilled(self, execution: ToolExecution, text: str) -> str | None:
        """What the model reads instead; None where it has to be the text itself."""
        store, session = self._ctx.get(SPILL_STORE), execution.session
        if store is None or session is None:
            nobody = "no row provides spillStore" if store is None else "the call belongs to no session"
            self._warn(f"long results reach the model whole: {nobody}")
            return None
        try:
            place = store.locate(session.id, f"{execution.name}.txt")
            if self._shortened(text, place) is None:
                return None
            return self._shortened(text, await store.save(place, session.id, text))
        except BaseException as raised:
            error = contained(raised, "the store of long results")
            self._warn(f"a result of {execution.name} reaches the model whole: {told(error)}")
            return None

    def _shortened(self, text: str, place: Spilled) -> str | None:
        """Both ends, the notice and the last lines, within the cap; None where they do not fit."""
        for end in dict.fromkeys((_end_of(text, place), "")):
            body = text[: len(text) - len(end)]
            around = (GAP, _notice(size_of(body), place, end), end)
            room = self._cap - sum(size_of(piece) for piece in around)
            if room >= 0:
                kept = head_tail(body, room)
                return kept.head + GAP + kept.tail + _notice(kept.omitted_bytes, place, end) + end
        return None

    def _warn(self, problem: str) -> None:
        if problem not in self._told:
            self._told.add(problem)
            self._ctx.logger.warning("%s", problem)


def _end_of(text: str, place: Spilled) -> str:
    """What stays the last lines: the paragraph in which the tool itself tells of the place, or the marks."""
    _, gap, last = text.rpartition("\n\n")
    if place.locator in last:
        return gap + last
    found = _MARKS.search(text[-MARKS_CHARS:])
    return "" if found is None else found[0]


def _notice(omitted_bytes: int, place: Spilled, end: str) -> str:
    where = "" if place.locator in end else f" The whole result: {place.locator}. {place.retrieval_hint}"
    return f"\n\n({omitted_bytes} bytes left out.{where})"


def _text_of(content: Blocks) -> str | None:
    """The text that the blocks come to; None where one of them is something else."""
    texts = [block.get("text") for block in content if block.get("type") == "text"]
    if len(texts) < len(content):
        return None
    pieces = [text for text in texts if isinstance(text, str)]
    return "".join(pieces) if len(pieces) == len(texts) else None


def apply(ctx: Context, config: Config) -> None:
    if config.max_inline_bytes is not None:
        ctx.on(TOOLS_POST_EXECUTE, SpillPolicy(ctx, config.max_inline_bytes).bounded, prepend=True)
