"""What displays show of `glob` and `grep`. Pure; imported where a display asks."""

from dsh.tools.definition import Args
from dsh.tools.presentation import GenericCall, Location, Outcome, SearchResult, from_meta


def glob_call(args: Args) -> GenericCall:
    return _search(f"Find {args['pattern']}", args)


def grep_call(args: Args) -> GenericCall:
    include = f" in {args['include']}" if args.get("include") else ""
    return _search(f"Search for {args['pattern']}{include}", args)


def search_result(args: Args, outcome: Outcome) -> SearchResult | None:
    """What was found, as far as the log keeps it."""
    card = None if outcome.is_error else from_meta(SearchResult, outcome.meta)
    if card is None or (card.paths if card.shape == "matches" else card.files):
        return None
    return card


def _search(title: str, args: Args) -> GenericCall:
    path = args.get("path")
    places = (Location(path=path),) if path else ()
    return GenericCall(title=title, kind="search", locations=places)
