"""Which addresses are on the public Internet, and which others the user allows.

The table is ours: what Python's `ipaddress` takes for public differs between its releases.
"""

import ipaddress
import re
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NOT_PUBLIC_4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",
        "100.64.0.0/10",  # behind a provider's address translation
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local; cloud metadata at 169.254.169.254
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",  # measurements
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
_PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
"""All that is assigned. Outside are loopback, unspecified, mapped IPv4, NAT64, unique-local, link-local,
site-local, multicast."""
_NOT_PUBLIC_6 = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarking
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address inside
        "3fff::/20",  # documentation
    )
)
_LOCAL_NAMES = re.compile(r"(?:.*\.)?localhost(?:\.localdomain)?\Z")


def is_public(address: Address) -> bool:
    """Whether an address is one of the public Internet's."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    return address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)


def is_local_name(host: str) -> bool:
    """Whether a name means this machine, whatever it resolves to."""
    return _LOCAL_NAMES.match(host.rstrip(".").lower()) is not None


def parsed(text: str) -> Address | None:
    """An address as it is written out in full, without a zone; None for everything else."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


class AllowedHosts:
    """What the user allows beyond the public Internet. Immutable."""

    def __init__(self, entries: Iterable[str]) -> None:
        """
        Raises:
            ValueError: an entry is neither a name nor an address nor a network.
        """
        self._networks: list[Network] = []
        self._names: set[str] = set()
        self._below: list[str] = []
        for entry in entries:
            self._add(entry.strip().lower().rstrip("."))

    def _add(self, entry: str) -> None:
        try:
            self._networks.append(ipaddress.ip_network(entry.strip("[]")))
            return
        except ValueError:
            if "/" in entry:
                raise ValueError(
                    f"allowedHosts: {entry!r} is no network such as 10.1.0.0/16 (its host bits must be 0)"
                ) from None
        name = entry.removeprefix("*.")
        if not re.fullmatch(r"[^\s/:@?#*\\]+", name) or not re.search(r"[^\d.]", name):
            raise ValueError(
                f"allowedHosts: {entry!r} is no name, address or network; "
                "write wiki.corp, *.corp or 10.1.0.0/16"
            )
        if name == entry:
            self._names.add(name)
        else:
            self._below.append(f".{name}")

    def has_name(self, host: str) -> bool:
        host = host.rstrip(".").lower()
        return host in self._names or any(host.endswith(end) for end in self._below)

    def has_address(self, address: Address) -> bool:
        return any(address in network for network in self._networks if network.version == address.version)
