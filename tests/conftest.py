"""What holds for every test: hypothesis knows no clock, and parallel workers collect the same tests."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "dsh",
    deadline=None,  # how long an example takes says how busy the machine is, not whether the law holds
    suppress_health_check=[HealthCheck.too_slow],
    database=None,  # the checkout may be another's; what repeats a failure is printed with it
    print_blob=True,
)
settings.load_profile("dsh")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Names parameters that are functions by their names: pytest's own id of a function holds its address."""
    return getattr(val, "__qualname__", None) if callable(val) else None
