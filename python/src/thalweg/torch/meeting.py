"""How the ranks of a group come together."""

from __future__ import annotations

import json
import logging
import secrets
import typing

from .. import _core
from . import reach
from .settings import Settings

_log = logging.getLogger("thalweg")


class House:
    """The switch and the server that this process brings along, for all of its groups."""

    def __init__(self) -> None:
        self._switch: _core.Switch | None = None
        self._server: _core.Server | None = None
        self._token = secrets.token_hex(16)
        self._at: str | None = None

    def open(self, address: str, settings: Settings) -> dict:
        """Starts them if they are not there, and says where they are."""
        if self._server is None or self._at != address:
            secret, switch = settings.secret(), settings.switch
            if switch is None:
                self._switch = _core.Switch(f"{address}:0", secret)
                switch = self._switch.address
            self._server = _core.Server(f"{address}:0", secret, self._token, switch)
            self._at = address
        switch = settings.switch or (self._switch.address if self._switch else None)
        return {"server": self._server.address, "switch": switch, "token": self._token}


_house = House()


def meet(
    store: typing.Any, rank: int, ranks: int, timeout_s: float, settings: Settings
) -> _core.Session:
    """Finds the others through the store, and joins the job with them."""
    place = _place(store, rank, ranks, settings)
    return _core.Session(
        place["server"],
        place["job"],
        rank,
        ranks,
        switch=settings.switch or place["switch"],
        token=place["token"],
        patience_s=timeout_s,
        stall_s=min(5.0, timeout_s / 2),
        collective=_collective(settings),
        share_memory=settings.share_memory,
    )


def _collective(settings: Settings) -> str:
    """A switch that rank 0 brings along is on no path: all sums would crowd into one host's link."""
    is_embedded = settings.server is None and settings.switch is None
    return "server" if settings.collective == "auto" and is_embedded else settings.collective


def _place(store: typing.Any, rank: int, ranks: int, settings: Settings) -> dict:
    """Where the server is, what the job is called: rank 0 says so, and the others read it."""
    if settings.server is None:
        address = reach.choose(store, rank, ranks)
    if rank > 0:
        return json.loads(store.get("thalweg/place"))
    if settings.server is None:
        place = _house.open(address, settings)
    else:
        place = {"server": settings.server, "switch": settings.switch, "token": settings.token}
    place["job"] = f"torch-{secrets.token_hex(8)}"
    _log.info("server %s, switch %s, job %s", place["server"], place["switch"], place["job"])
    store.set("thalweg/place", json.dumps(place))
    return place
