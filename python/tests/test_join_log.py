"""A rank that waits for others to join logs which ones."""

from __future__ import annotations

import concurrent.futures
import logging
import time
import typing

import pytest
from conftest import Daemons

from thalweg import _core

# How long a record may take on a busy machine.
SOON_S = 30


@pytest.fixture
def daemons(monkeypatch) -> typing.Iterator[Daemons]:
    started = Daemons(monkeypatch, sets_environment=False)
    yield started
    started.stop()


def _has_logged(caplog: pytest.LogCaptureFixture, level: int, text: str) -> bool:
    until = time.monotonic() + SOON_S
    while time.monotonic() < until:
        found = [(record.levelno, record.getMessage()) for record in list(caplog.records)]
        if any(logged == level and message.startswith(text) for logged, message in found):
            return True
        time.sleep(0.05)
    return False


# spec: E-02 sockets
def test_the_ranks_that_are_missing_are_logged_while_a_rank_joins(daemons, caplog):
    caplog.set_level(logging.INFO, logger="thalweg")

    def join(rank: int) -> _core.Session:
        return _core.Session(daemons.server.address, "gathers", rank, 3, token="test", stall_after_s=1.0)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        ranks = [pool.submit(join, 0)]
        assert _has_logged(caplog, logging.INFO, "waiting for ranks [1, 2] to join"), caplog.text
        ranks.append(pool.submit(join, 1))
        assert _has_logged(caplog, logging.INFO, "waiting for ranks [2] to join"), caplog.text
        # A wait that is longer than `stall_after_s` needs attention.
        assert _has_logged(caplog, logging.WARNING, "waiting for ranks [2] to join for "), caplog.text
        assert not any(rank.done() for rank in ranks), "they still wait"
        ranks.append(pool.submit(join, 2))
        for session in [rank.result() for rank in ranks]:
            session.abort("the test is over")
