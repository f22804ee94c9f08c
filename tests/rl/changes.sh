#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves what happens if a run is resumed with another configuration: changes
# are reported, those that change the meaning of scores are refused until they
# are accepted, and xray check says the same.
. "$(dirname "$0")/lib.sh"
make_task
set_steps() { sed -i "s/^total_training_steps = .*/total_training_steps = $1/" "$work/run.ini"; }
set_steps 2
train "$work/two" >/dev/null 2>&1
set_steps 4
train "$work/four" >/dev/null 2>&1
out=$work/out
from=$out/global_step_2
line=$(grep -n '^total_training_steps' "$work/run.ini" | cut -d : -f 1)
longer="changed: $work/run.ini:$line: [trainer] total_training_steps is 4, was 2 in $from"

fresh() { rm -rf "$out" && cp -r "$work/two" "$out"; }
resumed() { # COMMAND EXPECTED-CODE [ARGS...]: on a fresh copy of two steps
    local command=$1 wanted=$2 code=0
    shift 2
    fresh
    "$XRAY_BIN" "$command" "$work/run.ini" --set "trainer.default_local_dir=$out" "$@" >"$work/out.txt" 2>"$work/err" || code=$?
    [ "$code" = "$wanted" ] || fail "$command $*: exit $code: $(cat "$work/err")"
}
# told TEXT [ARGS...]: train resumes and reports this key and the longer run;
# check prints the same lines.
told() {
    local text=$1
    shift
    resumed train 0 "$@"
    [ "$(sort "$work/err")" = "$(printf '%s\n' "xray: $longer" ${text:+"xray: changed: $text"} "resumed from $from" | sort)" ] || fail "$*: $(cat "$work/err"), expected: $text"
    resumed check 0 "$@"
    grep -Fqx "$longer" "$work/out.txt" && { [ -z "$text" ] || grep -Fqx "changed: $text" "$work/out.txt"; } ||
        fail "check $*: $(cat "$work/out.txt")"
}
# refused LINES [ARGS...]: train and check refuse to resume with these lines,
# and train resumes with --accept-changes.
refused() {
    local lines=$1 command
    shift
    for command in train check; do
        resumed "$command" 2 "$@"
        [ "$(cat "$work/err")" = "xray: resume from $from: the meaning of scores has changed; resume anyway with --accept-changes, or start a new run in another [trainer] default_local_dir:
$lines" ] || fail "$command $*: $(cat "$work/err"), expected: $lines"
        diff -r -x .lock "$work/two" "$out" || fail "a refused $command changed the folder"
        resumed "$command" "${accepted:-0}" "$@" --accept-changes
        grep -Fq "${lines/#xray: /xray: warning: changed: }" "$work/err" || fail "$command $* --accept-changes: $(cat "$work/err")"
    done
}

told "" # only that it is longer
told "" --set run.threads=2 --set trainer.save_freq=3 --set trainer.test_freq=2 --set trainer.max_actor_ckpt_to_keep=5
told "" --set actor.optim.lr=0.001
told "--set: [actor.optim] lr is 2e-3, was 1e-3 in $from" --set actor.optim.lr=2e-3
told "--set: [rollout] n is 8, was 4 in $from" --set rollout.n=8

refused "xray: --set: [reward.close] pattern is ^[02468], was ^[13579] in $from" --set 'reward.close.pattern=^[02468]'
resumed train 0 --set 'reward.close.pattern=^[02468]' --set trainer.test_freq=3 --accept-changes
first=$(sed -n 's/^{"step":3,.*"val-core\/default\/reward\/mean@1":\([0-9.e-]*\).*/\1/p' "$out/metrics.jsonl")
[ -n "$first" ] && grep -q "^validation $(printf %.4f "$first") -> " "$work/out.txt" ||
    fail "the report mixes scores of two rewards: $first, $(cat "$work/out.txt")"
# An accepted change is part of the next checkpoint.
"$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$out" --set 'reward.close.pattern=^[02468]' \
    --set trainer.total_training_steps=5 >/dev/null 2>"$work/err" || fail "$(cat "$work/err")"
refused "xray: --set: [algo.grpo] preset is dr_grpo, was verl in $from" --set algo.grpo.preset=dr_grpo
refused "xray: --set: [data] reward_fn_key is kind, was data_source in $from" --set data.reward_fn_key=kind
refused "xray: --set: [run] reward is near, was close in $from
xray: --set: [reward.near] grader is regex, was not set in $from
xray: --set: [reward.near] pattern is 1, was not set in $from
xray: [reward.close] is not read, was in $from" --set run.reward=near --set reward.near.grader=regex --set reward.near.pattern=1

# For data the content counts and not the path.
cp "$work/task/short.jsonl" "$work/moved.jsonl"
told "--set: [data] train_files is $work/moved.jsonl, was $work/task/short.jsonl in $from" --set "data.train_files=$work/moved.jsonl"
train "$out" --set "data.train_files=$work/moved.jsonl" >/dev/null 2>&1
same_checkpoint "$work/four/global_step_4" "$out/global_step_4"
cp "$work/task/short.jsonl" "$work/kept.jsonl"
sed -i '7s/"answer": *"[^"]*"/"answer":"0"/' "$work/task/short.jsonl"
cmp -s "$work/kept.jsonl" "$work/task/short.jsonl" && fail "the test changed no row"
files=$(grep -n '^train_files' "$work/run.ini" | cut -d : -f 1)
refused "xray: $work/run.ini:$files: [data] train_files: $work/task/short.jsonl has other content than it had in $from"
cp "$work/kept.jsonl" "$work/task/short.jsonl"

# If the checkpoint cannot be loaded into the run, check says what train says.
cannot() { # SENTENCE, without the path in front
    fresh
    for command in check train; do
        code=0
        "$XRAY_BIN" $command "$work/run.ini" --set "trainer.default_local_dir=$out" "${@:2}" >/dev/null 2>"$work/err" || code=$?
        [ "$code" != 0 ] || fail "$command goes on: $*"
        [ $command = train ] || [ "$code" = 2 ] || fail "check: exit $code"
        grep -Fq "$1" "$work/err" || fail "$command ${*:2}: $(cat "$work/err"), expected: $1"
    done
}
cannot "$from/critic: the checkpoint has no critic, which this run trains" --set run.algo=ppo --accept-changes
sed -i.kept -E 's/("hidden_size"): *[0-9]+/\1: 64/' "$work/task/model/config.json"
cannot "has shape [15, 48]" # the first tensor that does not fit
mv "$work/task/model/config.json.kept" "$work/task/model/config.json"

# The runs of xray ab are resumed, too; finished ones count as well.
"$XRAY_BIN" ab "$work/run.ini" "$work/run.ini" --seeds 1 --out "$work/ab" >/dev/null 2>"$work/err" || fail "$(cat "$work/err")"
rm "$work/ab/run/seed-11/finished"
sed -i '7s/"answer": *"[^"]*"/"answer":"0"/' "$work/task/short.jsonl"
code=0
"$XRAY_BIN" ab "$work/run.ini" "$work/run.ini" --seeds 1 --out "$work/ab" >/dev/null 2>"$work/err" || code=$?
[ "$code" = 2 ] && grep -q "short.jsonl has other content than it had in $work/ab/run/seed-11/" "$work/err" &&
    grep -q "short.jsonl has other content than it had in $work/ab/run-2/seed-11/" "$work/err" &&
    grep -q "the meaning of scores has changed; give the changed runs another --out:" "$work/err" &&
    ! grep -q 'accept-changes' "$work/err" ||
    fail "xray ab went on with other data: $(cat "$work/err")"
echo "changes: ok"
