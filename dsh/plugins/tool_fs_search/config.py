"""Options of the row `tool-fs-search`."""

import msgspec

from dsh.capabilities.bounds import Amount, TimerMs


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """How much a search may read and show."""

    sample_over_cap_glob_results: bool
    """Over the cap, show paths from every folder below the search root instead of the newest ones."""
    glob_max_results: Amount = 100
    """Paths shown."""
    grep_max_matches: Amount = 250
    """Matching lines shown."""
    grep_max_line_bytes: Amount = 2_000
    """Bytes shown of one matching line."""
    search_meta_max_bytes: Amount = 65_536
    """Size of the metadata that the log keeps for display."""
    raw_output_max_bytes: Amount = 20_000_000
    """What the search program may print before its result is refused."""
    grace_ms: TimerMs = 3_000
    """From asking the search program to end to killing it."""
    stderr_max_bytes: Amount = 65_536
    """Bytes kept of what the search program complains of."""
    timeout_ms: TimerMs = 30_000
    """How long one search may take."""
