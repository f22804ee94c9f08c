#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# [trainer] val_only validates what a run would resume from and changes nothing
# in its folder; log_val_generations shows samples of each validation.
. "$(dirname "$0")/lib.sh"
make_task
sed -i 's/^logger = .*/logger = jsonl, console/' "$work/run.ini"
ini=("$work/run.ini" --set "trainer.default_local_dir=$work/out")

# A run of 16 rows shows each fourth; the table is in the order of the rows.
"$XRAY_BIN" train "${ini[@]}" --set trainer.total_training_steps=2 --set trainer.log_val_generations=4 \
    >"$work/train.txt" 2>"$work/train.err" || fail "training failed: $(cat "$work/train.err")"
sed -n '1~4s/.*"question": *"\([^"]*\)".*/\1/p' "$work/task/val16.jsonl" >"$work/want"
[ "$(wc -l <"$work/want")" = 4 ] || fail "no prompts in val16.jsonl"
for step in 0 2; do
    grep -A5 "^step $step/2  validation" "$work/train.err" | sed -n '3,6p' | awk '{ print $2 }' |
        diff - "$work/want" || fail "the table of step $step: $(cat "$work/train.err")"
done
trained=$(sed -n 's/^validation .* -> //p' "$work/train.txt")
files() { (cd "$work/out" && find . -type f ! -name .lock -exec md5sum {} + | sort); }
files >"$work/before"

validate() { # NAME ARGS
    local name=$1
    shift
    "$XRAY_BIN" train "${ini[@]}" --set trainer.val_only=true "$@" >"$work/$name.txt" 2>"$work/$name.err" ||
        fail "$name: $(cat "$work/$name.err")"
    files | diff "$work/before" - || fail "$name changed the run"
}
mean() { sed -n 's,^val-core/default/reward/mean@1 ,,p' "$work/$1.txt"; }

# The checkpoint is validated, and with other sampling than the run had.
validate resumed --set rollout.val.n=2
[ "$(mean resumed)" = "$trained" ] || fail "$(mean resumed) is not the run's $trained"
grep -q '^val-core/default/reward/mean@2 ' "$work/resumed.txt" || fail "no mean@2: $(cat "$work/resumed.txt")"
grep -q "resumed from $work/out/global_step_2" "$work/resumed.err" || fail "$(cat "$work/resumed.err")"
grep -q '^   score' "$work/resumed.err" && fail "a table that nobody asked for"
# Without a checkpoint to resume from it is the model itself.
validate fresh --set trainer.resume_mode=disable
first=$(sed -n 's/^validation \(.*\) -> .*/\1/p' "$work/train.txt")
[ "$(mean fresh)" = "$first" ] || fail "$(mean fresh) is not $first, that of the first validation"
[ "$first" != "$trained" ] || fail "training changed nothing"

# The console is where the table goes.
validate quiet --set trainer.logger=jsonl --set trainer.log_val_generations=3
grep -q '^   score' "$work/quiet.err" && fail "a table without the console"
"$XRAY_BIN" eval "${ini[@]}" --set trainer.log_val_generations=99 2>&1 >/dev/null | grep -c '^ *[01]  ' | grep -qx 16 ||
    fail "eval does not show all 16"
"$XRAY_BIN" check "${ini[@]}" --set trainer.val_only=true --set data.val_files= >"$work/none" 2>&1 && fail "nothing to validate"
grep -q '\[trainer\] val_only: there is nothing to validate; set \[data\] val_files or val_split' "$work/none" ||
    fail "$(cat "$work/none")"
"$XRAY_BIN" sft "${ini[@]}" --set trainer.val_only=true --set "trainer.default_local_dir=$work/sft" >"$work/sft.txt" 2>&1 ||
    fail "$(cat "$work/sft.txt")"
[ ! -e "$work/sft/global_step_1" ] || fail "sft trained"
[ "$(mean sft)" = "$first" ] || fail "sft validates otherwise: $(cat "$work/sft.txt")"
echo "val_only: ok"
