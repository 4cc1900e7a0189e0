"""One rank of a training by DDP with PyTorch's nccl backend: a transformer as large as GPT-2 small, on random tokens.

    nvidia-cuda-mps-control -d
    sudo --preserve-env thalweg lab --hosts 4 --rate 2.5gbit --daemons -- python3 scripts/nccl_training.py --steps 50

All ranks share one GPU. Rank 0 prints the losses, and the times of all steps but the first, as one line of JSON.
`--backend thalweg` trains with the backend for PyTorch, `--sharded` by FSDP2, `--bf16` with gradients of 16 bits on the
network.
"""

import argparse
import datetime
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

WORDS, CONTEXT, WIDTH, HEADS = 50_257, 256, 768, 12


class Gpt(nn.Module):
    """A decoder with tied embeddings: 124 million parameters with 12 layers."""

    def __init__(self, layers):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(1_024, WIDTH)
        layer = {
            "dim_feedforward": 4 * WIDTH,
            "dropout": 0.0,
            "activation": "gelu",
            "batch_first": True,
            "norm_first": True,
        }
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, HEADS, **layer) for _ in range(layers))
        self.norm = nn.LayerNorm(WIDTH)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        length = tokens.shape[1]
        state = self.words(tokens) + self.places(torch.arange(length, device=tokens.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        for layer in self.layers:
            state = layer(state, mask, is_causal=True)
        return functional.linear(self.norm(state), self.words.weight)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--backend", default="nccl", choices=["nccl", "thalweg", "gloo"])
    parser.add_argument("--sharded", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("NCCL_HOSTID", f"host-{os.environ['RANK']}")
    torch.cuda.set_device(0)
    if arguments.backend == "thalweg":
        import thalweg.torch  # noqa: F401
    dist.init_process_group(arguments.backend, timeout=datetime.timedelta(seconds=60))
    losses, times_ms = train(arguments)
    if dist.get_rank() == 0:
        # The first step sets up communicators.
        document = {"losses": losses, "first_ms": times_ms[0], "times_ms": times_ms[1:]}
        print(json.dumps(document), flush=True)
    dist.destroy_process_group()


def train(arguments):
    torch.manual_seed(0)
    model = wrapped(Gpt(arguments.layers).cuda(), arguments)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    draw = torch.Generator().manual_seed(dist.get_rank())
    losses, times_ms = [], []
    for _ in range(arguments.steps):
        tokens = torch.randint(WORDS, (8, CONTEXT + 1), generator=draw).cuda()
        torch.cuda.synchronize()
        started = time.perf_counter()
        optimizer.zero_grad()
        found = model(tokens[:, :-1])
        loss = functional.cross_entropy(found.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 6))
        times_ms.append(round((time.perf_counter() - started) * 1e3, 1))
    return losses, times_ms


def wrapped(model, arguments):
    if arguments.sharded:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        mesh = init_device_mesh("cuda", (dist.get_world_size(),))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        if arguments.backend == "gloo":
            # Gloo has no mean. FSDP2 then sums, and divides by itself.
            for module in model.modules():
                if isinstance(module, FSDPModule):
                    module.set_force_sum_reduction_for_comms(True)
        return model
    model = DistributedDataParallel(model, device_ids=[0])
    if arguments.bf16:
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

        model.register_comm_hook(None, bf16_compress_hook)
    return model


if __name__ == "__main__":
    main()
