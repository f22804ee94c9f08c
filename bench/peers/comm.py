#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures comm-shm, Open MPI and Gloo in one run.

    comm.py BUILD [--tcp] [--turns 3] [--ranks 2,4] [--sizes 4,16,64] [--gloo PYTHON]

BUILD is a build folder of the release preset. Open MPI is measured if mpicc and
mpirun are installed, Gloo if PYTHON has torch. The sides take turns; a side's
figure is its best median, and its best single call is given too. Prints one
line per measurement and a table at the end, with the machine's load.

With --tcp it measures comm-tcp instead, and all sides, between two hosts: network
namespaces with a virtual interface each, which it makes as root and removes.
Neighbouring ranks are on one host; Open MPI (5 or later) uses its shared memory
there. iperf3, where it is installed, tells what the line carries.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
LINE = re.compile(r"(\w+)\s+(\d+) ranks\s+(\d+) MB\s+median\s+[\d.]+ ms\s+([\d.]+) GB/s\s+best\s+[\d.]+ ms\s+([\d.]+)")
ROOT = {f"{p}_ALLOW_RUN_AS_ROOT{c}": "1" for p in ("OMPI", "PRTE") for c in ("", "_CONFIRM")}


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


HOSTS = {"xraybencha": "10.79.0.1", "xraybenchb": "10.79.0.2"}
AGENT = """#!/bin/sh
case $1 in 10.79.0.1) ns=xraybencha;; *) ns=xraybenchb;; esac
shift
exec ip netns exec $ns unshare -u sh -c "hostname $ns; $*"
"""


def run(line):
    subprocess.run(line.split(), check=True)


@contextlib.contextmanager
def two_hosts():
    first, second = HOSTS
    try:
        for name in HOSTS:
            run(f"ip netns add {name}")
        run(f"ip -n {first} link add wire type veth peer name wire netns {second}")
        for name, address in HOSTS.items():
            run(f"ip -n {name} addr add {address}/24 dev wire")
            run(f"ip -n {name} link set wire up")
            run(f"ip -n {name} link set lo up")
        yield
    finally:
        for name in HOSTS:
            subprocess.run(["ip", "netns", "del", name], check=False)


def mpi_command(folder, ranks, program):
    agent = pathlib.Path(folder) / "agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    first = next(iter(HOSTS))
    hosts = ",".join(f"{address}:{ranks // 2}" for address in HOSTS.values())
    words = (f"mpirun --host {hosts} --prtemca plm_ssh_agent {agent} --prtemca prte_if_include wire"
             f" --pmixmca ptl_tcp_if_include wire --mca btl tcp,sm,self --mca pml ob1 --mca btl_tcp_if_include wire"
             f" --mca mpi_yield_when_idle 1 -n {ranks} {program}")
    return ["ip", "netns", "exec", first, "unshare", "-u", "sh", "-c", f'hostname {first}; exec {words} "$@"', "sh"]


def iperf(first, second, *more):
    server = subprocess.Popen(["ip", "netns", "exec", second, "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    time.sleep(0.3)
    done = subprocess.run(["ip", "netns", "exec", first, "iperf3", "-J", "-t", "2", "-c", HOSTS[second], *more],
                          capture_output=True, text=True, check=False)
    server.wait()
    end = json.loads(done.stdout)["end"]
    return sum(end[k]["bits_per_second"] for k in ("sum_received", "sum_received_bidir_reverse") if k in end) / 8e9


def measure_line(lines):
    if not shutil.which("iperf3"):
        return
    for name, more in {"one way": [], "one way, 4 streams": ["-P", "4"], "both ways": ["--bidir"],
                       "both ways, 4 streams": ["--bidir", "-P", "4"]}.items():
        lines.setdefault(name, []).append(iperf(*HOSTS, *more))


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
    parser.add_argument("--tcp", action="store_true")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--sizes", default="4,16,64")
    parser.add_argument("--gloo", metavar="PYTHON")
    args = parser.parse_args()
    sizes, found, loads, lines = args.sizes.split(","), {}, [], {}
    side = "comm-tcp" if args.tcp else "comm-shm"
    hosts = ["--tcp", ",".join(HOSTS)] if args.tcp else []
    with tempfile.TemporaryDirectory() as folder, two_hosts() if args.tcp else contextlib.nullcontext():
        mpi = pathlib.Path(folder) / "comm_mpi"
        if shutil.which("mpicc") and shutil.which("mpirun"):
            subprocess.run(["mpicc", "-O3", "-march=native", HERE / "comm_mpi.c", "-o", mpi], check=True)
        for ranks in args.ranks.split(","):
            mpirun = ["mpirun", "--oversubscribe", "-n", ranks, mpi]
            if args.tcp:
                mpirun = mpi_command(folder, int(ranks), mpi)
            for _ in range(args.turns):
                loads.append(os.getloadavg()[0])
                if args.tcp:
                    measure_line(lines)
                measure(side, [args.build / "bench-comm", *hosts, ranks, *sizes], found)
                if mpi.exists():
                    measure("Open MPI", [*mpirun, *sizes], found)
                if args.gloo:
                    measure("Gloo", [args.gloo, HERE / "comm_gloo.py", *hosts, ranks, *sizes], found)
    table(found, [s for s in (side, "Open MPI", "Gloo") if any(s in v for v in found.values())])
    for name, values in lines.items():
        print(f"raw TCP by iperf3, {name}: median {sorted(values)[len(values) // 2]:.2f} GB/s, best {max(values):.2f}")
    print("load before each turn:", " ".join(f"{load:.1f}" for load in loads))


if __name__ == "__main__":
    main()
