# SPDX-License-Identifier: Apache-2.0
#
# Shared by the tests of MPI: finds an mpirun, and what its processes are. Sourced
# before tests/rl/lib.sh, where there is a task.
skip() {
    echo "skipped: $*"
    exit 77
}

# `start`: the words that start the processes of a job on this host, up to their
# number. Open MPI's has to be told that root may, and more ranks than cores.
find_mpirun() { # NAME ...
    local name
    for name in "$@"; do
        command -v "$name" >/dev/null || continue
        start=("$name")
        ! "$name" --version 2>/dev/null | grep -qE "OpenRTE|Open MPI|PRRTE|prte" || start+=(--oversubscribe)
        return 0
    done
    return 1
}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# One host is meant: no network is looked for, and no accelerator.
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_pml=ob1
find_mpirun mpirun.openmpi mpirun || skip "there is no mpirun (package openmpi-bin)"

# Libraries of MPI leave memory behind at their end.
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0

# Every process of a job has this in its environment.
export XRAY_MPI_TEST=$$
of_job() { grep -lsa "XRAY_MPI_TEST=$$" /proc/[0-9]*/environ | cut -d/ -f3; }

# The processes of a rank, which are two for rank 0: the driver and its child.
of_rank() { # RANK
    local pid
    for pid in $(of_job); do
        ! tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qxE "(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1" || echo "$pid"
    done
}

is_child() { tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline" | grep -q " workhorse mpi "; }

# No process of a job is left; dead ones that nobody has reaped do not count, and
# this script and what it runs is none.
nothing_left() { # WHAT
    local left pid state
    for _ in $(seq 100); do
        left=""
        for pid in $(of_job); do
            state=$(sed -E 's/.*\) (.).*/\1/' "/proc/$pid/stat" 2>/dev/null || true)
            case $state in '' | Z) continue ;; esac
            ! grep -qsE "xray|mpi" "/proc/$pid/comm" || left="$left $pid"
        done
        [ -n "$left" ] || return 0
        sleep 0.1
    done
    echo "FAIL: $1: processes are left:$left" >&2
    exit 1
}
