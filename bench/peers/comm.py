#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures comm-shm, Open MPI and Gloo in one run.

    comm.py BUILD [--turns 3] [--ranks 2,4] [--sizes 4,16,64] [--gloo PYTHON]

BUILD is a build folder of the release preset. Open MPI is measured if mpicc and
mpirun are installed, Gloo if PYTHON has torch. The sides take turns; a side's
figure is its best median, and its best single call is given too. Prints one
line per measurement and a table at the end, with the machine's load.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
LINE = re.compile(r"(\w+)\s+(\d+) ranks\s+(\d+) MB\s+median\s+[\d.]+ ms\s+([\d.]+) GB/s\s+best\s+[\d.]+ ms\s+([\d.]+)")
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def measure(side, command, found):
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                              env={**os.environ, **ROOT}, check=False, timeout=600)
    except subprocess.TimeoutExpired:
        print(f"{side}: not done within 600 s", file=sys.stderr)
        return
    if done.returncode:
        print(f"{side} failed:", done.stderr[-1000:], file=sys.stderr)
    for line in done.stdout.splitlines():
        hit = LINE.match(line)
        if hit:
            key = hit.group(1), int(hit.group(2)), int(hit.group(3))
            old = found.setdefault(key, {}).get(side, (0.0, 0.0))
            found[key][side] = max(old[0], float(hit.group(4))), max(old[1], float(hit.group(5)))
            print(f"{side:9}", line, flush=True)


def table(found, sides):
    print("\nGB/s: best median of the turns (best single call); ratio of medians to the better peer")
    print("| call | ranks | MB |", " | ".join(sides), "| ratio |")
    print("|---|---|---|" + "---|" * (len(sides) + 1))
    for (call, ranks, size), values in sorted(found.items(), key=lambda item: (item[0][1], item[0])):
        cells = [f"{values[s][0]:.2f} ({values[s][1]:.2f})" if s in values else "-" for s in sides]
        peers = [values[s][0] for s in sides[1:] if s in values]
        ratio = f"{values[sides[0]][0] / max(peers):.1f}" if peers and sides[0] in values else "-"
        print(f"| {call} | {ranks} | {size} |", " | ".join(cells), f"| {ratio} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--sizes", default="4,16,64")
    parser.add_argument("--gloo", metavar="PYTHON")
    args = parser.parse_args()
    sizes, found, loads = args.sizes.split(","), {}, []
    with tempfile.TemporaryDirectory() as folder:
        mpi = pathlib.Path(folder) / "comm_mpi"
        if shutil.which("mpicc") and shutil.which("mpirun"):
            subprocess.run(["mpicc", "-O3", "-march=native", HERE / "comm_mpi.c", "-o", mpi], check=True)
        for ranks in args.ranks.split(","):
            for _ in range(args.turns):
                loads.append(os.getloadavg()[0])
                measure("comm-shm", [args.build / "bench-comm", ranks, *sizes], found)
                if mpi.exists():
                    measure("Open MPI", ["mpirun", "--oversubscribe", "-n", ranks, mpi, *sizes], found)
                if args.gloo:
                    measure("Gloo", [args.gloo, HERE / "comm_gloo.py", ranks, *sizes], found)
    table(found, [s for s in ("comm-shm", "Open MPI", "Gloo") if any(s in v for v in found.values())])
    print("load before each turn:", " ".join(f"{load:.1f}" for load in loads))


if __name__ == "__main__":
    main()
