#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that a run that is stopped or killed, and resumed, equals the
# uninterrupted one bit for bit: weights, optimizer, position in the data,
# metrics.
. "$(dirname "$0")/lib.sh"
make_task
# The data has one and a half batches of rows: epochs end within a step, and
# every resume is in a later epoch.
sed -i 12q "$work/task/short.jsonl"
last=24
set_steps() { sed -i "s/^total_training_steps = .*/total_training_steps = $1/" "$work/run.ini"; }
set_steps "$last"

train "$work/whole" >"$work/whole.txt"

lines() { [ -f "$1/metrics.jsonl" ] && wc -l <"$1/metrics.jsonl" || echo 0; }

# Runs until the metrics have so many lines, then sends the signal to the
# program itself, since a shell ignores SIGINT for its background processes.
interrupt() { # FOLDER SIGNAL LINES [--set ...]
    local dir=$1 signal=$2 wanted=$3 pid
    shift 3
    env --default-signal=INT "$XRAY_BIN" train "$work/run.ini" \
        --set "trainer.default_local_dir=$dir" "$@" >"$dir.txt" 2>"$dir.err" &
    pid=$!
    while kill -0 "$pid" 2>/dev/null && [ "$(lines "$dir")" -lt "$wanted" ]; do
        sleep 0.01
    done
    kill -s "$signal" "$pid" 2>/dev/null || true
    code=0
    { wait "$pid" || code=$?; } 2>/dev/null
}

# Does the same as `interrupt`, repeated until the signal came before the run's
# end.
interrupt_midway() {
    local dir=$1 signal=$2 expected=$3 wanted=$4
    shift 4
    for _ in 1 2 3 4 5; do
        rm -rf "$dir"
        interrupt "$dir" "$signal" "$wanted" "$@"
        # A signal in the last step comes too late, too.
        [ "$code" = "$expected" ] && [ "$(newest "$dir")" -lt "$last" ] && return 0
        [ "$code" = "$expected" ] || [ "$code" = 0 ] || fail "exit after SIG$signal is $code, expected $expected: $(cat "$dir.err")"
    done
    fail "five runs of $last steps were over before SIG$signal came"
}

same_as_whole() {
    same_checkpoint "$work/whole/global_step_$last" "$1/global_step_$last"
    diff <(steady "$work/whole/metrics.jsonl") <(steady "$1/metrics.jsonl") || fail "metrics of $1 differ"
}

newest() { # the step of the newest checkpoint, 0 if there is none
    cat "$1/latest_checkpointed_iteration.txt" 2>/dev/null || echo 0
}

# SIGINT and SIGTERM finish the step and write a checkpoint.
for signal in INT:130 TERM:143; do
    dir=$work/${signal%:*}
    interrupt_midway "$dir" "${signal%:*}" "${signal#*:}" 3
    step=$(newest "$dir")
    [ "$step" -ge 2 ] && [ "$step" -lt "$last" ] || fail "the checkpoint after SIG${signal%:*} is of step $step"
    [ "$(lines "$dir")" -eq $((step + 1)) ] || fail "$(lines "$dir") lines of metrics, but step $step"
    train "$dir" >"$dir.txt" 2>"$dir.err"
    grep -q "resumed from $dir/global_step_$step" "$dir.txt" "$dir.err" || fail "not resumed from step $step"
    same_as_whole "$dir"
done

# SIGKILL between two checkpoints leaves the last complete one, and the lines of
# metrics after it are cut off.
interrupt_midway "$work/kill" KILL 137 7 --set trainer.save_freq=4
step=$(newest "$work/kill")
[ "$step" -ge 4 ] && [ "$step" -lt "$last" ] || fail "the checkpoint after SIGKILL is of step $step"
train "$work/kill" --set trainer.save_freq=4 >/dev/null 2>&1
same_as_whole "$work/kill"

# SIGKILL at any moment, repeatedly, with a checkpoint every step.
for round in 1 2 3 4 5 6; do
    interrupt "$work/often" KILL $((4 * round - 3)) --set trainer.save_freq=1 --set trainer.max_actor_ckpt_to_keep=2
    [ "$code" = 137 ] || [ "$code" = 0 ] || fail "killed run $round ends with $code: $(cat "$work/often.err")"
done
train "$work/often" --set trainer.save_freq=1 --set trainer.max_actor_ckpt_to_keep=2 >/dev/null 2>&1
same_as_whole "$work/often"

# A checkpoint of another seed is refused in one sentence.
code=0
train "$work/kill" --set run.seed=12 2>"$work/seed.err" || code=$?
[ "$code" != 0 ] || fail "another seed was accepted"
grep -q "seed is 11, this run's is 12" "$work/seed.err" || fail "$(cat "$work/seed.err")"

# So is one of other data, whether rows were added or removed, even if other
# changes are accepted.
had=$(wc -l <"$work/task/short.jsonl")
for rows in $((had - 1)) $((had + 1)); do
    head -n "$rows" "$work/task/train.jsonl" >"$work/other.jsonl"
    code=0
    train "$work/kill" --set "data.train_files=$work/other.jsonl" --accept-changes >/dev/null 2>"$work/rows.err" || code=$?
    [ "$code" != 0 ] || fail "a checkpoint made with $had rows was accepted with $rows"
    grep -q "made with $had data rows, this run has $rows" "$work/rows.err" || fail "$(cat "$work/rows.err")"
done
echo "resume: ok"
