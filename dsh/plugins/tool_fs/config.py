"""Options of the row `tool-fs`."""

import msgspec

MAX_SAFE_INTEGER = 2**53 - 1


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """How much `read` shows at once. All are positive integers."""

    read_limit: int = 2_000
    """Lines of one page, and the most a call may ask for."""
    read_max_line_length: int = 2_000
    """Characters of one line."""
    read_max_bytes: int = 50 * 1024
    """Bytes of one page: keeps a result near 15,000 tokens."""
    read_stream_min_size: int = 10 * 1024 * 1024
    """Bytes from which on a file is read in pieces and no longer counted to its end."""

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            if not 0 < value <= MAX_SAFE_INTEGER:
                raise ValueError(f"{field.encode_name} must be a positive integer, got {value}")
