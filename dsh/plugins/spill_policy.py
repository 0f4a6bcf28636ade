"""Row `spill-policy`: a result that is too long for the model is kept in a file, and its two ends are shown.

Between them stands one line that says how much is left out and where all of it is, so the last line, in
which tools such as bash tell how it went, stays the last one. It bounds what every other review of the call
has made of the result (`spec/tools.md` §6).
"""

from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec

from dsh.capabilities.retention import KeptText, both_ends, size_of
from dsh.capabilities.spill import SPILL_STORE, Spilled
from dsh.kernel import Context
from dsh.kernel.foreign import contained, told
from dsh.session.message import text_block
from dsh.session.value import MAX_SAFE_INT
from dsh.tools.definition import Blocks
from dsh.tools.event import TOOLS_POST_EXECUTE, Accept, PostDecision, Settled
from dsh.tools.execution import ToolExecution
from dsh.tools.outcome import content_of

provide = ()

EXEMPT = frozenset({"read"})
"""Tools that page by themselves; to send the model from one file to another would help nobody."""
GAP = "\n\n"
LAST_LINE_BYTES = 256
"""A last line up to this size is shown whole where half of the room would cut it."""


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
        short = await self._spilled(execution, text)
        return decision if short is None else msgspec.structs.replace(decision, content=[text_block(short)])

    async def _spilled(self, execution: ToolExecution, text: str) -> str | None:
        """What the model reads instead; None where it has to be the text itself."""
        store, session = self._ctx.get(SPILL_STORE), execution.session
        if store is None or session is None:
            nobody = "no row provides spillStore" if store is None else "the call belongs to no session"
            self._warn(f"long results reach the model whole: {nobody}", once=True)
            return None
        try:
            place = store.locate(session.id, f"{execution.name}.txt")
            if self._ends(text, place) is None:
                return None
            place = await store.save(place, session.id, text)
        except BaseException as raised:
            error = contained(raised, "the store of long results")
            self._warn(f"a result of {execution.name} reaches the model whole: {told(error)}")
            return None
        kept = self._ends(text, place)
        return None if kept is None else GAP.join((kept.head, _notice(kept.omitted_bytes, place), kept.tail))

    def _ends(self, text: str, place: Spilled) -> KeptText | None:
        """What is shown of the text, so that all of it with the notice stays below the cap."""
        room = self._cap - size_of(_notice(size_of(text), place)) - 2 * len(GAP)
        if room < 0:
            return None
        tail_bytes = room // 2
        last_line = size_of(text[text.rstrip("\n").rfind("\n") + 1 :])
        if tail_bytes < last_line <= min(room, LAST_LINE_BYTES):
            tail_bytes = last_line
        return both_ends(text, room - tail_bytes, tail_bytes)

    def _warn(self, problem: str, *, once: bool = False) -> None:
        if once and problem in self._told:
            return
        self._told.add(problem)
        self._ctx.logger.warning("%s", problem)


def _notice(omitted_bytes: int, place: Spilled) -> str:
    return f"({omitted_bytes} bytes left out here. The whole result: {place.locator}. {place.retrieval_hint})"


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
