"""A URL that may be fetched: taken apart once, by these rules, and put together again from its parts.

What is connected to, what is sent as the host and what is shown are made from the same parts, so that no two
readers of one URL can take it for two different places.
"""

import re
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from dsh.capabilities.web import WebError
from dsh.plugins.web_fetch_http.address import Address, parsed

PORTS = {"http": 80, "https": 443}
MAX_SHOWN_CHARS = 200
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?\.?\Z")
_NUMERIC = re.compile(r"(?:0x[0-9a-f]*|\d+)\.?\Z")
"""A last label that makes the whole host a number, of which there are many spellings."""
_SAFE = "!$%&'()*+,-./:;=?@_~[]"


class Target(msgspec.Struct, frozen=True):
    """The parts of a URL, all of them ASCII."""

    scheme: str
    host: str
    """In lower case; an IPv6 address without brackets."""
    port: int
    path: str
    """With the query."""

    @property
    def url(self) -> str:
        """Spelled in full, a default port left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"

    @property
    def shown(self) -> str:
        """The URL for messages."""
        url = self.url
        return url if len(url) <= MAX_SHOWN_CHARS else url[:MAX_SHOWN_CHARS] + "…"

    @property
    def address(self) -> Address | None:
        """The address that the host is; None for a name."""
        return parsed(self.host)

    def redirected(self, location: str, max_length: int) -> "Target":
        """Where a redirect leads.

        Raises:
            WebError: `WEB_INVALID_URL`.
        """
        return read_url(urljoin(self.url, location.strip(" \t")), max_length)

    def may_lead_to(self, other: "Target") -> bool:
        """Whether a redirect stays here: the same origin, or the same host with encryption from now on."""
        is_same = (self.scheme, self.host, self.port) == (other.scheme, other.host, other.port)
        is_upgrade = (self.scheme, self.port, other.scheme, other.port) == ("http", 80, "https", 443)
        return is_same or (is_upgrade and self.host == other.host)


def read_url(url: str, max_length: int) -> Target:
    """Take a URL apart.

    Raises:
        WebError: `WEB_INVALID_URL`, it is none that can be fetched; `WEB_BLOCKED_URL`, its host is an address
            in disguise.
    """
    url = url.strip()
    if len(url) > max_length:
        raise _invalid(f"it has {len(url)} characters, at most {max_length} are taken")
    if not url.isprintable() or " " in url or "\\" in url:
        raise _invalid("it holds blanks, backslashes or control characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise _invalid(str(error)) from None
    if parts.scheme not in PORTS:
        raise _invalid("it must begin with http:// or https://")
    if "[" in parts.netloc and parsed(host) is None:
        raise _invalid("only an address of IPv6 stands in brackets")
    if "@" in parts.netloc:
        raise _invalid("it holds a user name or password; leave them out")
    if port == 0:
        raise _invalid("there is no port 0")
    path = quote(parts.path or "/", safe=_SAFE) + (
        f"?{quote(parts.query, safe=_SAFE)}" if parts.query else ""
    )
    return Target(parts.scheme, _host(host), port or PORTS[parts.scheme], path)


def _host(host: str) -> str:
    if (address := parsed(host)) is not None:
        if "%" in host:
            raise WebError("WEB_BLOCKED_URL", f"the address {address} with a zone is of a local network")
        return str(address)
    try:
        name = host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        name = ""
    if parsed(name) is not None:  # full-width digits and the like
        return name
    if not _HOST.match(name):
        raise _invalid(f"{host[:MAX_SHOWN_CHARS]!r} is no host" if host else "it names no host")
    if _NUMERIC.match(name.rstrip(".").rpartition(".")[2]):
        raise WebError(
            "WEB_BLOCKED_URL",
            f"the host {name!r} is an address in an unusual spelling",
            hint="write it as four decimal numbers",
        )
    return name


def _invalid(problem: str) -> WebError:
    return WebError("WEB_INVALID_URL", f"this URL cannot be fetched: {problem}")
