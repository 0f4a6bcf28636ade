"""Which row speaks which wire format, by the names that settings of others know them by."""

_ROWS = {"openai-completions": "llm-openai", "anthropic-messages": "llm-anthropic"}


def check_api(api: str | None, row: str) -> None:
    """Judge the `api` of a route, which says no more than what its row speaks.

    Raises:
        ValueError: it is another format; names the row that speaks it.
    """
    if api is None or _ROWS.get(api) == row:
        return
    own = next(name for name, speaker in _ROWS.items() if speaker == row)
    if (speaker := _ROWS.get(api)) is not None:
        raise ValueError(f"api {api} is spoken by row {speaker}; put the route under its providers")
    others = " and ".join(f"{name} (row {speaker})" for name, speaker in _ROWS.items())
    raise ValueError(f"api must be {own} here or left out, and is {api!r}; there are {others}")
