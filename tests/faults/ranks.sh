#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# If a Workhorse is killed or stopped, the run reports within seconds which one, its
# phase and collective, and leaves no process; with [run] max_restarts it restarts by
# itself and ends with the bits of an undisturbed run.
. "$(dirname "$0")/../rl/lib.sh"
. "$(dirname "$0")/horses.sh"
make_task
steps="--set run.threads=1 --set run.ranks=2"
ranks=2

for signal in KILL STOP; do
    start "hit$signal" --set trainer.total_training_steps=2000
    before=$EPOCHREALTIME
    hit "$signal"
    lost "hit$signal" '.*'
done

# The same where both ranks are one engine.
sed -i -E 's/("vocab_size"): *[0-9]+/\1: 128/; s/("num_key_value_heads"): *[0-9]+/\1: 4/' "$work/task/model/config.json"
plain=$steps
steps="$steps --set run.infer=paged --set infer.paged.tensor_model_parallel_size=2"
for signal in KILL STOP; do
    start "engine$signal" --set trainer.total_training_steps=2000
    before=$EPOCHREALTIME
    hit "$signal"
    lost "engine$signal" '.*'
done
steps=$plain

# A Workhorse dies between two calls, while the program scores the samples: the next
# call does not reach it and fails with the same message at once, without a wait for
# the other Workhorses.
export XRAY_PLUGIN_PATH=$XRAY_BUILD/tests/sick
for victim in 1 2; do
    SICK=reward-wait SICK_AT=70 SICK_FLAG=$work/idle$victim.flag held "idle$victim" --set reward.close.plugin=sick
    struck=$(echo "$horses" | sed -n "${victim}p")
    kill -KILL "$struck"
    until ! [ -e "/proc/$struck" ] || grep -q '^State:.*Z' "/proc/$struck/status"; do sleep 0.01; done
    before=$EPOCHREALTIME
    touch "$work/idle$victim.flag.go"
    lost "idle$victim" 'waiting for a call'
done

# The run itself is killed: its Workhorses end, too.
start orphan --set trainer.total_training_steps=2000
kill -9 "$pid"
wait "$run" || true
gone

# In the middle of a call: the run restarts from the last checkpoint by itself, also one
# that began anew.
restart="--set trainer.total_training_steps=8 --set trainer.save_freq=3 --set run.max_restarts=1 --set run.infer=sick"
restart="$restart --set trainer.resume_mode=disable"
# shellcheck disable=SC2086
SICK=infer-wait SICK_AT=36 SICK_FLAG=$work/again.flag held again $restart
hit KILL
touch "$work/again.flag.go"
wait "$run" || fail "the run did not go on: $(cat "$work/again.err")"
grep -q 'restart 1 of 1 from .*/global_step_3' "$work/again.err" ||
    fail "nothing tells of the restart from step 3: $(cat "$work/again.err")"
# shellcheck disable=SC2086
train "$work/calm" $steps $restart >/dev/null
same_checkpoint "$work/calm/global_step_8" "$work/again/global_step_8"
diff <(steady "$work/calm/metrics.jsonl") <(steady "$work/again/metrics.jsonl") ||
    fail "metrics differ after a restart"
gone
echo "faults of ranks: ok"
