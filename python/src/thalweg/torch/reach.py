"""Which address of rank 0 all others can reach.

Hosts have several addresses: of a management network, of containers, of the fast network. Their order
says nothing. So rank 0 listens, every other rank tries all of its addresses, and what all of them have
reached is taken. A word that only this group knows shows that it was rank 0 who answered, and not
somebody else's port.
"""

from __future__ import annotations

import concurrent.futures
import fcntl
import json
import logging
import secrets
import socket
import struct
import threading
import typing

_log = logging.getLogger("thalweg")

_LOOPBACK = "127.0.0.1"
_TRY_S = 2.0
_SIOCGIFADDR = 0x8915


def own_addresses() -> list[str]:
    """The IPv4 addresses of this host, loopback first."""
    found = [_LOOPBACK]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # it has none
            address = socket.inet_ntoa(answer[20:24])
            if address not in found:
                found.append(address)
    return found


def choose(store: typing.Any, rank: int, ranks: int) -> str | None:
    """Called by all ranks. Rank 0 learns the address, the others get ``None``."""
    if ranks == 1:
        return _LOOPBACK
    if rank == 0:
        return _offer(store, ranks)
    offer = json.loads(store.get("thalweg/offer"))
    with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
        tries = pool.map(lambda address: _answers(address, offer), offer["addresses"])
        reached = [address for address, is_there in zip(offer["addresses"], tries) if is_there]
    store.set(f"thalweg/reached/{rank}", json.dumps([socket.gethostname(), reached]))
    return None


def _offer(store: typing.Any, ranks: int) -> str:
    addresses, word = own_addresses(), secrets.token_hex(16)
    with socket.create_server(("", 0), backlog=ranks * len(addresses)) as listener:
        stop = threading.Event()
        thread = threading.Thread(target=_greet, args=(listener, word, stop), daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        store.set(
            "thalweg/offer", json.dumps({"addresses": addresses, "port": port, "word": word})
        )
        answers = {r: json.loads(store.get(f"thalweg/reached/{r}")) for r in range(1, ranks)}
        stop.set()
        thread.join()
    for address in addresses:
        if all(address in reached for _, reached in answers.values()):
            _log.info("rank 0 is reached at %s (of %s)", address, ", ".join(addresses))
            return address
    lines = [f"rank {r} on {host}: {reached or 'none'}" for r, (host, reached) in answers.items()]
    raise RuntimeError(
        f"no address of rank 0 ({', '.join(addresses)}) is reached by all ranks:\n" + "\n".join(lines)
    )


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


def _answers(address: str, offer: dict) -> bool:
    word = offer["word"].encode()
    try:
        with socket.create_connection((address, offer["port"]), timeout=_TRY_S) as connection:
            heard = b""
            while len(heard) < len(word):
                piece = connection.recv(len(word) - len(heard))
                if not piece:
                    break
                heard += piece
            return heard == word
    except OSError:
        return False
