#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The template of examples/cluster for Slurm, with an srun of ours that calls mpirun
# and hides Open MPI's own variables: ranks are known by Slurm's. The run is told that
# its time is over, is queued again, and the job after it has the bits of local ranks.
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
printf '#!/bin/sh\necho "$*" >>"%s/scontrol"\n' "$work" >"$work/bin/scontrol"
chmod +x "$work/bin/srun" "$work/bin/scontrol"
export PATH=$work/bin:$PATH START="${start[*]}" SLURM_NTASKS=2 SLURM_JOB_ID=7

batch() { (cd "$work" && exec bash "$template" run.ini --set trainer.total_training_steps="$1"); }
batch 100000 >"$work/log" 2>&1 &
pid=$!
until [ -e "$work/out/global_step_2" ]; do
    kill -0 "$pid" 2>/dev/null || fail "the job ended: $(cat "$work/log")"
    sleep 0.05
done
# Slurm asks every task; the Workhorses leave that to the driver.
for at in $(of_job); do
    ! tr '\0' '\n' 2>/dev/null <"/proc/$at/environ" | grep -qx "SLURM_PROCID=[01]" || kill -TERM "$at" 2>/dev/null || true
done 2>/dev/null
code=0
wait "$pid" || code=$?
[ "$code" = 143 ] || fail "the job ended with $code: $(cat "$work/log")"
[ "$(cat "$work/scontrol")" = "requeue 7" ] || fail "the job is not queued again"
nothing_left "the job"

last=$(grep -oE "stopped by SIGTERM after step [0-9]+" "$work/log" | grep -oE "[0-9]+$") || fail "no checkpoint was written: $(cat "$work/log")"
batch $((last + 1)) >"$work/log" 2>&1 || fail "the next job: $(cat "$work/log")"
train "$work/local" --set run.ranks=2 --set run.runtime=local --set trainer.total_training_steps=$((last + 1)) >/dev/null
same_checkpoint "$work/local/global_step_$((last + 1))" "$work/out/global_step_$((last + 1))"
nothing_left "the next job"

# The INI beside the template.
"$XRAY_BUILD/quickstart-task" "$work/whole" 1
"$XRAY_BIN" check "$XRAY_SOURCE/examples/cluster/slurm.ini" --set runtime.interface=lo --set "model.path=$work/whole/model" \
    --set model.init=random --set "data.train_files=$work/whole/train.jsonl" --set "data.val_files=$work/whole/val.jsonl" \
    >"$work/log" || fail "xray check: $(cat "$work/log")"
echo "mpi.slurm: ok"
