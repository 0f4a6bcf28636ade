"""Request bodies as JSON."""

from typing import Any

import msgspec

from dsh.session.value import clean, encode


def encode_wire(value: Any) -> bytes:
    """Compact JSON in UTF-8. Half a surrogate pair, which no provider takes, becomes U+FFFD."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return encode(clean(value))
