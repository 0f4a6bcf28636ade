"""Which proxy a request goes through, by the usual variables in either case.

`HTTP_PROXY` and `HTTPS_PROXY` for URLs of that scheme, `ALL_PROXY` for what has none of its own, `NO_PROXY`
for hosts that are asked directly: names with everything below them, names with a port, addresses, networks
(`10.0.0.0/8`), `*` for all. Where none of them is set, the settings of macOS and Windows.
"""

import ipaddress
from urllib.parse import urlsplit


def proxy_for(url: str) -> str:
    """The URL of the proxy for requests to this URL, user and password included; empty for none.

    It is slow the first time, when `urllib.request` is loaded.
    """
    from urllib.request import getproxies, proxy_bypass

    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return ""
    proxies = getproxies() if host else {}
    proxy = (proxies.get(parts.scheme) or proxies.get("all") or "").strip()
    if not proxy or _is_in_network(host, proxies.get("no", "")):
        return ""
    if proxy_bypass(parts.netloc.rpartition("@")[2]):
        return ""
    scheme, mark, rest = proxy.partition("://")
    return f"{scheme.lower()}://{rest}" if mark else f"http://{proxy}"


def proxy_problem(proxy: str) -> str:
    """Why no request can go through this; empty where one can. Holds no part of it: it may be a password."""
    if proxy.startswith("socks"):
        return "SOCKS is not supported"
    try:
        parts = urlsplit(proxy)
        is_sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_sound = False
    return "" if is_sound else "its URL is not of the form http://host:port"


def shown_proxy(proxy: str) -> str:
    """Host and port of a proxy that has no problem."""
    parts = urlsplit(proxy)
    return parts.netloc.rpartition("@")[2]


def _is_in_network(host: str, exempt: str) -> bool:
    """Whether the host is an address within one of the networks, or an address of its spelling."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for entry in exempt.split(","):
        try:
            if address in ipaddress.ip_network(entry.strip().strip("[]"), strict=False):
                return True
        except ValueError:
            continue
    return False
