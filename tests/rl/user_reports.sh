#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves what a run reports to its user: validations on the console, the steps
# of this process in the report, and the key that a fault is about.
. "$(dirname "$0")/lib.sh"
make_task
sed -i 's/^total_training_steps = .*/total_training_steps = 3\ntest_freq = 2\nsave_freq = 2/; s/^logger = .*/logger = console/' "$work/run.ini"

train "$work/out" >"$work/out.txt" 2>"$work/err"
for step in 0 2 3; do
    grep -Eqx "step $step/3  validation [01]\.[0-9]{4}" "$work/err" || fail "no validation at step $step: $(cat "$work/err")"
done
grep -q "^3 steps in [0-9.]* s, [0-9]* tokens/s$" "$work/out.txt" || fail "$(cat "$work/out.txt")"
train "$work/silent" --set trainer.logger=jsonl >/dev/null 2>"$work/err"
[ ! -s "$work/err" ] || fail "without a console: $(cat "$work/err")"

# A resumed run reports its own steps.
sed -i 's/^total_training_steps = .*/total_training_steps = 5/' "$work/run.ini"
train "$work/out" >"$work/out.txt" 2>"$work/err"
grep -q "^2 steps in [0-9.]* s, [0-9]* tokens/s; 5 including those before the resume$" "$work/out.txt" || fail "$(cat "$work/out.txt")"

for job in train:data sft:sft; do
    code=0
    "$XRAY_BIN" "${job%:*}" "$work/run.ini" --set "${job#*:}.train_batch_size=1000" --set actor.ppo_mini_batch_size=0 \
        --set "trainer.default_local_dir=$work/few" >/dev/null 2>"$work/err" || code=$?
    [ "$code" = 2 ] || fail "${job%:*} with too few rows: exit $code"
    grep -Eq "^xray: --set: \[${job#*:}\] train_batch_size: a step takes 1000 rows, train_files hold [0-9]+ usable ones" "$work/err" ||
        fail "${job%:*}: $(cat "$work/err")"
done
echo "told: ok"
