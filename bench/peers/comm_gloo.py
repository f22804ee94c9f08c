#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes bench/comm.c's measurements with torch.distributed on Gloo.

    comm_gloo.py [--tcp NAMESPACE,NAMESPACE...] RANKS MEGABYTES ...

With --tcp each rank goes to its network namespace, as those of bench-comm do.
"""
import ctypes
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


def enter_host(rank, size, hosts):
    with open(f"/run/netns/{hosts[rank * len(hosts) // size]}", "rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0x40000000):
            raise OSError(ctypes.get_errno(), "setns")
    os.environ["GLOO_SOCKET_IFNAME"] = "wire"


def rank_main(rank, size, path, sizes, hosts):
    torch.set_num_threads(1)
    if hosts:
        enter_host(rank, size, hosts)
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
    words, hosts = sys.argv[1:], []
    if words[0] == "--tcp":
        hosts, words = words[1].split(","), words[2:]
    ranks, megabytes = int(words[0]), [int(x) for x in words[1:]]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OMP_NUM_THREADS"] = "1"
        mp.spawn(rank_main, (ranks, os.path.join(folder, "store"), megabytes, hosts), nprocs=ranks)
