#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A run that is stopped, or killed, and resumed equals the uninterrupted one bit
# for bit: weights, optimizer, data position, metrics.
. "$(dirname "$0")/lib.sh"
make_task

train "$work/whole" >"$work/whole.txt"

# SIGINT: the step is finished, a checkpoint written, exit 130.
interrupt() {
    local dir=$1 signal=$2 lines=$3
    shift 3
    train "$dir" "$@" >"$dir.txt" 2>"$dir.err" &
    local pid=$!
    for _ in $(seq 600); do
        [ -f "$dir/metrics.jsonl" ] && [ "$(wc -l <"$dir/metrics.jsonl")" -ge "$lines" ] && break
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.02
    done
    kill -s "$signal" "$pid" 2>/dev/null || true
    local code=0
    wait "$pid" || code=$?
    echo "$code"
}

code=$(interrupt "$work/int" INT 2)
if [ "$code" != 0 ]; then # 0: the run was over before the signal came
    [ "$code" = 130 ] || fail "exit after SIGINT is $code, expected 130: $(cat "$work/int.err")"
    ls -d "$work/int"/global_step_* >/dev/null || fail "no checkpoint after SIGINT"
fi
train "$work/int" >/dev/null
same_checkpoint "$work/whole/global_step_6" "$work/int/global_step_6"
diff <(steady "$work/whole/metrics.jsonl") <(steady "$work/int/metrics.jsonl") ||
    fail "metrics of the resumed run differ"

code=$(interrupt "$work/term" TERM 2)
[ "$code" = 0 ] || [ "$code" = 143 ] || fail "exit after SIGTERM is $code, expected 143"

# SIGKILL: what is left is the last whole checkpoint.
interrupt "$work/kill" KILL 4 --set trainer.save_freq=2 >/dev/null
train "$work/kill" --set trainer.save_freq=2 >/dev/null
same_checkpoint "$work/whole/global_step_6" "$work/kill/global_step_6"
diff <(steady "$work/whole/metrics.jsonl") <(steady "$work/kill/metrics.jsonl") ||
    fail "metrics after a kill differ"

# A checkpoint of another seed or job is refused in one sentence.
code=0
train "$work/kill" --set run.seed=12 2>"$work/seed.err" || code=$?
[ "$code" != 0 ] || fail "another seed was accepted"
grep -q "seed is 11, this run's is 12" "$work/seed.err" || fail "$(cat "$work/seed.err")"
echo "resume: ok"
