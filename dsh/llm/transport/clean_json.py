"""JSON that came from a server, made fit to be decoded: the slow way, for what the typed decoder refuses."""

import json
import math
from typing import NoReturn

from dsh.unicode import valid


def clean_json(payload: bytes) -> bytes:
    """The same JSON; what is no Unicode becomes U+FFFD, a number out of range becomes 0.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    try:
        value = json.loads(payload.decode("utf-8", "replace"), parse_float=_finite, parse_constant=_refuse)
        return valid(json.dumps(value, ensure_ascii=False)).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else 0


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
