"""What routes of every wire have in common as people configure them: key, endpoint, headers, limits."""

import re
from collections.abc import Mapping

from dsh.capabilities.bounds import MAX_TIMER_MS
from dsh.llm.transport.credential import is_key_name
from dsh.llm.transport.endpoint import base_url_problem

OWN_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        "user-agent",
    }
)
"""Headers that a route cannot set: they are ours, or would hold the key."""

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")


def check_endpoint(*, base_url: str | None, base_url_env: str | None, api_key_env: str | None) -> None:
    """Judge what names an endpoint and its key.

    Raises:
        ValueError: naming the key of the config. Holds no part of a URL.
    """
    if base_url is not None and (problem := base_url_problem(base_url.strip())) is not None:
        raise ValueError(f"baseURL {problem}")
    if base_url_env is not None and not is_key_name(base_url_env):
        raise ValueError("baseURLEnv is not the name of a variable; name the one that holds the URL")
    if api_key_env is not None and not is_key_name(api_key_env):
        raise ValueError("apiKeyEnv is not the name of a variable; name the one that holds the key")


def check_headers(headers: Mapping[str, str], own: frozenset[str] = OWN_HEADERS) -> None:
    """Judge the headers that a route adds.

    Raises:
        ValueError: one is ours, or can be none. Holds no value, nor a name that may be one.
    """
    for name, value in headers.items():
        if name.lower() in own:
            raise ValueError(f"headers cannot hold {name.lower()}; a key is named by apiKeyEnv")
        if not _HEADER_NAME.match(name):
            raise ValueError("headers: one has a name that no header can have")
        if not (value.isascii() and value.isprintable()):
            raise ValueError(f"headers: the value of {name} cannot stand in a header")


def check_limits(*limits: float | None) -> None:
    """Judge limits in time, in milliseconds.

    Raises:
        ValueError: one is out of range.
    """
    if any(limit is not None and not 0 < limit <= MAX_TIMER_MS for limit in limits):
        raise ValueError(f"timeouts must be above 0 and at most {MAX_TIMER_MS} ms")
