"""Rendezvous of the ranks of a group."""

from __future__ import annotations

import collections
import logging
import os
import secrets
import typing

from .. import _core
from . import errors, reach
from .settings import Settings
from .waiting import Waiting

_log = logging.getLogger("thalweg")

# Longest time that a server accepts for a job's deadlines. The group ends operations whose time is over, since their
# timeouts may change: the session would fail those that may take longer than the group's first timeout.
_LONGEST_S = 86_400.0
# The ID that torchrun gives to every run without one.
_NO_RUN_ID = "none"
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
    with Waiting(given.store, given.rank, given.ranks, limit_s, settings.failure_after) as store:
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
        server_of_rank_0 = place["server"] if settings.server is None else None
        raise errors.of_core(error, "join", server_of_rank_0) from None


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
    """The name of the job of a group: that of the settings or of torchrun's run, the same after a restart.

    Otherwise it is random, since other jobs may use the same server.
    """
    run = os.environ.get("TORCHELASTIC_RUN_ID", _NO_RUN_ID)
    if job is None and run == _NO_RUN_ID:
        return f"torch-{secrets.token_hex(8)}"
    name = f"{job or f'torch-{run}'}/{group}"
    _named[name] += 1
    return name if _named[name] == 1 else f"{name}/{_named[name]}"
