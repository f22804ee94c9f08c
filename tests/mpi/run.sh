#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs whose processes mpirun starts: they have the bits of local ranks and end with
# mpirun's status 0. What is started wrongly is said once. Whoever is killed is named,
# nothing is left, and the next job goes on with the same bits. With `all` every fault.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/../rl/lib.sh"
make_task
export XRAY_PLUGIN_PATH=$XRAY_BUILD/tests/sick
sed -i "s/^\[run\]$/&\nthreads = 1/; s/^\[trainer\]$/&\nsave_freq = 2/" "$work/run.ini"
four=(--set run.ranks=4 --set run.comm=tcp --set trainer.total_training_steps=3)
mpi=(--set run.runtime=mpi --set runtime.interface=lo)
host=$(uname -n)

job() { # PROCESSES FOLDER [--set ...]
    "${start[@]}" -n "$1" "$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$work/$2" \
        "${four[@]}" "${mpi[@]}" "${@:3}" >"$work/out" 2>"$work/err"
}

refused() { # SENTENCE PROCESSES [--set ...]: said once, and the job has ended
    if job "$2" refused "${@:3}"; then fail "$1: the job was not refused"; fi
    [ "$(grep -cF -- "$1" "$work/err")" = 1 ] || fail "expected once: $1; got: $(cat "$work/err")"
    nothing_left "$1"
}

# ---- the same bits ----

train "$work/local" "${four[@]}" --set run.runtime=local >/dev/null
same_bits() { # NAME [--set ...]
    job 4 "$@" || fail "$1: the job ended with $?: $(cat "$work/err")"
    same_checkpoint "$work/local/global_step_3" "$work/$1/global_step_3"
    diff <(steady "$work/local/metrics.jsonl") <(steady "$work/$1/metrics.jsonl") || fail "$1: metrics differ"
    nothing_left "$1"
}
same_bits mpi
sanitized || same_bits collectives --set run.comm=mpi

# ---- what is started wrongly ----

refused "3 processes were started, but [run] ranks is 4; start as many processes as ranks" 3
refused "[run] sed: no such option; did you mean seed?" 4 --set run.sed=3
if train "$work/alone" "${four[@]}" "${mpi[@]}" >"$work/out" 2>"$work/err"; then fail "a run without mpirun"; fi
grep -qF "no MPI started this process: start it with mpirun or srun" "$work/err" || fail "alone: $(cat "$work/err")"
refused "the library of MPI cannot be loaded: libnone.so: cannot open" 4 --set runtime.mpi.library=libnone.so

# ---- faults ----

# held NAME CALL [--set ...]: a job in the background up to the call in which one rank
# is held.
export SICK_FLAG=$work/flag
sick=(--set run.infer=sick --set run.train=sick)
held() {
    local name=$1
    rm -f "$SICK_FLAG"*
    SICK=infer-wait SICK_AT=$2 job 4 "$name" "${sick[@]}" "${@:3}" &
    pid=$!
    until [ -e "$SICK_FLAG" ]; do
        kill -0 "$pid" 2>/dev/null || fail "$name ended before it was held: $(cat "$work/err")"
        sleep 0.05
    done
}

hit() { # SIGNAL WHO
    local at
    for at in $(of_rank "$2"); do
        case $2 in 0) ! is_child "$at" || continue ;; esac
        kill "-$1" "$at"
        return 0
    done
    fail "there is no rank $2"
}

hit_child() { # SIGNAL
    local at
    for at in $(of_rank 0); do
        ! is_child "$at" || kill "-$1" "$at"
    done
}

ended() { # NAME
    local code=0
    { wait "$pid" || code=$?; } 2>/dev/null
    [ "$code" != 0 ] || fail "$1 ended with 0: $(cat "$work/err")"
    nothing_left "$1"
}

lost() { # NAME RANK REASON
    ended "$1"
    grep -Eq "actor workhorse $2 on $host \(rank $2\): (method [a-z_]+|no method ran): $3" "$work/err" ||
        fail "$1: what was lost is not said: $(cat "$work/err")"
}

held resumed 24
hit KILL 3
lost resumed 3 "closed its connection to the parent"
[ -e "$work/resumed/global_step_2" ] || fail "resumed: there is no checkpoint yet"
SICK='' job 4 resumed "${sick[@]}" || fail "resumed: $(cat "$work/err")"
same_checkpoint "$work/local/global_step_3" "$work/resumed/global_step_3"

if [ "${1:-}" != all ]; then
    echo "mpi.run: ok"
    exit 0
fi

# ---- every fault ----

silent='hangs: no sign of life for 3\.[0-9] s, its host or the network to it may be down \(killed\)'
held stopped 24
hit STOP 2
lost stopped 2 "$silent"
held child 24
hit_child KILL
lost child 0 "closed its connection to the parent"
held child-stopped 24
hit_child STOP
lost child-stopped 0 "$silent"
held driver 24
hit KILL 0
ended driver
held mpirun 24
kill -KILL "$(pgrep -P "$pid" | head -1)"
ended mpirun
# mpirun passes the wish to end on, and kills after a while.
held asked 24
kill -TERM "$(pgrep -P "$pid" | head -1)"
ended asked
for name in child driver mpirun asked; do
    SICK='' job 4 "$name" "${sick[@]}" || fail "$name: $(cat "$work/err")"
    same_checkpoint "$work/local/global_step_3" "$work/$name/global_step_3"
done

# A process that never joins: it is said that the others wait, and the driver's end is
# that of the job, whichever it is.
cat >"$work/late" <<'LATE'
#!/bin/bash
[ "$OMPI_COMM_WORLD_RANK" != 2 ] || exec sleep 300
exec "$@"
LATE
chmod +x "$work/late"
waiting() { # SIGNAL
    "${start[@]}" -n 4 "$work/late" "$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$work/late-$1" \
        "${four[@]}" "${mpi[@]}" >"$work/out" 2>"$work/err" &
    pid=$!
    until grep -q "waits since [0-9]* s until all 4 processes of the job have joined MPI" "$work/err"; do
        kill -0 "$pid" 2>/dev/null || fail "late: the job ended: $(cat "$work/err")"
        sleep 0.1
    done
    hit "$1" 0
    ended "late"
}
waiting TERM
waiting KILL

# Whoever is killed whenever, the next job ends with the same bits.
RANDOM=20
for i in $(seq 20); do
    job 4 "random-$i" &
    pid=$!
    # Open MPI's mpirun hangs where a process dies that it is about to start.
    until [ -e "$work/random-$i" ] || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
    sleep "$((RANDOM % 2)).$((RANDOM % 10))"
    who=$((RANDOM % 6))
    # It may have ended by itself.
    case $who in
    4) { kill -KILL "$(pgrep -P "$pid" | head -1)" || true; } 2>/dev/null ;;
    5) { hit_child KILL || true; } 2>/dev/null ;;
    *) (hit KILL "$who") 2>/dev/null || true ;;
    esac
    { wait "$pid" || true; } 2>/dev/null
    nothing_left "random $i: $who"
    job 4 "random-$i" || fail "random $i, after the death of $who: $(cat "$work/err")"
    same_checkpoint "$work/local/global_step_3" "$work/random-$i/global_step_3"
    rm -rf "$work/random-$i"
done

# ---- MPICH, and two kinds at once ----

if ! find_mpirun mpiexec.mpich; then
    echo "mpi.run: ok; MPICH is not installed"
    exit 0
fi
same_bits mpich
same_bits mpich-collectives --set run.comm=mpi
# MPICH's leaves the other processes to themselves, so each says it.
if job 4 refused --set runtime.mpi.library=libmpi.so.40; then fail "the library of another MPI is not refused"; fi
grep -qF "4 processes were started, but the library of MPI sees 1 (Open MPI" "$work/err" || fail "another MPI: $(cat "$work/err")"
nothing_left "another MPI"
held mpich-lost 24
hit KILL 3
ended mpich-lost
SICK='' job 4 mpich-lost "${sick[@]}" || fail "mpich-lost: $(cat "$work/err")"
same_checkpoint "$work/local/global_step_3" "$work/mpich-lost/global_step_3"
echo "mpi.run: ok"
