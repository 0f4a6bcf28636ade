"""What displays show of `web_search` and `web_fetch`. Pure; imported where a display asks."""

from dsh.tools.definition import Args
from dsh.tools.presentation import GenericCall, Outcome, WebResult


def search_call(args: Args) -> GenericCall:
    return GenericCall(title=f"Search the web for {'; '.join(args['queries'])}", kind="search")


def search_result(args: Args, outcome: Outcome) -> WebResult | None:
    if outcome.is_error:
        return None
    return WebResult(kind="search", title="; ".join(args["queries"]), content=tuple(outcome.content))


def fetch_call(args: Args) -> GenericCall:
    return GenericCall(title=f"Fetch {args['url']}", kind="fetch")


def fetch_result(args: Args, outcome: Outcome) -> WebResult | None:
    if outcome.is_error:
        return None
    return WebResult(kind="fetch", url=args["url"], content=tuple(outcome.content))
