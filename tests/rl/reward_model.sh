#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves the built-in reward model with a classifier whose scores are known, in
# one process, on two ranks and on a rank of its own; and what is refused.
. "$(dirname "$0")/lib.sh"
make_task
mkdir "$work/rm" "$work/headless"
"$XRAY_BUILD/tests/make-score" "$work/rm" 15
"$XRAY_BUILD/tests/make-score" "$work/headless" 15 headless
cat >>"$work/run.ini" <<INI
[reward.rm]
plugin = model
path = $work/rm
INI
run=(--set run.reward=rm --set trainer.total_training_steps=2)
train "$work/one" "${run[@]}" --set "trainer.rollout_data_dir=$work/one/rollout" >/dev/null

# The text lacks special ids (0 to 2): a response of fewer than 5 characters may
# have ended with one of them.
letters=0123456789+=
ids=$(echo "{\"text\":\"$letters\"}" | "$XRAY_BIN" tokenize --model "$work/task/model" --special off | tr -dc '0-9,')
cat "$work/one/rollout/1.jsonl" "$work/one/rollout/2.jsonl" |
    sed -E 's/.*"response":"([^"]*)".*"score":([-0-9.e]+).*/\1 \2/' >"$work/scores"
awk -v letters="$letters" -v ids="$ids" '
    BEGIN { split(ids, id_of, ",") }
    function is(id) { id = score - (id - 7) / 10 / sqrt(1 / 16 + 1e-5); return id < 1e-5 && id > -1e-5 }
    { text = NF > 1 ? $1 : ""; score = $NF; size = length(text)
      last = size ? id_of[index(letters, substr(text, size))] : 1; sure += size == 5
      if (!is(last) && (size == 5 || !(is(0) || is(1) || is(2)))) {
          print "line " NR ": \"" $0 "\": its last id is " last; bad = 1 } }
    END { if (NR != 64 || sure < 10) { print NR " samples, " sure " of 5 letters"; bad = 1 } exit bad }' "$work/scores" || fail "scores differ"

for set in run.ranks=1 run.runtime=local; do
    rm -rf "$work/again"
    train "$work/again" "${run[@]}" --set "$set" >/dev/null
    same_checkpoint "$work/one/global_step_2" "$work/again/global_step_2"
done
train "$work/two" "${run[@]}" --set run.ranks=2 --set "trainer.rollout_data_dir=$work/two/rollout" >/dev/null
cmp "$work/one/rollout/1.jsonl" "$work/two/rollout/1.jsonl" || fail "two ranks score otherwise"
train "$work/apart" "${run[@]}" --set run.ranks=2 --set placement.actor=0 --set placement.reward=1 >/dev/null
same_checkpoint "$work/one/global_step_2" "$work/apart/global_step_2"

# A Workhorse, which has no other reward, finds the model wherever the list has it; grades of weight 0 add nothing.
printf '[reward.first]\nplugin = rule\ngrader = exact\nweight = 0\n' >>"$work/run.ini"
train "$work/second" "${run[@]}" --set run.reward=first,rm --set run.ranks=2 >/dev/null
same_checkpoint "$work/two/global_step_2" "$work/second/global_step_2"
"$XRAY_BIN" plan "$work/run.ini" "${run[@]}" | grep -q "reward" || fail "the plan lacks the reward model"

# A row of the largest length has space for the token appended to it.
train "$work/full" "${run[@]}" --set data.max_prompt_length=9 >/dev/null || fail "the longest rows do not fit"

refused() { # PATTERN COMMAND [--set ...]
    local pattern=$1 command=$2
    shift 2
    "$XRAY_BIN" "$command" "$work/run.ini" --set run.reward=rm "$@" >"$work/out" 2>&1 && fail "$command $* was accepted"
    grep -q -- "$pattern" "$work/out" || fail "expected \"$pattern\", got: $(cat "$work/out")"
}
refused '\[reward.rm\] path: is not set; it names the folder of the reward model' check --set reward.rm.path=
refused '\[reward.rm\] path: .*nowhere is not a folder' check --set "reward.rm.path=$work/nowhere"
refused 'headless: tensor score.weight is missing, a reward model needs one' check --set "reward.rm.path=$work/headless" \
    --set model.init=load
refused '\[reward.rm\] plugin: model: only xray train has one' eval
echo "rl.reward_model: ok"
