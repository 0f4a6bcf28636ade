"""Options of the row `tool-fs-search`."""

import msgspec

from dsh.capabilities.subprocess import MAX_TIMER_MS

MAX_SAFE_INTEGER = 2**53 - 1


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """How much a search may read and show. All numbers are positive integers."""

    sample_over_cap_glob_results: bool
    """Over the cap, show paths from every folder below the search root instead of the newest ones."""
    glob_max_results: int = 100
    """Paths shown."""
    grep_max_matches: int = 250
    """Matching lines shown."""
    grep_max_line_bytes: int = 2_000
    """Bytes shown of one matching line."""
    search_meta_max_bytes: int = 65_536
    """Size of the metadata that the log keeps for display."""
    raw_output_max_bytes: int = 20_000_000
    """What the search program may print before its result is refused."""
    grace_ms: int = 3_000
    """From asking the search program to end to killing it."""
    stderr_max_bytes: int = 65_536
    timeout_ms: int = 30_000
    """How long one search may take."""

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool):
                continue
            most = MAX_TIMER_MS if field.name in ("grace_ms", "timeout_ms") else MAX_SAFE_INTEGER
            if not 0 < value <= most:
                raise ValueError(f"{field.encode_name} must be between 1 and {most}, got {value}")
