"""Numbers with bounds, for the configurations of rows."""

from typing import Annotated

import msgspec

MAX_TIMER_MS = 2_147_483_647
"""The longest timer the original accepts; kept so that configurations stay interchangeable."""
MAX_SAFE_INTEGER = 2**53 - 1
"""The largest integer that a JSON reader of any language holds exactly."""

TimerMs = Annotated[int, msgspec.Meta(ge=1, le=MAX_TIMER_MS)]
"""A span of time in milliseconds."""
Amount = Annotated[int, msgspec.Meta(ge=1, le=MAX_SAFE_INTEGER)]
"""How many of something; never none."""
