"""One rank that tries the operations of PyTorch's nccl backend, and checks every result. All ranks share one GPU.

    sudo python3 scripts/nccl_in_a_lab.py --work operations --rate 10gbit --arms thalweg --rounds 1
    sudo python3 scripts/nccl_in_a_lab.py --work operations --options "--only splits" --arms thalweg run --rounds 1

The plug-in is chosen by the environment (`docs/nccl.md`). Rank 0 prints a line of JSON for each group of operations.
"""

import argparse
import datetime
import json
import os
import sys
import time

import torch
import torch.distributed as dist

BYTES = [4, 60, 1_000, 65_536, 1_000_004, 16 << 20, 256 << 20]
TYPES = [torch.float32, torch.float16, torch.bfloat16]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=TRIED, default=list(TRIED))
    arguments = parser.parse_args()
    os.environ.setdefault("NCCL_HOSTID", f"host-{os.environ['RANK']}")
    torch.cuda.set_device(0)
    begin()
    for name in arguments.only:
        began = time.perf_counter()
        found = TRIED[name]()
        torch.cuda.synchronize()
        if dist.get_rank() == 0:
            took_s = round(time.perf_counter() - began, 1)
            print(json.dumps({"operations": name, "right": True, "took_s": took_s} | (found or {})), flush=True)
    dist.destroy_process_group()


def begin():
    device = torch.device("cuda:0")
    dist.init_process_group("nccl", device_id=device, timeout=datetime.timedelta(seconds=60))


def check(found, expected, text, rounding=0.0):
    wrong = int(((found.float() - expected.float()).abs() > rounding * expected.abs()).sum())
    if wrong:
        sys.exit(f"rank {dist.get_rank()}: {text}: {wrong} of {found.numel()} values are wrong")


def sums(group=None, sizes=BYTES):
    """All-reduces of whole numbers, which every type holds exactly: sums and means."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    for size in sizes:
        for dtype in TYPES:
            index = torch.arange(max(size // dtype.itemsize, 1), device="cuda") % 8
            total = index * ranks + sum(range(ranks))
            for operation, expected in ((dist.ReduceOp.SUM, total), (dist.ReduceOp.AVG, total / ranks)):
                values = (index + rank).to(dtype)
                dist.all_reduce(values, operation, group=group)
                # Sums are exact. NCCL multiplies by the inverse of the number of ranks for a mean, which is rounded.
                rounding = 0.0 if operation == dist.ReduceOp.SUM else 2 * torch.finfo(dtype).eps
                check(values, expected, f"{operation} of {size} bytes of {dtype}", rounding)


def largest():
    """All-reduces that CollNet does not have: NCCL uses its own algorithms."""
    values = torch.arange(100_000, device="cuda", dtype=torch.float32) * (dist.get_rank() + 1)
    dist.all_reduce(values, dist.ReduceOp.MAX)
    check(values, torch.arange(100_000, device="cuda") * dist.get_world_size(), "MAX")
    whole = torch.full((1_000,), dist.get_rank() + 1, device="cuda", dtype=torch.int64)
    dist.all_reduce(whole)
    check(whole, torch.tensor(sum(range(1, dist.get_world_size() + 1)), device="cuda"), "SUM of int64")


def moves():
    """All-gather, reduce-scatter, broadcast, reduce, all-to-all."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for count in (1, 1_001, 1 << 20):
        own = torch.full((count,), float(rank), device="cuda")
        gathered = torch.empty(ranks * count, device="cuda")
        dist.all_gather_into_tensor(gathered, own)
        check(gathered, torch.arange(ranks, device="cuda").repeat_interleave(count), "all-gather")
        part = torch.empty(count, device="cuda")
        dist.reduce_scatter_tensor(part, gathered + rank)
        check(part, torch.tensor(float(rank * ranks + sum(range(ranks))), device="cuda"), "reduce-scatter")
        one = own.clone()
        dist.broadcast(one, ranks - 1)
        check(one, torch.tensor(float(ranks - 1), device="cuda"), "broadcast")
        dist.reduce(own, 0)
        if rank == 0:
            check(own, torch.tensor(float(sum(range(ranks))), device="cuda"), "reduce")
        turned = torch.empty(ranks * count, device="cuda")
        dist.all_to_all_single(turned, torch.full((ranks * count,), float(rank), device="cuda"))
        check(turned, torch.arange(ranks, device="cuda").repeat_interleave(count), "all-to-all")


def messages():
    """Messages around a ring, several in flight."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for count in (1, 4_097, 4 << 20):
        came = torch.empty(count, device="cuda")
        sent = torch.full((count,), float(rank), device="cuda")
        calls = [dist.P2POp(dist.isend, sent, (rank + 1) % ranks), dist.P2POp(dist.irecv, came, (rank - 1) % ranks)]
        for work in dist.batch_isend_irecv(calls):
            work.wait()
        check(came, torch.tensor(float((rank - 1) % ranks), device="cuda"), "message")


def groups():
    """Several communicators at once, of all ranks and of some."""
    both = [dist.new_group(), dist.new_group()]
    values = [torch.ones(1 << 20, device="cuda") for _ in both]
    works = [dist.all_reduce(value, group=group, async_op=True) for value, group in zip(values, both)]
    for work, value in zip(works, values):
        work.wait()
        check(value, torch.tensor(float(dist.get_world_size()), device="cuda"), "one of two communicators")
    some = list(range(dist.get_world_size() - 1))
    fewer = dist.new_group(some)
    if dist.get_rank() in some:
        sums(fewer, [1_000_004])
    for group in both:
        dist.destroy_process_group(group)


def splits():
    """Communicators that are split from the first one (ncclCommSplit): of all ranks, of halves, without the last."""
    ranks = dist.get_world_size()
    all_ranks = list(range(ranks))
    made = []
    for is_shared in (False, True):
        for parts in ([all_ranks], [all_ranks[: ranks // 2], all_ranks[ranks // 2 :]], [all_ranks[:-1]]):
            options = dist.ProcessGroupNCCL.Options()
            # Communicators may use the connections of the one that they are split from.
            options.config.split_share = int(is_shared)
            group = dist.split_group(split_ranks=parts, pg_options=options)
            if any(dist.get_rank() in part for part in parts):
                sums(group, [1_000, 65_536, 8 << 20])
                torch.cuda.synchronize()
                dist.destroy_process_group(group)
            dist.barrier()
            made.append({"ranks": [len(part) for part in parts], "shared": is_shared})
    # The first one is as before.
    sums(None, [65_536, 8 << 20])
    return {"splits": made}


def again():
    """A communicator after all others were closed, which unloads the library."""
    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    begin()
    sums(None, [16 << 20])


TRIED = {tried.__name__: tried for tried in (sums, largest, moves, messages, groups, splits, again)}


if __name__ == "__main__":
    main()
