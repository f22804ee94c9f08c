#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# examples/cluster: Ray runs the quickstart's task as a job. What it writes is shown, its
# exit code comes back, Ctrl-C asks it to stop, and a cluster without a dashboard is
# named.
. "$(dirname "$0")/../rl/lib.sh"
. "$(dirname "$0")/lib.sh"
ray_needed
"$ray_python" -c 'import ray.job_submission, aiohttp' 2>/dev/null || ray_skip "$ray_python has a Ray without jobs"
trap 'ray_down; rm -rf "$work"' EXIT
dashboard=$(ray_free_port)
# The agent that starts jobs has a fixed port, which another cluster of this host may have.
ray_up --include-dashboard=true --dashboard-host=127.0.0.1 --dashboard-port="$dashboard" \
    --dashboard-agent-listen-port="$(ray_free_port)"
PATH=$(dirname "$XRAY_BIN"):$XRAY_BUILD:$PATH
run=(--set runtime.interface=lo --set runtime.silence=20s --set run.ranks=2 --set "runtime.ray.python=$ray_python"
    --set "runtime.ray.address=http://127.0.0.1:$dashboard" --set trainer.val_before_train=false --set trainer.test_freq=-1
    --set data.train_batch_size=8 --set actor.ppo_mini_batch_size=8)
submit() { # --set ...
    "$XRAY_SOURCE/examples/cluster/ray.sh" "$work/job" "${run[@]}" "$@" >"$work/out" 2>"$work/err"
}

# `check` wants the cluster itself, which this host is a node of.
export RAY_ADDRESS=$ray_address
submit --set trainer.total_training_steps=2 || fail "the job failed: $(cat "$work/out" "$work/err")"
grep -q '^step 2' "$work/out" || fail "the job's log is not shown: $(cat "$work/out" "$work/err")"
[ -d "$work/job/checkpoints/global_step_2" ] || fail "the job wrote no checkpoint"

# Its exit code.
code=0
"$XRAY_BIN" submit "$XRAY_SOURCE/examples/cluster/ray.ini" "${run[@]}" --set "model.path=$work/job/model" \
    --set model.init=random --set "data.train_files=$work/job/train.jsonl" --set "data.val_files=$work/job/val.jsonl" \
    --set "trainer.default_local_dir=$work/other" --set run.ranks=5 >"$work/out" 2>"$work/err" || code=$?
[ "$code" = 2 ] || fail "a job that fails ended with $code: $(cat "$work/out" "$work/err")"
grep -q 'Ray cannot place the run: 5 places' "$work/out" || fail "why it failed is not shown: $(cat "$work/out" "$work/err")"

# Ctrl-C: the job ends its step and writes a checkpoint.
env --default-signal=INT "$XRAY_BIN" submit "$XRAY_SOURCE/examples/cluster/ray.ini" "${run[@]}" --set "model.path=$work/job/model" \
    --set model.init=random --set "data.train_files=$work/job/train.jsonl" --set "data.val_files=$work/job/val.jsonl" \
    --set "trainer.default_local_dir=$work/long" --set trainer.total_training_steps=10000 >"$work/out" 2>"$work/err" &
pid=$!
until grep -q '^step 2' "$work/out"; do
    kill -0 "$pid" 2>/dev/null || fail "the long job ended early: $(cat "$work/out" "$work/err")"
    sleep 0.1
done
kill -INT "$pid"
code=0
wait "$pid" || code=$?
[ "$code" = 130 ] || fail "a job that was stopped ended with $code: $(cat "$work/out" "$work/err")"
grep -q 'stopping after' "$work/out" || fail "the job was not asked: $(cat "$work/out" "$work/err")"
ls "$work/long" | grep -q '^global_step_' || fail "the job wrote no checkpoint: $(cat "$work/out")"

# The address of the cluster's head, whose dashboard is looked up, and one of nothing.
if "$XRAY_BIN" submit "$XRAY_SOURCE/examples/cluster/ray.ini" "${run[@]}" --set "model.path=$work/job/model" \
    --set model.init=random --set "data.train_files=$work/job/train.jsonl" --set "data.val_files=$work/job/val.jsonl" \
    --set runtime.ray.address=http://127.0.0.1:9 >"$work/out" 2>"$work/err"; then fail "a job ran nowhere"; fi
grep -q "\[runtime.ray\] address = http://127.0.0.1:9: the cluster's dashboard, which takes jobs, does not answer" "$work/err" ||
    fail "no dashboard: $(cat "$work/err")"
echo "ray.job: ok"
