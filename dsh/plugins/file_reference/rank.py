"""How well a path fits what was typed. Pure; capitals and small letters are the same."""

EXACT, PREFIX, IN_NAME, IN_PATH, SCATTERED = 1000, 900, 700, 500, 300
CLOSE = 100
"""What letters that stand together are worth more than scattered ones."""
DIRECTORY = 25


def score(query: str, path: str, *, is_directory: bool) -> int | None:
    """The higher, the better; None for a path that does not hold the letters of the query in their order.

    Args:
        query: not empty.
        path: relative, `/` between names.
    """
    wanted, whole = query.casefold(), path.casefold()
    name = whole.rpartition("/")[2]
    if name == wanted:
        found = EXACT
    elif name.startswith(wanted):
        found = PREFIX
    elif wanted in name:
        found = IN_NAME
    elif wanted in whole:
        found = IN_PATH
    else:
        gap = _gap(wanted, whole)
        if gap is None:
            return None
        found = SCATTERED + max(0, CLOSE - gap)
    return found + DIRECTORY if is_directory else found


def _gap(wanted: str, text: str) -> int | None:
    """How many letters stand between those of `wanted`, each taken where it comes first."""
    at, first = -1, -1
    for char in wanted:
        at = text.find(char, at + 1)
        if at < 0:
            return None
        first = at if first < 0 else first
    return at - first + 1 - len(wanted)
