"""Models that lose gradients: what is dropped, and which bounds are found."""

from __future__ import annotations

import json
import math
import pathlib
import statistics
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest
import torch
from torch import nn

from thalweg.tolerance import Drop, LossBounds, Trainer, loss_bound, loss_costs

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors are not worth more, and a busy machine makes threads wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _packets(gradient: torch.Tensor, values: int) -> list[bool]:
    """Which packets are gone; none of the values was zero before."""
    parts = [(part == 0) for part in gradient.reshape(-1).split(values)]
    assert all(part.all() or not part.any() for part in parts), "packets are lost as a whole or not at all"
    return [bool(part.all()) for part in parts]


@pytest.mark.parametrize("mode", ["random", "importance"])
@pytest.mark.parametrize("loss", [0.1, 0.35, 0.9])
@pytest.mark.parametrize("packets", [1, 7, 40])
def test_the_share_that_was_asked_for_is_lost_in_the_course_of_the_rounds(mode, loss, packets):
    drop = Drop(loss, mode, packet_values=8)
    lost = [0, 0]
    for _ in range(50):
        for worker in range(2):
            # The last packet is short.
            gradient = drop(torch.rand(8 * packets - 3) + 0.1, "layer.weight", worker)
            lost[worker] += sum(_packets(gradient, 8))
    for count in lost:
        assert abs(count - 50 * packets * loss) < 1
    assert drop.lost == sum(lost) and drop.packets == 100 * packets


def test_packets_are_as_long_as_those_of_the_transport():
    assert sum(_packets(Drop(0.5)(torch.ones(352 * 100)), 352)) in (50, 51)


def test_workers_lose_packets_of_their_own_and_a_seed_repeats_them():
    def lost(seed: int) -> list[list[bool]]:
        drop = Drop(0.3, seed=seed, packet_values=4)
        return [_packets(drop(torch.ones(400), "a", worker), 4) for worker in range(2)]

    assert lost(1) == lost(1)
    assert lost(1) != lost(2)
    assert lost(1)[0] != lost(1)[1]


def _scales(packets: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of packets of 16 values: one in five is a hundred times as large, anywhere; and which."""
    is_large = torch.zeros(packets, dtype=torch.bool)
    is_large[torch.randperm(packets, generator=torch.Generator().manual_seed(0))[: packets // 5]] = True
    return (1 + 99 * is_large.float()).repeat_interleave(16), is_large


def test_small_packets_are_lost_first_and_at_random_among_themselves():
    scales, is_large = _scales(400)
    times = torch.zeros(400)
    drop = Drop(0.2, "importance", packet_values=16)
    for _ in range(50):
        times += torch.tensor(_packets(drop(scales.clone()), 16)).float()
    assert times[is_large].sum() == 0
    # Each of 320 is lost in 12.5 rounds of 50 on average: none is spared, and none always lost.
    assert 0 < times[~is_large].min() and times[~is_large].max() < 30

    gradient = Drop(0.9, "importance", packet_values=16)(scales.clone())
    lost = torch.tensor(_packets(gradient, 16))
    assert lost[~is_large].all() and int(lost[is_large].sum()) in (40, 41)


@pytest.mark.parametrize("mode", ["small", "large"])
def test_one_kind_of_one_layer_can_be_lost(mode):
    scales, is_large = _scales(200)
    subject = is_large if mode == "large" else ~is_large
    drop = Drop(0.5, mode, packet_values=16, layers=["front"])
    assert not any(_packets(drop(scales.clone(), "back.weight"), 16))
    lost = torch.tensor(_packets(drop(scales.clone(), "front.weight"), 16))
    assert drop.packets == subject.sum()
    assert int(lost[subject].sum()) in (drop.packets // 2, drop.packets // 2 + 1)
    assert not lost[~subject].any()


def test_what_is_not_a_number_is_important_and_gradients_may_lie_anywhere():
    gradient = torch.rand(10, 32) + 0.1
    gradient[3] = math.nan
    Drop(0.8, "importance", packet_values=32)(gradient)
    assert gradient[3].isnan().all()
    transposed = (torch.rand(64, 64) + 0.1).t()
    Drop(0.5, packet_values=16)(transposed)
    assert sum(_packets(transposed, 16)) in (128, 129)


def test_nothing_is_lost_without_loss():
    gradient = torch.rand(1_000)
    assert torch.equal(Drop(0)(gradient.clone()), gradient)


def _toy(rounds: int = 40, **more) -> Trainer:
    """Which of two sums is larger: learnt quickly, and forgiving."""
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(1_200, 20, generator=draw)
    answers = (inputs[:, :10].sum(1) > inputs[:, 10:].sum(1)).long()
    data, test = (inputs[:800], answers[:800]), (inputs[800:], answers[800:])

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 2))

    return Trainer(make, data, test, rounds, **more)


def test_without_loss_workers_learn_what_one_learns_from_all_their_examples():
    apart, together = _toy(workers=4, batch=8), _toy(workers=1, batch=32)
    pairs = zip(apart.curve(Drop(0), 1, every=5), together.curve(Drop(0), 1, every=5))
    assert all(abs(one - other) < 0.01 for one, other in pairs)


# spec: M-16 machine
def test_a_bound_is_found_where_quality_is_lost():
    # Of these rounds every gradient is needed.
    bounds = loss_bound(_toy(rounds=30), losses=(0.9, 0.05), seeds=3, tolerance=0.02, packet_values=4)
    for mode in ("random", "importance"):
        assert bounds.bound(mode) == 0.05
        assert not bounds.is_open(mode)
        assert [point.loss for point in bounds.of_mode(mode)] == [0.05, 0.9]
        assert statistics.fmean(bounds.lossless) - bounds.of_mode(mode)[1].mean > 0.02
        assert abs(bounds.of_mode(mode)[1].dropped - 0.9) < 0.01
    assert bounds.bound_text("random") == "5%"


# spec: M-16 machine
def test_a_model_that_learns_nothing_from_gradients_stands_every_loss_that_was_tried():
    still = _toy(rounds=2, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0))
    bounds = loss_bound(still, losses=(0.1, 0.9), seeds=2, modes=["random"])
    assert bounds.bound("random") == 0.9 and bounds.is_open("random")
    assert bounds.bound_text("random") == "at least 90%"


def test_the_bound_ends_where_quality_is_first_lost():
    asked = []

    def train(drop: Drop, seed: int) -> float:
        drop(torch.ones(4_000))
        asked.append((drop.mode, drop.loss, seed))
        spared = drop.mode == "importance"
        return 0.9 - (0.0 if drop.loss <= (0.2 if spared else 0.05) else 0.1) + 0.001 * seed

    bounds = loss_bound(train, seeds=2)
    assert (bounds.bound("random"), bounds.bound("importance")) == (0.05, 0.2)
    # Three that hold and one that does not; five and one; the lossless one: with two seeds each.
    assert len(asked) == 2 * (1 + 4 + 6)
    assert asked[:2] == [("random", 0.0, 0), ("random", 0.0, 1)]


def test_a_training_that_breaks_has_lost_its_quality():
    def train(drop: Drop, seed: int) -> float:
        drop(torch.ones(4_000))
        return math.nan if drop.loss else 1.0

    bounds = loss_bound(train, losses=[0.1], seeds=1)
    assert bounds.bound("random") == 0.0
    assert json.loads(bounds.to_json())["points"][0]["qualities"] == [None]


def _found() -> LossBounds:
    def train(drop: Drop, seed: int) -> float:
        drop(torch.ones(4_000))
        return 0.8 - drop.loss**2 + 0.001 * seed

    return loss_bound(train, seeds=3)


def test_results_are_a_table_json_and_a_drawing(tmp_path):
    bounds = _found()
    table = str(bounds).splitlines()
    assert table[1].split() == ["loss", "random", "importance"]
    assert table[-1].split() == ["bound", "10%", "10%"]
    assert any(line.split() == ["20%", "0.7610<", "0.7610<"] for line in table)

    document = json.loads(bounds.to_json())
    assert document["bounds"]["random"] == {"loss": 0.1, "is_open": False}
    assert len(document["points"]) == len(bounds.points) and len(document["lossless"]) == 3

    path = tmp_path / "curves.svg"
    bounds.plot(path, "quality < loss & more")
    drawing = xml.parse(path).getroot()
    assert drawing.tag == f"{SVG}svg"
    assert len(drawing.findall(f"{SVG}polyline")) == 2
    texts = [text.text for text in drawing.findall(f"{SVG}text")]
    assert "quality < loss & more" in texts and "10%" in texts and "random" in texts
    for circle in drawing.findall(f"{SVG}circle"):
        assert 0 < float(circle.get("cx")) < 640 and 0 < float(circle.get("cy")) < 400


def test_seeds_that_differ_by_more_than_the_tolerance_are_reported():
    def train(drop: Drop, seed: int) -> float:
        drop(torch.ones(4_000))
        return 0.5 + 0.1 * seed

    assert "take more seeds" in str(loss_bound(train, losses=[0.1]))
    assert "take more seeds" not in str(_found())


def test_costs_of_layers_are_rounds_that_training_takes_longer(tmp_path):
    # Little is left of a layer: that has to be noticed.
    trainer = _toy(rounds=40, workers=2)
    costs = loss_costs(trainer, loss=0.9, seeds=2, tolerance=0.02, longest=3, packet_values=4)
    assert [(cost.layer, cost.size) for cost in costs.costs] == [
        (layer, size) for layer in ("0", "2") for size in ("small", "large")
    ]
    assert max(statistics.fmean(cost.extra_rounds) for cost in costs.costs) > 0
    path = tmp_path / "costs.csv"
    costs.write(path)
    header, *rows = path.read_text().splitlines()
    assert header == "layer,small,large"
    assert [row.split(",")[0] for row in rows] == ["0", "2"]
    assert all(float(cell) >= 0 for row in rows for cell in row.split(",")[1:])
    path = tmp_path / "layers.json"
    costs.write_layers(path, "toy")
    tensors = json.loads(path.read_text())["parameters"]
    assert [tensor["name"] for tensor in tensors] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [tensor["numel"] for tensor in tensors] == [320, 16, 32, 2]
    assert [tensor["grad_ready_rank"] for tensor in tensors] == [3, 2, 1, 0]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"losses": []}, "losses"),
        ({"losses": [10]}, "0.1 is 10%"),
        ({"losses": [0.0]}, "above 0"),
        ({"seeds": 0}, "seeds is 0"),
        ({"tolerance": -1}, "tolerance is -1"),
        ({"modes": ["largest"]}, "there are random, importance"),
        ({"packet_values": 0}, "packet_values is 0"),
    ],
)
def test_wrong_arguments_are_reported(wrong, text):
    with pytest.raises(ValueError, match=text):
        loss_bound(lambda drop, seed: 1.0, **wrong)


def test_wrong_trainings_are_reported():
    with pytest.raises(ValueError, match="never called drop"):
        loss_bound(lambda drop, seed: 1.0)
    with pytest.raises(ValueError, match="quality has to be a number"):
        loss_bound(lambda drop, seed: math.nan)
    with pytest.raises(ValueError, match="rounds is 0"):
        _toy(rounds=0)
    with pytest.raises(ValueError, match="3 inputs and 2 answers"):
        Trainer(nn.Identity, (torch.ones(3), torch.ones(2)), (torch.ones(1), torch.ones(1)), 1)
    with pytest.raises(ValueError, match="was not measured"):
        _found().bound("small")
    with pytest.raises(ValueError, match="loss is 1"):
        Drop(1)
    with pytest.raises(ValueError, match="mode is 'none'"):
        Drop(0.1, "none")
    with pytest.raises(TypeError, match="weight is .*int64"):
        Drop(0.1)(torch.ones(3, dtype=torch.int64), "weight")
    with pytest.raises(ValueError, match="loss is 0"):
        loss_costs(_toy(), loss=0)


def test_the_example_prints_a_bound_and_draws(tmp_path):
    script = pathlib.Path(__file__).resolve().parents[2] / "examples" / "loss_bounds.py"
    command = [sys.executable, script, "--quick", "--models", "mlp", "--seeds", "1", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "without loss     at random   small first\nmlp" in done.stdout
    assert json.loads((tmp_path / "mlp.json").read_text())["bounds"].keys() == {"random", "importance"}
    assert xml.parse(tmp_path / "mlp.svg").getroot().tag == f"{SVG}svg"
