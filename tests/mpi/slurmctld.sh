#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The template of examples/cluster in a cluster of Slurm, two tasks on each of two
# nodes: it has the bits of local ranks; what is started wrongly ends and is not queued
# again. One run is then told that its time is over, preempted, queued again, loses a
# Workhorse and a node, is cancelled, and ends with the bits of one that nobody disturbed.
set -euo pipefail
. "$(dirname "$0")/cluster.sh"
enter_cluster "$@"
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/../rl/lib.sh"
trap '{ kill -KILL $(of_job) || true; } 2>/dev/null; rm -rf "$work"' EXIT # what runs writes
make_task
sed -i "s/^\[run\]$/&\nthreads = 1\ncomm = tcp/; s/^\[trainer\]$/&\nsave_freq = 1/
    s/^total_training_steps = .*/total_training_steps = 100000/" "$work/run.ini"
printf '[runtime]\ninterface = eth0\n' >>"$work/run.ini"
mkdir "$work/bin"
ln -s "$XRAY_BIN" "$work/bin/xray"
export PATH=$work/bin:$PATH
cd "$work"
start_cluster "$work/slurm"

submit() { # FOLDER [--set ...]
    : >log
    job=$(sbatch --parsable --ntasks-per-node=2 --output=log "${limit[@]}" "$XRAY_SOURCE/examples/cluster/slurm.sbatch" \
        run.ini --set "trainer.default_local_dir=$1" "${@:2}")
}

# Waits until the job is in a state. Another end is none that is awaited, and to be queued
# again is only if PENDING is.
await() { # STATE
    local state
    while state=$(state_of "$job") && [ "$state" != "$1" ]; do
        case $state in
        COMPLETED | FAILED | CANCELLED | TIMEOUT) fail "the job is $state, not $1: $(cat log)" ;;
        *) sleep 0.1 ;;
        esac
        [ "$1" = PENDING ] || ! grep -qsF "goes on in a job of its own" log || fail "the job is queued again: $(cat log)"
    done
}

# Of a job that is over nothing of ours is left.
all_ended() { # WHAT
    local left
    for _ in $(seq 300); do
        left=$(ps -eo stat=,pid=,comm= | grep -E "^[^Z].* (xray|srun|slurm_script)$" || true)
        [ -n "$left" ] || return 0
        sleep 0.1
    done
    fail "$1: processes are left: $left"
}

queued_again() { # WHAT: and may begin at once, not after Slurm's pause
    await PENDING
    all_ended "$1"
    end_steps "$work/slurm"
    : >log
    scontrol update "jobid=$job" starttime=now
}

newest() { cat out/latest_checkpointed_iteration.txt 2>/dev/null || echo 0; }

# Waits for two steps of the job that runs, each of which has a checkpoint.
await_steps() {
    local until=$(($(newest) + 2))
    await RUNNING
    while [ "$(newest)" -lt "$until" ]; do
        [ "$(state_of "$job")" = RUNNING ] || fail "the job has ended: $(cat log)"
        sleep 0.1
    done
}

said() { grep -Eq -- "$1" log || fail "expected: $1; got: $(cat log)"; }

# ---- the same bits ----

limit=()
submit whole --set trainer.total_training_steps=3
await COMPLETED
train "$work/local" --set run.ranks=4 --set run.runtime=local --set trainer.total_training_steps=3 >/dev/null
same_checkpoint local/global_step_3 whole/global_step_3
diff <(steady local/metrics.jsonl) <(steady whole/metrics.jsonl) || fail "metrics differ"
all_ended "a good run"

# ---- what is started wrongly ----

submit wrong --set run.sed=3
await FAILED
[ "$(grep -cF "[run] sed: no such option; did you mean seed?" log)" = 1 ] || fail "a wrong option: $(cat log)"
all_ended "a wrong option"

# ---- one run, often disturbed ----

# Its time is over. Slurm looks at times every 30 s, and the run may not have begun.
limit=(--time=1 --signal=B:USR1@45)
submit out
await RUNNING
await PENDING
said "slurm.sbatch: the run goes on in a job of its own"
scontrol update "jobid=$job" timelimit=60
queued_again "its time"

await_steps
sbatch --partition=urgent --nodes=2 --exclusive --output=urgent --wrap=true >/dev/null
await PENDING
said "stopped by SIGTERM after step [0-9]+"
queued_again "a preemption"

await_steps
scontrol requeue "$job"
queued_again "a wish"

# The node of ranks 2 and 3. srun waits for it, mostly until Slurm takes it for lost, and
# sometimes gives up before that: then the job is submitted again.
await_steps
ip link set to-b down
until state=$(state_of "$job") && [[ $state = PENDING || $state = FAILED ]]; do sleep 0.1; done
said "actor workhorse [23] on b \(rank [23]\): .*: hangs: no sign of life for 3\.[0-9] s"
ip link set to-b up
if [ "$state" = PENDING ]; then
    queued_again "the loss of a node"
else
    said "srun: error: Timed out waiting for job step to complete"
    all_ended "the loss of a node"
    limit=(--time=60)
    submit out
fi

await_steps
for at in $(of_job); do
    ! grep -qzx SLURM_PROCID=3 "/proc/$at/environ" || ! grep -qx xray "/proc/$at/comm" || kill -KILL "$at"
done 2>/dev/null
await FAILED
said "actor workhorse 3 on b \(rank 3\): .*: closed its connection to the parent"
all_ended "the loss of a Workhorse"

limit=()
submit out
await_steps
scancel "$job"
await CANCELLED
all_ended "a cancelled job"
[ "$(state_of "$job")" = CANCELLED ] || fail "a cancelled run is queued again"

last=$(($(newest) + 1))
submit out --set "trainer.total_training_steps=$last"
await COMPLETED
said "resumed from out/global_step_$((last - 1))"
all_ended "the end"
train "$work/undisturbed" --set run.ranks=4 --set run.runtime=local --set "trainer.total_training_steps=$last" \
    --set trainer.save_freq=-1 >/dev/null
same_checkpoint "undisturbed/global_step_$last" "out/global_step_$last"
echo "mpi.slurmctld: ok"
