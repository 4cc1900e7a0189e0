"""Choice of an address of rank 0 that all others can reach.

Hosts have several addresses: of a management network, of containers, of the fast network. Their order
says nothing. So rank 0 listens, every other rank tries all of its addresses, and the first that all of them have
reached is taken.
"""

from __future__ import annotations

import fcntl
import logging
import socket
import struct
import typing

from . import errors

if typing.TYPE_CHECKING:
    from .waiting import Waiting

_log = logging.getLogger("thalweg")

_LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915


def own_addresses() -> list[str]:
    """The IPv4 addresses of this host, loopback first."""
    found = [_LOOPBACK]
    for _, name in socket.if_nameindex():
        address = _ipv4_of(name)
        if address is not None and address not in found:
            found.append(address)
    return found


def address_of(interface: str) -> str:
    """The IPv4 address of an interface."""
    names = [name for _, name in socket.if_nameindex()]
    if interface not in names:
        raise ValueError(f"there is no interface {interface}; there are {', '.join(names)}")
    address = _ipv4_of(interface)
    if address is None:
        raise ValueError(f"the interface {interface} has no IPv4 address")
    return address


def _ipv4_of(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", interface.encode()[:15])
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return None
        return socket.inet_ntoa(answer[20:24])


def choose(store: Waiting, rank: int, ranks: int, addresses: list[str]) -> str | None:
    """Called by all ranks. Rank 0 gets one of its `addresses`, the others get ``None``."""
    if ranks == 1:
        return addresses[0]
    if rank == 0:
        return _reached_by_all(store, ranks, addresses)
    store.set(f"reached/{rank}", [socket.gethostname(), store.reach(0)])
    return None


def _reached_by_all(store: Waiting, ranks: int, addresses: list[str]) -> str:
    answers = {r: store.get(f"reached/{r}", r) for r in range(1, ranks)}
    for address in addresses:
        if all(address in reached for _, reached in answers.values()):
            _log.info("rank 0 is reached at %s (of %s)", address, ", ".join(addresses))
            return address
    raise _unreachable(addresses, answers)


def _unreachable(addresses: list[str], answers: dict[int, tuple[str, list[str]]]) -> errors.UnreachableError:
    """The error where no address is reached by all, with those ranks that do not reach the best one."""
    without = {
        address: [rank for rank, (_, reached) in answers.items() if address not in reached] for address in addresses
    }
    lines = [f"rank {r} on {host}: {', '.join(reached) or 'none'}" for r, (host, reached) in answers.items()]
    text = f"no address of rank 0 ({', '.join(addresses)}) is reached by all ranks:\n" + "\n".join(lines)
    best = min(addresses, key=lambda address: len(without[address]))
    return errors.UnreachableError(text, ranks=without[best], operation="join")
