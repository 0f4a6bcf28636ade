"""Names parameters that are functions by their names, so that parallel workers collect the same tests."""


def pytest_make_parametrize_id(val: object) -> str | None:
    """Pytest's own id of a function holds its address."""
    return getattr(val, "__qualname__", None) if callable(val) else None
