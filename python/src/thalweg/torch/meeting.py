"""Rendezvous of the ranks of a group."""

from __future__ import annotations

import collections
import datetime
import json
import logging
import secrets
import time
import typing

import torch.distributed as dist

from .. import _core
from . import errors, reach
from .settings import Settings

_log = logging.getLogger("thalweg")

# Longest wait at the store between two looks at signals.
_STORE_POLL_S = 0.5
# Longest time that a server accepts for a job's deadlines. The group ends operations whose time is over, since their
# timeouts may change: the session would fail those that may take longer than the group's first timeout.
_LONGEST_S = 86_400.0
# Jobs that this process has named, by name: a group that is made again must not meet its predecessor.
_named: collections.Counter[str] = collections.Counter()


class Daemons:
    """The switch and the server that this process starts, for all of its groups."""

    def __init__(self) -> None:
        self._switch: _core.Switch | None = None
        self._server: _core.Server | None = None
        self._token = secrets.token_hex(16)
        self._at: str | None = None

    def open(self, address: str, settings: Settings) -> dict[str, str | None]:
        """Starts them if they do not run yet, and returns their addresses."""
        if self._server is None or self._at != address:
            secret, switch = settings.secret(), settings.switch
            if switch is None:
                self._switch = _core.Switch(f"{address}:0", secret)
                switch = self._switch.address
            self._server = _core.Server(f"{address}:0", secret, self._token, switch)
            self._at = address
        switch = settings.switch or (self._switch.address if self._switch else None)
        return {"server": self._server.address, "switch": switch, "token": self._token}


_daemons = Daemons()


class Rendezvous(typing.NamedTuple):
    """What torch gives to a group that is made."""

    store: typing.Any
    rank: int
    ranks: int
    group: str
    timeout_s: float


# spec: E-02
def meet(given: Rendezvous, settings: Settings) -> _core.Session:
    """Finds the other ranks through the store, and joins the job with them."""
    limit_s = settings.join_timeout or given.timeout_s
    store = Waiting(given.store, limit_s)
    bind = _bind_address(settings)
    place = _place(store, given, settings, bind)
    operation_s = settings.operation_timeout or given.timeout_s
    stall_s = settings.stall_after or min(5.0, operation_s / 2)
    try:
        return _core.Session(
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
            numeric=settings.numeric,
            collective=_collective(settings),
            share_memory=settings.share_memory,
            failure_after_s=settings.failure_after,
            stall_after_s=stall_s,
            join_timeout_s=min(limit_s, _LONGEST_S),
            operation_timeout_s=_LONGEST_S,
        )
    except _core.SessionError as error:
        raise errors.of_core(error, "join") from None


class Waiting:
    """A store whose waits end by Ctrl-C, and by a deadline with an error that names what is missing."""

    def __init__(self, store: typing.Any, limit_s: float) -> None:
        self._store = store
        self._ends_at = time.monotonic() + limit_s
        self._limit_s = limit_s

    def set(self, key: str, value: object) -> None:
        """Publishes a value as JSON."""
        self._store.set(key, json.dumps(value))

    def get(self, key: str, rank: int) -> typing.Any:
        """Waits for the value that a rank publishes."""
        while True:
            left_s = self._ends_at - time.monotonic()
            if left_s <= 0:
                text = f"joining timed out: rank {rank} has not come within {self._limit_s:g} s"
                raise errors.OperationTimeoutError(
                    text, ranks=[rank], operation="join", since=self._limit_s
                )
            try:
                # To a store, less than a millisecond is no limit.
                slice_s = max(min(left_s, _STORE_POLL_S), 0.01)
                self._store.wait([key], datetime.timedelta(seconds=slice_s))
                return json.loads(self._store.get(key))
            except dist.DistStoreError as error:
                if "imeout" not in str(error) and "imed out" not in str(error):
                    raise


def _bind_address(settings: Settings) -> str | None:
    if settings.interface is None:
        return settings.bind
    return reach.address_of(settings.interface)


def _collective(settings: Settings) -> str:
    """A switch that rank 0 starts is on no path: all sums would crowd into the link of one host."""
    is_embedded = settings.server is None and settings.switch is None
    return "server" if settings.collective == "auto" and is_embedded else settings.collective


def _place(store: Waiting, given: Rendezvous, settings: Settings, bind: str | None) -> typing.Any:
    """Address of the server and name of the job: rank 0 publishes them, and the others read them."""
    address = None
    if settings.server is None:
        address = reach.choose(store, given.rank, given.ranks, bind)
    if given.rank > 0:
        return store.get("thalweg/place", 0)
    if address is not None:
        place = _daemons.open(address, settings)
    else:
        place = {"server": settings.server, "switch": settings.switch, "token": settings.token_text()}
    place["job"] = _job_name(settings.job, given.group)
    _log.info("server %s, switch %s, job %s", place["server"], place["switch"], place["job"])
    store.set("thalweg/place", place)
    return place


# spec: E-10
def _job_name(job: str | None, group: str) -> str:
    """The name of the job of a group. A random one where none is set: other jobs may use the same server."""
    if job is None:
        return f"torch-{secrets.token_hex(8)}"
    name = f"{job}/{group}"
    _named[name] += 1
    return name if _named[name] == 1 else f"{name}/{_named[name]}"
