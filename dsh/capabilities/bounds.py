"""Numbers and texts with bounds, for the configurations of rows."""

from typing import Annotated

import msgspec

from dsh.session.value import MAX_SAFE_INT

MAX_TIMER_MS = 2_147_483_647
"""The longest timer the original accepts; kept so that configurations stay interchangeable."""

TimerMs = Annotated[int, msgspec.Meta(ge=1, le=MAX_TIMER_MS)]
"""A span of time in milliseconds."""
Amount = Annotated[int, msgspec.Meta(ge=1, le=MAX_SAFE_INT)]
"""How many of something; never none."""
NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]
"""A text that says something."""
