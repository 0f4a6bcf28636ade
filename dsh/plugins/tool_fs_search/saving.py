"""The whole list behind a page that does not show all of it, kept in a file that the model can open."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from dsh.capabilities.spill import SPILL_STORE, Spilled
from dsh.kernel import Context
from dsh.kernel.foreign import contained, told
from dsh.session.message import text_block
from dsh.tools.definition import Args
from dsh.tools.event import Accept, PostDecision, Settled
from dsh.tools.execution import ToolExecution, ToolSuccess


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """How one tool shows its results."""

    file_name: str
    is_cut: Callable[[Args, Mapping[str, Any]], bool]
    """Whether the first page lacks results."""
    whole: Callable[[Args, Mapping[str, Any]], str]
    """All results, as text."""
    page: Callable[[Args, Mapping[str, Any], str], str]
    """The page, with a note that says where all of it is."""


class Saver:
    """A listener of `tools/post-execute` for the tools of this row."""

    def __init__(self, ctx: Context, listings: Mapping[str, Listing]) -> None:
        self._ctx, self._listings = ctx, listings

    async def saved(self, call: Settled, following: Callable[[], Awaitable[PostDecision]]) -> PostDecision:
        """Only the plain success of a call that the model made itself; a failure to save changes nothing."""
        decision = await following()
        execution, result = call.execution, call.result
        listing = self._listings.get(execution.name)
        if listing is None or execution.parent is not None or not isinstance(result, ToolSuccess):
            return decision
        if not isinstance(decision, Accept) or decision.content is not None:
            return decision
        if decision.value is not msgspec.UNSET or not listing.is_cut(execution.arguments, result.value):
            return decision
        kept = await self._save(execution, listing, result.value)
        if kept is None:
            return decision
        where = f"All of them: {kept.locator}. {kept.retrieval_hint}"
        page = listing.page(execution.arguments, result.value, where)
        return msgspec.structs.replace(decision, content=[text_block(page)], whole=kept)

    async def _save(
        self, execution: ToolExecution, listing: Listing, value: Mapping[str, Any]
    ) -> Spilled | None:
        """Where the list is now; None where it could not be kept."""
        store, session = self._ctx.get(SPILL_STORE), execution.session
        if store is None or session is None:
            return None
        try:
            place = store.locate(session.id, listing.file_name)
            whole = await asyncio.to_thread(listing.whole, execution.arguments, value)
            return await store.save(place, session.id, whole)
        except BaseException as raised:
            error = contained(raised, "the store of long results")
            self._ctx.logger.warning("the results of %s were not saved: %s", execution.name, told(error))
            return None
