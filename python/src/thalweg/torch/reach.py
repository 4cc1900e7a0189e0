"""Choice of an address of rank 0 that all others can reach.

Hosts have several addresses: of a management network, of containers, of the fast network. Their order
says nothing. So rank 0 listens, every other rank tries all of its addresses, and the first that all of them have
reached is taken. A word that only this group knows shows that rank 0 answered, and not another program's port.
"""

from __future__ import annotations

import fcntl
import logging
import secrets
import socket
import struct
import threading
import typing

from . import errors

if typing.TYPE_CHECKING:
    from .waiting import Waiting

_log = logging.getLogger("thalweg")

_LOOPBACK = "127.0.0.1"
_TRY_S = 2.0
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


def choose(store: Waiting, rank: int, ranks: int, bind: str | None = None) -> str | None:
    """Called by all ranks. Rank 0 gets the address, one of its own or `bind`, the others get ``None``."""
    if ranks == 1:
        return bind or _LOOPBACK
    if rank == 0:
        return _offer(store, ranks, [bind] if bind else own_addresses())
    offer = store.get("thalweg/offer", 0)
    reached = _reached(offer)
    store.set(f"thalweg/reached/{rank}", [socket.gethostname(), reached])
    return None


def _reached(offer: dict[str, typing.Any]) -> list[str]:
    """The addresses of rank 0 that answer. They are tried at once, and Ctrl-C waits for none of them."""
    answered: set[str] = set()

    def attempt(address: str) -> None:
        if _answers(address, offer):
            answered.add(address)

    addresses = offer["addresses"]
    threads = [threading.Thread(target=attempt, args=(address,), daemon=True) for address in addresses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [address for address in addresses if address in answered]


def _offer(store: Waiting, ranks: int, addresses: list[str]) -> str:
    word = secrets.token_hex(16)
    with socket.create_server(("", 0), backlog=ranks * len(addresses)) as listener:
        stop = threading.Event()
        thread = threading.Thread(target=_greet, args=(listener, word, stop), daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        try:
            store.set("thalweg/offer", {"addresses": addresses, "port": port, "word": word})
            answers = {r: store.get(f"thalweg/reached/{r}", r) for r in range(1, ranks)}
        finally:
            stop.set()
            thread.join()
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


def _greet(listener: socket.socket, word: str, stop: threading.Event) -> None:
    listener.settimeout(0.1)
    while not stop.is_set():
        try:
            connection, _ = listener.accept()
        except OSError:
            continue
        with connection:
            try:
                connection.sendall(word.encode())
            except OSError:
                continue  # it has gone


def _answers(address: str, offer: dict[str, typing.Any]) -> bool:
    word = offer["word"].encode()
    try:
        with socket.create_connection((address, offer["port"]), timeout=_TRY_S) as connection:
            received = b""
            while len(received) < len(word):
                piece = connection.recv(len(word) - len(received))
                if not piece:
                    break
                received += piece
            return bool(received == word)
    except OSError:
        return False
