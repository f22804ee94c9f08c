#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The template of examples/cluster for Slurm, with an srun of ours that calls mpirun
# and hides Open MPI's own variables: ranks are known by Slurm's. The run is told that
# its time is over, is queued again, and the job after it has the bits of local ranks.
# mpi.slurmctld does it with Slurm itself.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/../rl/lib.sh"
make_task
template=$XRAY_SOURCE/examples/cluster/slurm.sbatch
sed -i "s/^\[run\]$/&\nthreads = 1\ncomm = tcp/; s/^\[trainer\]$/&\nsave_freq = 2\ndefault_local_dir = out/" "$work/run.ini"
printf '[runtime]\ninterface = lo\n' >>"$work/run.ini"
bash -n "$template"

mkdir "$work/bin"
ln -s "$XRAY_BIN" "$work/bin/xray"
cat >"$work/bin/srun" <<'SRUN'
#!/usr/bin/env bash
# A task of the step has this environment, without the part that only Open MPI has.
for word in "$@"; do
    case $word in --mpi=pmix | --kill-on-bad-exit=1 | --cpu-bind=none) shift ;; -*) exit 9 ;; *) break ;; esac
done
exec $START -n "$SLURM_NTASKS" bash -c '
    export SLURM_PROCID=$OMPI_COMM_WORLD_RANK SLURM_STEP_NUM_TASKS=$SLURM_NTASKS
    unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE
    exec "$0" "$@"' "$@"
SRUN
cat >"$work/bin/scontrol" <<'SCONTROL'
#!/bin/sh
[ "$1" != show ] || exec echo "   PreemptEligibleTime=2026-01-01T00:00:00 PreemptTime=${PREEMPTED:-None}"
echo "$*" >>"$HERE/scontrol"
SCONTROL
# Slurm signals every task; the Workhorses leave that to the driver.
cat >"$work/bin/scancel" <<'SCANCEL'
#!/usr/bin/env bash
[ "$*" = "--signal=TERM 7" ] || exit 9
for at in $(grep -lsa "XRAY_MPI_TEST=$XRAY_MPI_TEST" /proc/[0-9]*/environ | cut -d/ -f3); do
    ! grep -qzx "SLURM_PROCID=[01]" "/proc/$at/environ" || kill -TERM "$at"
done 2>/dev/null
SCANCEL
chmod +x "$work/bin/"{srun,scontrol,scancel}
export PATH=$work/bin:$PATH HERE=$work START="${start[*]}" SLURM_NTASKS=2 SLURM_JOB_ID=7

batch() { # STEPS: in a shell of its own
    cd "$work"
    exec bash "$template" run.ini --set "trainer.total_training_steps=$1"
}
batch 100000 >"$work/log" 2>&1 &
pid=$!
until [ -e "$work/out/global_step_2" ]; do
    kill -0 "$pid" 2>/dev/null || fail "the job ended: $(cat "$work/log")"
    sleep 0.05
done
kill -USR1 "$pid" # as --signal=B:USR1 does
code=0
wait "$pid" || code=$?
[ "$code" = 143 ] || fail "the job ended with $code: $(cat "$work/log")"
[ "$(cat "$work/scontrol")" = "requeue 7" ] || fail "the job is not queued again"
nothing_left "the job"

last=$(grep -oE "stopped by SIGTERM after step [0-9]+" "$work/log" | grep -oE "[0-9]+$") || fail "no checkpoint was written: $(cat "$work/log")"
(batch $((last + 1))) >"$work/log" 2>&1 || fail "the next job: $(cat "$work/log")"
train "$work/local" --set run.ranks=2 --set run.runtime=local --set trainer.total_training_steps=$((last + 1)) >/dev/null
same_checkpoint "$work/local/global_step_$((last + 1))" "$work/out/global_step_$((last + 1))"
nothing_left "the next job"

# srun ends with 143, too, where a run has failed and it has ended the other tasks.
printf '#!/bin/sh\nexit 143\n' >"$work/bin/srun"
ended() { # WHAT EXPECTED
    local code=0
    : >"$work/scontrol"
    (batch 1) >"$work/log" 2>&1 || code=$?
    [ "$code" = 143 ] && [ "$(cat "$work/scontrol")" = "$2" ] || fail "$1: $code: $(cat "$work/scontrol" "$work/log")"
}
ended "a run that failed" ""
PREEMPTED=2026-01-01T00:00:00 ended "a job that is preempted" "requeue 7"

# The INI beside the template.
"$XRAY_BUILD/quickstart-task" "$work/whole" 1
"$XRAY_BIN" check "$XRAY_SOURCE/examples/cluster/slurm.ini" --set runtime.interface=lo --set "model.path=$work/whole/model" \
    --set model.init=random --set "data.train_files=$work/whole/train.jsonl" --set "data.val_files=$work/whole/val.jsonl" \
    >"$work/log" || fail "xray check: $(cat "$work/log")"
echo "mpi.slurm: ok"
