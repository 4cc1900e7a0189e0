#!/usr/bin/env python3
"""Compares our forests with scikit-learn and quantile-forest, on the same flows and in the same run.

    python3 crates/prioritize/tests/compare_forest.py [--quick]

Builds the example `compare`, installs both packages into target/forest-compare, and checks that
1. on the same trees, with all leaf samples kept, the smallest and largest sizes are equal, and other
   quantiles lie within the package's interpolation, over 10,000 flows that no tree has seen;
2. with trees of its own each covers as many of those flows;
3. training 60,000 flows and 100 trees is at least three times as fast as RandomForestRegressor on the
   same cores.
Ends with 0 when all of it holds, with 77 when the packages cannot be had, with 1 otherwise. --quick leaves out 3.
"""

import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
HOME = ROOT / "target" / "forest-compare"
ROW_LEN = 16
FEATURES = 14


def skip(reason):
    print(f"compare_forest: skipped, {reason}")
    sys.exit(77)


def enter_environment():
    """Goes on in a virtual environment that has the packages."""
    if os.environ.get("FOREST_COMPARE") == "1":
        return
    python = HOME / "bin" / "python"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=True)
        packages = ["scikit-learn", "quantile-forest", "numpy"]
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        skip(f"scikit-learn and quantile-forest cannot be installed: {error}")
    environment = {**os.environ, "FOREST_COMPARE": "1"}
    sys.exit(subprocess.run([str(python), __file__, *sys.argv[1:]], env=environment).returncode)


enter_environment()

import numpy as np  # noqa: E402
from quantile_forest import RandomForestQuantileRegressor  # noqa: E402
from sklearn.ensemble import RandomForestRegressor  # noqa: E402


def flows(count, rng):
    """Long-tailed sizes, and features that hint at some of them."""
    logs = 4 + 14 * rng.random(count) * rng.random(count)
    sizes = np.exp(logs).astype(np.uint64)
    rows = np.zeros((count, ROW_LEN), dtype=np.float32)
    noise = rng.uniform(-1.2, 1.2, (count, FEATURES))
    rows[:, :FEATURES] = np.exp(logs[:, None] + noise)
    # Half of the features say nothing, as addresses and ports mostly do.
    rows[:, FEATURES // 2 : FEATURES] = rng.integers(0, 1 << 16, (count, FEATURES - FEATURES // 2))
    return rows, sizes


def build():
    command = ["cargo", "build", "--release", "-p", "thalweg-prioritize", "--example", "compare"]
    try:
        subprocess.run(command, cwd=ROOT, check=True)
    except OSError as error:
        skip(f"there is no cargo: {error}")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return str(target / "release" / "examples" / "compare")


def ask(program, folder, *arguments):
    done = subprocess.run(
        [program, arguments[0], str(folder), *map(str, arguments[1:])],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    answers = np.fromfile(folder / "answers.u64", dtype=np.uint64).reshape(-1, 2)
    return answers, done.stdout


def leaf_sizes(forest, number, sizes):
    """Of every node of one tree, the sizes that the package keeps in it."""
    kept = np.asarray(forest.forest_.y_train_leaves[number])[:, 0, :]
    ordered = np.sort(sizes)
    return [ordered[node[node != 0] - 1] for node in kept]


def write_trees(forest, sizes, path):
    """Writes the trees with all their leaf samples, and returns the samples."""
    samples = []
    with open(path, "wb") as file:
        put = lambda *numbers: file.write(struct.pack(f"<{len(numbers)}q", *numbers))
        put(len(forest.estimators_))
        for number, estimator in enumerate(forest.estimators_):
            tree = estimator.tree_
            kept = leaf_sizes(forest, number, sizes)
            samples.append(kept)
            put(tree.node_count)
            for node in range(tree.node_count):
                put(tree.children_left[node], tree.children_right[node], max(tree.feature[node], 0))
                file.write(struct.pack("<d", tree.threshold[node]))
                put(len(kept[node]), *map(int, kept[node]))
    return samples


def distribution(samples, leaves):
    """The sizes in the leaves of one flow, and the shares that Meinshausen gives them."""
    parts = [samples[tree][leaf] for tree, leaf in enumerate(leaves)]
    sizes = np.concatenate(parts)
    shares = np.concatenate([np.full(len(p), 1 / len(p) / len(parts)) for p in parts])
    order = np.argsort(sizes, kind="stable")
    return sizes[order], np.cumsum(shares[order])


def check_same_trees(program, rng):
    rows, sizes = flows(6_000, rng)
    queries, _ = flows(10_000, rng)
    forest = RandomForestQuantileRegressor(
        n_estimators=10, max_depth=10, max_samples_leaf=None, random_state=1, n_jobs=-1
    ).fit(rows, sizes.astype(np.float64))
    leaves = forest.apply(queries)
    holds = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        samples = write_trees(forest, sizes, folder / "trees.bin")
        queries.tofile(folder / "queries.f32")
        for beta in [1.0, 0.9, 0.5]:
            shares = [(1 - beta) / 2, (1 + beta) / 2]
            thalweg, _ = ask(program, folder, "given", *shares)
            if beta == 1.0:
                theirs = forest.predict(queries, quantiles=shares, weighted_quantile=False)
                equal = int((thalweg == theirs.astype(np.uint64)).all(axis=1).sum())
                print(f"same trees, beta 1: {equal} of {len(queries)} flows have equal endpoints")
                holds &= equal == len(queries)
                continue
            low, high = (
                forest.predict(queries, quantiles=shares, weighted_leaves=True, interpolation=how)
                for how in ("lower", "higher")
            )
            within, near, beyond = count(thalweg, low, high, shares, samples, leaves)
            print(
                f"same trees, beta {beta}: of {2 * len(queries)} endpoints {within} within the "
                f"package's interpolation, {near} off by its offset of one sample, {beyond} beyond"
            )
            holds &= beyond == 0
    return holds


def count(thalweg, low, high, shares, samples, leaves):
    """How many endpoints lie between the package's neighbours.

    The package looks for the quantile q at (W - 1) q + 1 of W samples' weight, we at W q, which is the
    definition. Where samples weigh differently that can be another sample: such an endpoint counts as
    near when no more than one sample's weight lies between the two. Every endpoint must also be what
    the definition says, worked out here once more.
    """
    within = near = beyond = 0
    for flow in range(len(thalweg)):
        sizes, cumulated = distribution(samples, leaves[flow])
        for end, share in enumerate(shares):
            value = thalweg[flow, end]
            defined = sizes[min(np.searchsorted(cumulated, share - 1e-12), len(sizes) - 1)]
            if value != defined:
                beyond += 1
            elif low[flow, end] <= value <= high[flow, end]:
                within += 1
            else:
                reach = share + np.array([-1, 1]) / len(sizes)
                first, last = np.searchsorted(cumulated, reach)
                span = sizes[max(first - 1, 0)], sizes[min(last + 1, len(sizes) - 1)]
                is_near = span[0] <= low[flow, end] and high[flow, end] <= span[1]
                near, beyond = near + is_near, beyond + (not is_near)
    return within, near, beyond


def check_coverage(program, rng):
    rows, sizes = flows(6_000, rng)
    queries, actual = flows(10_000, rng)
    forest = RandomForestQuantileRegressor(
        n_estimators=10, max_depth=10, max_samples_leaf=None, random_state=1, n_jobs=-1
    ).fit(rows, sizes.astype(np.float64))
    theirs = forest.predict(queries, quantiles=[0, 1], weighted_quantile=False)
    with tempfile.TemporaryDirectory() as name:
        folder = write_flows(Path(name), rows, sizes, queries)
        thalweg, _ = ask(program, folder, "own", 10, 10, os.cpu_count())
    share = lambda ends: ((ends[:, 0] <= actual) & (actual <= ends[:, 1])).mean()
    width = lambda ends: np.exp(np.log(np.maximum(ends, 1).astype(float)).mean(axis=0))
    print(
        f"own trees: thalweg covers {share(thalweg):.3%} of the flows, the package's {share(theirs):.3%}; "
        f"typical ends {width(thalweg).round()}, {width(theirs).round()}"
    )
    return share(thalweg) >= share(theirs) - 0.001


def check_training(program, rng):
    rows, sizes = flows(60_000, rng)
    cores = os.cpu_count()
    with tempfile.TemporaryDirectory() as name:
        folder = write_flows(Path(name), rows, sizes, rows[:1])
        _, thalweg = ask(program, folder, "own", 100, 10, cores)
    forest = RandomForestRegressor(n_estimators=100, max_depth=10, random_state=1, n_jobs=cores)
    # Columns that are only there to fill a row up are not its business.
    used = np.asfortranarray(rows[:, :FEATURES])
    start = time.perf_counter()
    forest.fit(used, sizes.astype(np.float64))
    theirs = time.perf_counter() - start
    ratio = theirs / float(thalweg)
    print(
        f"training 60,000 flows, 100 trees, {cores} cores: thalweg {float(thalweg):.2f} s, "
        f"scikit-learn {theirs:.2f} s, {ratio:.1f} times as fast"
    )
    return ratio >= 3


def write_flows(folder, rows, sizes, queries):
    rows.tofile(folder / "rows.f32")
    sizes.tofile(folder / "sizes.u64")
    queries.tofile(folder / "queries.f32")
    return folder


def main():
    program = build()
    rng = np.random.default_rng(1)
    checks = [check_same_trees, check_coverage]
    if "--quick" not in sys.argv[1:]:
        checks.append(check_training)
    results = [check(program, rng) for check in checks]
    print("compare_forest: holds" if all(results) else "compare_forest: does NOT hold")
    return 0 if all(results) else 1


sys.exit(main())
