#!/usr/bin/env python3
"""One rank that gathers and scatters as FSDP2 does, with tensors of a device that has no hardware: no GPU is needed.

    sudo thalweg lab --hosts 4 --rate 1gbit -- python3 scripts/sharded_without_gpu.py
    sudo thalweg lab --hosts 4 --rate 1gbit -- python3 scripts/sharded_without_gpu.py --backend gloo

The calls are those of a model with an embedding and some layers: gathers forward and backward, each begun while the one
before it is in progress, and scatters of gradients beside them. Tensors are staged in pieces, as those of a GPU are;
with Gloo they are in main memory. Rank 0 prints the times of all steps but the first, as one line of JSON.
"""

import argparse
import json
import pathlib
import sys
import threading
import time

import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python" / "tests"))

# Time between two looks of a stream that has nothing to do.
LOOK_S = 2e-4


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="thalweg", choices=["thalweg", "gloo"])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--embedding-mb", type=float, default=45)
    parser.add_argument("--layer-mb", type=float, default=8)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = staged() if arguments.backend == "thalweg" else None
    dist.init_process_group(arguments.backend)
    layers = [Layer(mb) for mb in [arguments.embedding_mb] + [arguments.layer_mb] * arguments.layers]
    times_ms = []
    for _ in range(arguments.steps):
        dist.barrier()
        began = time.perf_counter()
        step(layers, device)
        times_ms.append(round((time.perf_counter() - began) * 1_000))
    if dist.get_rank() == 0:
        print(json.dumps({"backend": arguments.backend, "times_ms": times_ms[1:]}), flush=True)
    dist.destroy_process_group()


class Layer:
    """Parameters and gradients of a layer, and the part of each that this rank has."""

    def __init__(self, mb):
        ranks = dist.get_world_size()
        values = int(mb * 2**20 / 4) // ranks * ranks
        self.whole, self.gradient = torch.ones(values), torch.ones(values)
        self.own, self.sum = torch.ones(values // ranks), torch.ones(values // ranks)

    def gather(self):
        return dist.all_gather_into_tensor(self.whole, self.own, async_op=True)

    def scatter(self):
        return dist.reduce_scatter_tensor(self.sum, self.gradient, async_op=True)


def step(layers, device):
    """A forward and a backward pass. The first layer keeps its parameters in between."""

    def finish(work):
        work.wait()
        if device is not None:
            device.synchronize()

    scatters = []
    for backward, order in ((False, layers), (True, layers[:0:-1])):
        gathers = [layer.gather() for layer in order[:1]]
        for at, layer in enumerate(order):
            gathers += [following.gather() for following in order[at + 1 : at + 2]]
            finish(gathers[at])
            if backward:
                scatters.append(layer.scatter())
    for work in [*scatters, layers[0].scatter()]:
        finish(work)


def staged():
    """Has all tensors of operations staged as those of a GPU. Streams copy by threads."""
    from fake_device import FakeDevice

    import thalweg.torch  # noqa: F401
    from thalweg.torch import device as devices

    device = FakeDevice()
    devices.device_of = device.device_of

    def run(stream):
        while True:
            if not stream.step():
                time.sleep(LOOK_S)

    for stream in (device.current, device.out, device.back):
        threading.Thread(target=run, args=(stream,), daemon=True).start()
    return device


if __name__ == "__main__":
    main()
