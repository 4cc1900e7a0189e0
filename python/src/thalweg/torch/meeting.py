"""Rendezvous of the ranks of a group."""

from __future__ import annotations

import collections
import logging
import os
import secrets
import socket
import typing

from .. import _core
from . import errors, reach
from .settings import Settings
from .waiting import Limits, Waiting

_log = logging.getLogger("thalweg")

# Longest time that a server accepts for a job's deadlines. The group ends operations whose time is over, since their
# timeouts may change: the session would fail those that may take longer than the group's first timeout.
_LONGEST_S = 86_400.0
# Shortest time that a server accepts for a deadline, in whole milliseconds.
_SHORTEST_S = 0.001
# Time that the server has to report who is missing when the time to join is over.
_GRACE_S = 2.0
# The ID that torchrun gives to every run without one.
_NO_RUN_ID = "none"
# Addresses at which groups of this process have served metrics.
_served: set[str] = set()
# Jobs that this process has named, by name: a group that is made again must not meet its predecessor.
_named: collections.Counter[str] = collections.Counter()


class Daemons:
    """The servers and switches that this process starts for its groups.

    Groups may need different ones: sub-groups reach this process at other addresses. All of them stay until the process
    ends, since older groups go on using theirs.
    """

    def __init__(self) -> None:
        self._started: dict[tuple[object, ...], _Started] = {}

    def open(self, address: str, settings: Settings) -> dict[str, str | None]:
        """Starts a server, and a switch if the settings name none, unless they run already. Returns their addresses."""
        # Without a file, the secret is random and any will do.
        secret, token = settings.secret(), settings.token_text()
        key = (address, settings.switch, secret if settings.secret_file else None, token)
        if key not in self._started:
            self._started[key] = _Started(address, settings.switch, secret, token or secrets.token_hex(16))
        return self._started[key].place


class _Started:
    """A server, and a switch where none is named."""

    def __init__(self, address: str, switch: str | None, secret: bytes, token: str) -> None:
        self._switch = _core.Switch(f"{address}:0", secret) if switch is None else None
        switch = self._switch.address if self._switch is not None else switch
        self._server = _core.Server(f"{address}:0", secret, token, switch)
        self._place = {"server": self._server.address, "switch": switch, "token": token}

    @property
    def place(self) -> dict[str, str | None]:
        """Where they are, and the token of the server."""
        return dict(self._place)


_daemons = Daemons()


class Rendezvous(typing.NamedTuple):
    """What torch gives to a group that is made."""

    store: typing.Any
    rank: int
    ranks: int
    group: str
    timeout_s: float


class Met(typing.NamedTuple):
    """The session of a rank, and what all ranks have as rank 0 has it."""

    session: _core.Session
    gpu_piece_bytes: int


# spec: E-02
def meet(given: Rendezvous, settings: Settings) -> Met:
    """Finds the other ranks through the store, and joins the job with them."""
    operation_s = settings.operation_timeout or given.timeout_s
    stall_s = settings.stall_after or min(5.0, operation_s / 2)
    limits = Limits(settings.join_timeout or given.timeout_s, settings.failure_after, stall_s)
    bind = _bind_address(settings)
    addresses = [bind] if bind else reach.own_addresses()
    with Waiting(given.store, given.rank, given.ranks, limits, addresses, bind) as store:
        place = _place(store, given, settings, addresses)
        left_s = store.left_s()
    try:
        session = _core.Session(
            place["server"],
            place["job"],
            given.rank,
            given.ranks,
            switch=settings.switch or place["switch"],
            token=settings.token_text() or place["token"],
            ca_file=settings.ca_file,
            bind=bind,
            ports=settings.ports,
            threads=settings.threads,
            link_rate_mbps=settings.link_rate_mbps,
            paths=settings.paths,
            numeric=settings.numeric,
            collective=_collective(settings),
            share_memory=settings.share_memory,
            agent=settings.agent if settings.pacing == "scheduled" else None,
            failure_after_s=settings.failure_after,
            stall_after_s=stall_s,
            # The same at all ranks. A rank that waited for rank 0 has less time left than that.
            join_timeout_s=place["join_timeout"],
            # Beyond it, so that the server can say which ranks are missing.
            join_limit_s=left_s + _GRACE_S,
            operation_timeout_s=_LONGEST_S,
            metrics=_metrics_address(settings.metrics),
        )
    except _core.SessionError as error:
        server_of_rank_0 = place["server"] if settings.server is None else None
        failure = errors.of_core(error, "join", server_of_rank_0)
        raise failure from failure.__cause__
    return Met(session, place["gpu_piece_bytes"])


def _bind_address(settings: Settings) -> str | None:
    if settings.interface is None:
        return settings.bind
    return reach.address_of(settings.interface)


def _metrics_address(metrics: str | None) -> str | None:
    """The address at which a group serves metrics. At a fixed port only the first group of a process does."""
    host, colon, port = (metrics or "").rpartition(":")
    if not colon or not port.isdigit() or port == "0":
        return metrics
    at = int(port) + int(os.environ.get("LOCAL_RANK", "0"))
    address = f"{host}:{at}"
    if address in _served and not _is_free(host, at):
        _log.info("metrics of a further group are not served, %s is taken: a port of 0 is any free one", address)
        return None
    _served.add(address)
    return address


def _is_free(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
        return True
    except OSError:
        return False


def _collective(settings: Settings) -> str:
    """A switch that rank 0 starts is on no path: all sums would crowd into the link of one host."""
    is_embedded = settings.server is None and settings.switch is None
    return "direct" if settings.collective == "auto" and is_embedded else settings.collective


def _place(store: Waiting, given: Rendezvous, settings: Settings, addresses: list[str]) -> typing.Any:
    """Address of the server and name of the job: rank 0 publishes them, and the others read them."""
    address = None
    if settings.server is None:
        address = reach.choose(store, given.rank, given.ranks, addresses)
    if given.rank > 0:
        return store.get("place", 0)
    place: dict[str, object]
    if address is not None:
        place = {**_daemons.open(address, settings)}
    else:
        place = {"server": settings.server, "switch": settings.switch, "token": settings.token_text()}
    place["gpu_piece_bytes"] = settings.gpu_piece_bytes
    place["job"] = _job_name(settings.job, given.group)
    _log.info("server %s, switch %s, job %s", place["server"], place["switch"], place["job"])
    # What is left of the time to join.
    place["join_timeout"] = min(max(store.left_s(), _SHORTEST_S), _LONGEST_S)
    store.set("place", place)
    return place


# spec: E-10
def _job_name(job: str | None, group: str) -> str:
    """The name of the job of a group: that of the settings or of torchrun's run, the same after a restart.

    Otherwise it is random, since other jobs may use the same server.
    """
    run = os.environ.get("TORCHELASTIC_RUN_ID", _NO_RUN_ID)
    if job is None and run == _NO_RUN_ID:
        return f"torch-{secrets.token_hex(8)}"
    name = f"{job or f'torch-{run}'}/{group}"
    _named[name] += 1
    return name if _named[name] == 1 else f"{name}/{_named[name]}"
