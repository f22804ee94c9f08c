#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes bench/comm.c's measurements with torch.distributed on Gloo.

    comm_gloo.py RANKS MEGABYTES ...
"""
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TURNS, WARM = 60, 3


def call(what, full, part):
    if what == "all_reduce":
        dist.all_reduce(full)
    elif what == "reduce_scatter":
        dist.reduce_scatter_tensor(part, full)
    else:
        dist.all_gather_into_tensor(full, part)


def time_call(what, megabytes, rank, size):
    count = megabytes << 18
    full, part = torch.zeros(count), torch.zeros(count // size)
    times = []
    turns = TURNS // 4 if megabytes > 32 else TURNS
    for turn in range(-WARM, turns):
        dist.barrier()
        start = time.perf_counter()
        call(what, full, part)
        if turn >= 0:
            times.append(time.perf_counter() - start)
    times.sort()
    if rank == 0:
        mid, best = times[turns // 2], times[0]
        print(f"{what:14} {size:2} ranks {megabytes:4} MB  median {1e3 * mid:8.3f} ms {4e-9 * count / mid:7.2f} GB/s"
              f"  best {1e3 * best:8.3f} ms {4e-9 * count / best:7.2f} GB/s", flush=True)


def rank_main(rank, size, path, sizes):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)
    for megabytes in sizes:
        for what in ("all_reduce", "reduce_scatter", "all_gather"):
            try:
                time_call(what, megabytes, rank, size)
            except RuntimeError as error:
                if rank == 0:
                    print(f"{what}: {str(error).splitlines()[0]}", file=sys.stderr)
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks, megabytes = int(sys.argv[1]), [int(x) for x in sys.argv[2:]]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OMP_NUM_THREADS"] = "1"
        mp.spawn(rank_main, (ranks, os.path.join(folder, "store"), megabytes), nprocs=ranks)
