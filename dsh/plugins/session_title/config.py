"""The options of the row `session-title`."""

import msgspec

from dsh.capabilities.bounds import Amount


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row; all are required."""

    fallback_max_words: Amount
    """Words of the prompt that make up the title."""
    fallback_max_bytes: Amount
    """UTF-8 bytes of such a title at most; not more than `maxTitleBytes`."""
    max_title_bytes: Amount
    """UTF-8 bytes of any title at most."""
