"""Connections between ranks that join. They are the evidence that a process died.

Every rank listens while it joins, and writes into the store where. A rank died if its connection closed without a
goodbye, if its kernel no longer answers, or if its kernel refuses connections to the port where it listened. The
kernel of a process that is stopped keeps its connections and answers for it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import secrets
import selectors
import socket
import threading
import typing
import weakref

from . import errors

# Time that an address has to accept a connection.
TRY_S = 2.0
_GOODBYE = b"."
# Time between two probes of the kernel, on a connection without traffic.
_PROBE_EVERY_S = 1
_CLOSED = "its connection closed without a goodbye"
_REFUSED = "its host refuses connections to the port where it listened"
# Links of this process. A forked child closes its copies: they would keep connections of a dead parent open.
_open: weakref.WeakSet[Links] = weakref.WeakSet()


class Contact(typing.TypedDict):
    """Where a rank listens, as the store has it."""

    #: Host and process, for messages.
    host: str
    addresses: list[str]
    port: int
    #: Text that only this rank sends: another program may listen at the same address of another host.
    word: str


class Links:
    """Connections of one rank to others, those that it made and those that it accepted."""

    def __init__(self, rank: int, bind: str | None, failure_after_s: float, backlog: int) -> None:
        self._rank, self._failure_after_s = rank, failure_after_s
        self._listener = _listener(bind, backlog)
        self._word = secrets.token_hex(16)
        self._accepted: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        self._selector = selectors.DefaultSelector()
        self._linked: set[int] = set()
        self._probes: dict[int, Attempts] = {}
        _open.add(self)

    def contact(self, addresses: list[str]) -> Contact:
        """The record for the other ranks."""
        host = f"{socket.gethostname()}, process {os.getpid()}"
        port = self._listener.getsockname()[1]
        return {"host": host, "addresses": addresses, "port": port, "word": self._word}

    def accept(self, limit_s: float) -> None:
        """Waits for a connection, and sends the word to it. Called by a thread of its own."""
        self._listener.settimeout(limit_s)
        try:
            connection, _ = self._listener.accept()
            connection.sendall(self._word.encode())
        except OSError:
            return  # Nobody came, or has gone already.
        self._accepted.put(connection)

    def connect(self, contact: Contact) -> Attempts:
        """Begins to connect to a rank, at all of its addresses."""
        return Attempts(contact, self._failure_after_s)

    def adopt(self, rank: int, attempts: Attempts) -> None:
        """Keeps the connection over which a rank answered, if there is one."""
        connection = attempts.take()
        if connection is not None:
            # The other side learns whose connection it is. One that has closed is noticed soon.
            with contextlib.suppress(OSError):
                connection.sendall(f"{self._rank}\n".encode())
            self._watch(_Link(connection, rank))

    def lost(self) -> dict[int, str]:
        """Ranks whose connections ended without a goodbye, with the evidence."""
        while not self._accepted.empty():
            connection = self._accepted.get()
            _answer_for(connection, self._failure_after_s)
            self._watch(_Link(connection))
        lost = {}
        for key, _ in self._selector.select(0):
            link: _Link = key.data
            end = link.read()
            if link.rank is not None:
                self._linked.add(link.rank)
            if end is None:
                continue
            self._selector.unregister(link.connection)
            link.connection.close()
            if end and link.rank is not None:
                lost[link.rank] = end
        return lost

    # spec: E-01
    def probe(self, rank: int, contact: Contact) -> str | None:
        """Looks for evidence that a rank without connection died. Called again and again."""
        if rank in self._linked:
            return None  # The end of its connection is the evidence.
        if rank not in self._probes:
            self._probes[rank] = self.connect(contact)
            return None
        attempts = self._probes[rank]
        if attempts.answered():
            self.adopt(rank, self._probes.pop(rank))
        elif attempts.are_decided():
            self._probes.pop(rank).take()
            return _REFUSED if attempts.are_refused() else None
        return None

    def refuse(self) -> None:
        """Accepts no connection any more. A thread that waits for one returns."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Says goodbye on all connections, and closes them."""
        self._listener.close()
        for attempts in self._probes.values():
            attempts.take(says_goodbye=True)
        self.lost()
        for key in list(self._selector.get_map().values()):
            _part(key.data.connection)
        self._selector.close()
        _open.discard(self)

    def _watch(self, link: _Link) -> None:
        link.connection.setblocking(False)
        if link.rank is not None:
            self._linked.add(link.rank)
        self._selector.register(link.connection, selectors.EVENT_READ, link)

    def _close_copies(self) -> None:
        self._listener.close()
        for key in list(self._selector.get_map().values()):
            key.data.connection.close()


class _Link:
    """A connection to a rank. One that was accepted names its rank first."""

    def __init__(self, connection: socket.socket, rank: int | None = None) -> None:
        self.connection, self.rank = connection, rank
        self._received = b""

    def read(self) -> str | None:
        """``None`` while it is open, else why it ended. Empty after a goodbye."""
        try:
            piece = self.connection.recv(64)
        except BlockingIOError:
            return None
        except OSError as error:
            is_silent = error.errno in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
            return f"its host no longer answers ({error.strerror})" if is_silent else _CLOSED
        if not piece:
            return _CLOSED
        self._received = (self._received + piece)[-64:]
        name, line, _ = self._received.partition(b"\n")
        if self.rank is None and line and name.isdigit():
            self.rank = int(name)
        return "" if self._received.endswith(_GOODBYE) else None


class Attempts:
    """Connections to one rank that are being made, one for each of its addresses, at once."""

    def __init__(self, contact: Contact, failure_after_s: float) -> None:
        self._all = [_Attempt(address, contact, failure_after_s) for address in contact["addresses"]]

    def answered(self) -> list[str]:
        """The addresses at which the rank answered."""
        return [attempt.address for attempt in self._all if attempt.state == "answered"]

    def are_decided(self) -> bool:
        """Whether no address may answer any more that has not."""
        return not any(attempt.state in ("connecting", "silent") for attempt in self._all)

    def are_refused(self) -> bool:
        """Whether the kernel refused the connection at every address."""
        return all(attempt.state == "refused" for attempt in self._all)

    def take(self, says_goodbye: bool = False) -> socket.socket | None:
        """The first connection over which the rank answered. The others are closed."""
        found = None
        for attempt in self._all:
            connection = attempt.give()
            if connection is None:
                continue
            if found is None and attempt.state == "answered" and not says_goodbye:
                found = connection
            else:
                _part(connection)
        return found


class _Attempt:
    """A connection to one address of a rank."""

    def __init__(self, address: str, contact: Contact, failure_after_s: float) -> None:
        self.address = address
        #: ``connecting``, ``refused`` by the kernel, ``silent`` while no word came, ``answered``, or ``failed``.
        self.state = "connecting"
        self._connection: socket.socket | None = None
        self._is_given = False
        self._lock = threading.Lock()
        threading.Thread(target=self._run, args=(contact, failure_after_s), daemon=True).start()

    def give(self) -> socket.socket | None:
        """Hands out the connection, now or not at all."""
        with self._lock:
            self._is_given = True
            return self._connection

    def _run(self, contact: Contact, failure_after_s: float) -> None:
        try:
            connection = socket.create_connection((self.address, contact["port"]), timeout=TRY_S)
        except OSError as error:
            self.state = "refused" if isinstance(error, ConnectionRefusedError) else "failed"
            return
        with self._lock:
            if self._is_given:
                connection.close()
                return
            self._connection = connection
        try:
            connection.settimeout(None)
            _answer_for(connection, failure_after_s)
            self.state = "silent"
            word = contact["word"].encode()
            self.state = "answered" if _received(connection, len(word)) == word else "failed"
        except OSError:
            self.state = "failed"


def _listener(bind: str | None, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if bind is not None and ":" in bind else socket.AF_INET
    try:
        socket.getaddrinfo(bind, 0, family, socket.SOCK_STREAM)
    except socket.gaierror:
        raise ValueError(f'bind is "{bind}": write an address as 10.0.0.1') from None
    try:
        return socket.create_server((bind or "", 0), family=family, backlog=backlog)
    except OSError as error:
        text = f"cannot listen at {bind or 'any address'}: {error}"
        raise errors.ThalwegError(text, operation="join", kind="system") from error


def _received(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            break
        received += piece
    return received


def _answer_for(connection: socket.socket, failure_after_s: float) -> None:
    """Has the kernel notice, within `failure_after_s`, a host that no longer answers."""
    probes = max(1, int(failure_after_s / _PROBE_EVERY_S) - 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _PROBE_EVERY_S),
        (socket.TCP_KEEPINTVL, _PROBE_EVERY_S),
        (socket.TCP_KEEPCNT, probes),
        (socket.TCP_USER_TIMEOUT, int(failure_after_s * 1_000)),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _part(connection: socket.socket) -> None:
    """Ends a connection with a goodbye, also one that a thread reads from."""
    with contextlib.suppress(OSError):
        connection.setblocking(False)
        connection.send(_GOODBYE)
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _close_copies() -> None:
    for links in list(_open):
        links._close_copies()


os.register_at_fork(after_in_child=_close_copies)
