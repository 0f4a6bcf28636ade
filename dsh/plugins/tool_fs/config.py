"""Options of the row `tool-fs`."""

import msgspec

from dsh.capabilities.bounds import Amount


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """How much `read` shows at once."""

    read_limit: Amount = 2_000
    """Lines of one page, and the most a call may ask for."""
    read_max_line_length: Amount = 2_000
    """Characters of one line."""
    read_max_bytes: Amount = 50 * 1024
    """Bytes of one page: keeps a result near 15,000 tokens."""
    read_stream_min_size: Amount = 10 * 1024 * 1024
    """Bytes from which on a file is read in pieces and no longer counted to its end."""
