"""Readable ids of parameters that are the same in every process."""

import re


def readable(value: object) -> str:
    """`str` without addresses."""
    return getattr(value, "__name__", None) or re.sub(r" at 0x[0-9a-f]+", "", str(value))
