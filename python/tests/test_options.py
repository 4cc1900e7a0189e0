"""Settings of a group: from where they come, and that they reach the session."""

from __future__ import annotations

import collections
import datetime
import json
import pickle
import shutil
import socket
import subprocess
import threading
import typing
import urllib.request
import warnings

import pytest
import torch
import torch.distributed as dist

import thalweg
import thalweg.torch
from thalweg.torch import Options, Settings
from thalweg.torch.options import Given
from thalweg.torch.settings import NAMES

SECRET = bytes(range(16))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """No file of the working directory is read."""
    monkeypatch.chdir(tmp_path)


def test_options_win_over_the_environment_and_that_over_the_file(tmp_path, monkeypatch):
    file = tmp_path / "thalweg.toml"
    file.write_text('server = "a:1"\nswitch = "b:2"\nthreads = 2\nstall_after = 3\nshare_memory = false\n')
    monkeypatch.setenv("THALWEG_SWITCH", "c:3")
    monkeypatch.setenv("THALWEG_THREADS", "4")
    found = Settings.load(Options(threads=5, failure_after=datetime.timedelta(seconds=7)))
    assert (found.server, found.switch, found.threads) == ("a:1", "c:3", 5)
    assert (found.stall_after, found.failure_after, found.share_memory) == (3.0, 7.0, False)
    assert Settings.load() == Settings("a:1", "c:3", threads=4, stall_after=3.0, share_memory=False)


def test_every_setting_has_an_option_a_field_and_a_line_of_the_manual():
    given = Options(**{name: "1" for name in NAMES}).given
    assert set(given) == set(NAMES) == set(Settings.__dataclass_fields__) == set(Given.__annotations__)
    assert all(f"``{name}``" in thalweg.torch.settings.__doc__ for name in NAMES)
    assert "secret" not in repr(Options(token="secret"))


@pytest.mark.parametrize(
    "given, hint",
    [
        ({"pacing": "agent"}, "choose off or scheduled"),
        ({"paths": 0}, "paths is 0: choose 1 or more"),
        ({"sever": "a:1"}, "unknown setting sever"),
        ({"threads": 0}, "1 or more"),
        ({"threads": "two"}, "has to be a number"),
        ({"stall_after": 0}, "above 0"),
        ({"token": "a", "token_file": "b"}, "both set"),
        ({"interface": "lo", "bind": "127.0.0.1"}, "both set"),
        ({"ca_file": "ca.pem"}, "set server"),
        ({"server": "a:1", "ca_file": "none.pem"}, "no such file"),
        ({"server": "a:1", "secret_file": "none"}, "set server or secret_file"),
        ({"share_memory": "maybe"}, "share_memory is 'maybe'"),
    ],
)
def test_invalid_settings_are_named(given, hint):
    with pytest.raises(ValueError, match=hint):
        Settings.load(Options(**given))


@pytest.mark.parametrize("word, expected", [("off", False), ("No", False), ("0", False), ("on", True), (True, True)])
def test_flags_are_words(word, expected):
    assert Settings.load(Options(share_memory=word)).share_memory is expected


def test_the_timeout_of_torchs_own_options_counts_where_torch_was_given_none():
    from thalweg.torch.timeouts import of_group

    minute, default = datetime.timedelta(minutes=1), dist.constants.default_pg_timeout
    options = Options()
    assert of_group(default, None) == of_group(default, options) == default
    options._timeout = minute
    assert of_group(default, options) == of_group(minute, options) == minute
    with pytest.warns(UserWarning, match="has no effect beside timeout"):
        assert of_group(2 * minute, options) == 2 * minute


def _with_token(rank: int, ranks: int) -> dict[str, object]:
    group = dist.new_group(backend="thalweg", pg_options=Options(token="sesame"))
    total = torch.ones(10)
    dist.all_reduce(total, group=group)
    assert (total == ranks).all()
    return group.settings()


def test_a_server_that_rank_0_starts_asks_for_the_token_of_the_settings(run):
    assert [found["token"] for found in run(2, _with_token)] == ["sesame", "sesame"]


def _scraped(rank: int, ranks: int) -> list[str]:
    texts = []
    for _ in range(2):
        group = dist.new_group(backend="thalweg", pg_options=Options(metrics="127.0.0.1:0", job="seen"))
        dist.all_reduce(torch.ones(10), group=group)
        with urllib.request.urlopen(f"http://{group.settings()['metrics']}/metrics", timeout=10) as answer:
            texts.append(answer.read().decode())
    dist.barrier()
    return texts


def test_sessions_and_daemons_serve_metrics(run):
    for rank, texts in enumerate(run(2, _scraped)):
        assert all('job_name="seen/' in text and f'rank="{rank}"' in text for text in texts), texts[0]
    switch = thalweg.Switch("127.0.0.1:0", SECRET, metrics="127.0.0.1:0")
    server = thalweg.Server("127.0.0.1:0", SECRET, metrics="127.0.0.1:0")
    for daemon, role in ((switch, "switch"), (server, "server")):
        with urllib.request.urlopen(f"http://{daemon.metrics_address}/metrics", timeout=10) as answer:
            assert f'thalweg_build_info{{role="{role}",address="{daemon.address}"' in answer.read().decode()
    with pytest.raises(OSError, match="cannot serve metrics"):
        thalweg.Switch("127.0.0.1:0", SECRET, metrics=switch.metrics_address)
    server.stop()
    switch.stop()
    assert thalweg.Switch("127.0.0.1:0", SECRET).metrics_address is None


def test_the_port_of_metrics_is_that_of_the_local_rank(monkeypatch):
    from thalweg.torch import meeting

    monkeypatch.setattr(meeting, "_served", set())
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert meeting._metrics_address(None) is None
    assert meeting._metrics_address("127.0.0.1:0") == "127.0.0.1:0"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        # The error of a port that another process has comes from the session.
        assert meeting._metrics_address(f"127.0.0.1:{port - 3}") == f"127.0.0.1:{port}"
        assert meeting._metrics_address(f"127.0.0.1:{port - 3}") is None, "a group of this process has it"
    assert meeting._metrics_address(f"127.0.0.1:{port - 3}") == f"127.0.0.1:{port}"


def test_names_that_moved_work_and_warn():
    with pytest.warns(DeprecationWarning, match="thalweg.tolerance.Drop"):
        assert thalweg.torch.Drop is thalweg.tolerance.Drop
    with pytest.warns(DeprecationWarning, match="BoundedLossState"):
        hook = thalweg.torch.ddp_hook(loss=0.2)
    assert hook.tally.max_missing == 0.2
    assert not hasattr(thalweg, "Session")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(AttributeError):
            _ = thalweg.torch.nothing


# spec: E-07 sockets
def test_errors_are_those_of_torch_and_cross_processes():
    error = thalweg.torch.OperationTimeoutError("it timed out", ranks=[2, 1], operation="all_reduce", since=3.5)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), "it timed out")
    assert (again.ranks, again.operation, again.since) == ((1, 2), "all_reduce", 3.5)
    for kind in (dist.DistBackendError, RuntimeError, TimeoutError, thalweg.SessionError):
        assert isinstance(error, kind)


def _readings(rank: int, ranks: int, given: dict[str, typing.Any]) -> list[dict[str, object]]:
    groups = [dist.new_group(backend="thalweg", pg_options=Options(**given)) for _ in range(2)]
    for group in groups:
        total = torch.full((3_000,), 1.0 + rank)
        dist.all_reduce(total, group=group)
        assert (total == 3).all()
    return [group.settings() for group in groups]


def _certificate(folder) -> tuple[str, str]:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    command += ["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", cert]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def test_every_setting_reaches_the_session(run, tmp_path):
    certificate = _certificate(tmp_path)
    switch = thalweg.Switch("127.0.0.1:0", SECRET)
    server = thalweg.Server("127.0.0.1:0", SECRET, "sesame", switch.address, certificate)
    (tmp_path / "token").write_text("sesame\n")
    given = {
        "server": server.address,
        "switch": switch.address,
        "token_file": str(tmp_path / "token"),
        "ca_file": certificate[0],
        "job": "resnet",
        "interface": "lo",
        "ports": "20000-40000",
        "threads": 2,
        "link_rate_mbps": 1_000,
        "paths": 4,
        "numeric": "fixed:1000000",
        "collective": "aggregate",
        "share_memory": False,
        "failure_after": 7.0,
        "stall_after": 3.0,
        "join_timeout": 50.0,
        "operation_timeout": 40.0,
    }
    expected = {name: value for name, value in given.items() if name not in ("token_file", "interface", "job")}
    expected |= {"token": "sesame", "bind": "127.0.0.1"}
    jobs = set()
    for rank, readings in enumerate(run(2, _readings, given)):
        for found in readings:
            assert {name: found[name] for name in expected} == expected
            assert (found["rank"], found["ranks"]) == (rank, 2)
            jobs.add(found["job"])
    assert len(jobs) == 2 and all(str(job).startswith("resnet/") for job in jobs), jobs
    server.stop()
    switch.stop()


def _agent(path: str, lines: list[dict[str, typing.Any]]) -> socket.socket:
    """An agent that orders classes, and notes what it receives."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def serve(connection: socket.socket) -> None:
        orders = [
            {"say": "welcome", "version": 1, "slot_us": 60_000, "idle_bps": 1_000_000, "by_class": True},
            {"say": "hold", "is_held": True},
            {"say": "class", "class": 2},
        ]
        connection.sendall("".join(json.dumps(order) + "\n" for order in orders).encode())
        lines.extend(json.loads(line) for line in connection.makefile())

    def welcome() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=welcome, daemon=True).start()
    return listener


def _paced(rank: int, ranks: int, agent: str) -> dict[str, object]:
    options = Options(pacing="scheduled", agent=agent, share_memory=False)
    group = dist.new_group(backend="thalweg", pg_options=options)
    for _ in range(3):
        total = torch.full((1_000_000,), 1.0 + rank)
        dist.all_reduce(total, group=group)
        assert (total == 3).all()
    return group.settings()


# spec: C-16, C-18 sockets
def test_a_group_asks_the_agent_of_its_host(run, tmp_path):
    path, lines = str(tmp_path / "agent"), []
    listener = _agent(path, lines)
    found = run(2, _paced, path)
    listener.close()
    assert all((settings["pacing"], settings["agent"]) == ("scheduled", path) for settings in found)
    joins = [line for line in lines if line["say"] == "join"]
    assert len(joins) == 2 and len({line["job"] for line in joins}) == 1, "the ranks are one job"
    assert all(line["classes"] for line in joins)
    assert any(line["say"] == "flow" and line["to"] == "127.0.0.1" for line in lines), lines
    assert any(line["say"] == "report" and line["sent"] > 1_000_000 for line in lines), lines


def test_a_paced_group_without_an_agent_says_how_to_start_one(tmp_path):
    from thalweg.torch import meeting

    group = meeting.Rendezvous(dist.HashStore(), 0, 1, "alone", 20.0)
    options = Options(pacing="scheduled", agent=str(tmp_path / "nobody"))
    with pytest.raises(dist.DistBackendError, match="start one with `thalweg agent`"):
        meeting.meet(group, Settings.load(options))


# spec: F-04 sockets
@pytest.mark.parametrize("given", [None, 3])
def test_a_session_has_the_threads_of_the_library_unless_they_are_set(monkeypatch, given):
    from thalweg.torch import meeting

    passed = {}

    def session(*place: typing.Any, **settings: typing.Any) -> thalweg._core.Session:
        passed.update(settings)
        return joined(*place, **settings)

    joined = thalweg._core.Session
    monkeypatch.setattr(meeting._core, "Session", session)
    group = meeting.Rendezvous(dist.HashStore(), 0, 1, "alone", 20.0)
    alone = meeting.meet(group, Settings.load(Options(threads=given))).session
    found = alone.settings()["threads"]
    alone.leave()
    # A rank alone has one thread: what the library is asked for tells defaults apart.
    assert passed["threads"] == given
    assert found == (given or 1)


def test_jobs_have_the_name_of_the_run_where_it_has_one(monkeypatch):
    from thalweg.torch import meeting

    monkeypatch.setattr(meeting, "_named", collections.Counter())
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "night")
    names = [meeting._job_name(job, group) for job in (None, "resnet") for group in ("0", "1", "0")]
    assert names[:3] == ["torch-night/0", "torch-night/1", "torch-night/0/2"]
    assert names[3:] == ["resnet/0", "resnet/1", "resnet/0/2"]
    # Every run of torchrun without an ID has this one.
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert meeting._job_name(None, "0") != meeting._job_name(None, "0")


def test_former_names_of_settings_work_and_are_warned_of():
    server = thalweg.Server("127.0.0.1:0", SECRET)
    with pytest.warns(DeprecationWarning, match="patience_s is now called operation_timeout_s"):
        session = thalweg._core.Session(server.address, "old", 0, 1, patience_s=7.0)
    assert session.settings()["operation_timeout"] == 7.0
    session.leave()
    server.stop()


@pytest.mark.parametrize(
    "bind, error, hint",
    [("nowhere!", ValueError, "bind is"), ("192.0.2.1", thalweg.torch.ThalwegError, "cannot listen")],
)
def test_an_address_that_is_no_own_one_is_named(bind, error, hint):
    from thalweg.torch.meeting import Rendezvous, meet

    with pytest.raises(error, match=hint):
        meet(Rendezvous(dist.HashStore(), 0, 1, "alone", 5.0), Settings.load(Options(bind=bind)))


def test_files_that_others_can_read_cause_a_warning(tmp_path, caplog):
    token, secret = tmp_path / "token", tmp_path / "secret"
    token.write_text("sesame\n")
    secret.write_text(SECRET.hex())
    for mode, warned in ((0o600, 0), (0o644, 2)):
        token.chmod(mode)
        secret.chmod(mode)
        caplog.clear()
        with caplog.at_level("WARNING", logger="thalweg"):
            assert Settings(token_file=str(token)).token_text() == "sesame"
            assert Settings(secret_file=str(secret)).secret() == SECRET
        found = [record.getMessage() for record in caplog.records]
        assert len(found) == warned, found
        assert all("0644" in text and "chmod 600" in text for text in found)
