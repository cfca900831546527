"""Network addresses: ``host:port``, with an IPv6 address in brackets."""

from __future__ import annotations

import re

__all__ = ["InvalidAddress", "check_address", "same_listener", "split_address", "with_port"]

_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[^\s:/@\[\]]{1,253}):(?P<port>[0-9]{1,5})")


class InvalidAddress(ValueError):
    """The text is no address; the message says why and what one looks like."""


def check_address(text: str, *, bindable: bool = False) -> str:
    """The address itself, if it is one; raises :class:`InvalidAddress`.

    Port 0, "any free one", is an address to listen on (``bindable``) and none to connect to.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise InvalidAddress("is no address: write host:port, such as 127.0.0.1:7600 or [::1]:7600")
    port = int(match["port"])
    if port > 65535 or (port == 0 and not bindable):
        raise InvalidAddress(f"has a port that is not in {0 if bindable else 1} to 65535")
    return text


def split_address(address: str) -> tuple[str, int]:
    """Host, without brackets, and port of an address that was checked."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def with_port(address: str, port: int) -> str:
    """The address with another port: what an address with port 0 became when it was bound."""
    return f"{address.rpartition(':')[0]}:{port}"


def same_listener(one: str, other: str) -> bool:
    """Whether two addresses that were checked are plainly the same: one host and port, or one port and two
    names of this machine. No name is looked up.
    """
    (host, port), (other_host, other_port) = split_address(one), split_address(other)
    return port == other_port and (host == other_host or {host, other_host} <= _THIS_MACHINE)
