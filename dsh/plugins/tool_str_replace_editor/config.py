"""Options of the row `tool-str-replace-editor`."""

import msgspec

from dsh.capabilities.bounds import Amount, NonEmpty


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """What a view may show, and what the model is told."""

    max_output_chars: Amount = 16_000
    """Characters of one view; what is longer is cut and says so."""
    description: NonEmpty | None = None
    """In place of our description of the tool."""
