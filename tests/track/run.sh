#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A run with the tracker tensorboard computes the same bits as one without, and its
# event files have the figures of metrics.jsonl to the last bit, histograms, samples and
# settings; so has xray sft, and a run of several ranks.
. "$(dirname "$0")/../rl/lib.sh"
dump=$XRAY_BUILD/tests/event-dump
make_task
sed -i 's/^total_training_steps = .*/total_training_steps = 3\ntest_freq = 2/' "$work/run.ini"
tracked=(--set trainer.logger=console,jsonl,tensorboard --set trainer.log_val_generations=2)

train "$work/plain" >/dev/null 2>&1
train "$work/out" "${tracked[@]}" --set "trainer.rollout_data_dir=$work/rollout" >/dev/null 2>"$work/err" || fail "$(cat "$work/err")"
grep -q 'warning' "$work/err" && fail "$(cat "$work/err")"
same_checkpoint "$work/plain/global_step_3" "$work/out/global_step_3"
diff <(steady "$work/plain/metrics.jsonl") <(steady "$work/out/metrics.jsonl") || fail "the tracker changed metrics"

same_figures() { # FOLDER
    "$dump" lines "$1/tensorboard" >"$work/lines" || fail "$1 cannot be read"
    [ -s "$work/lines" ] || fail "$1 has no events"
    diff "$work/lines" "$1/metrics.jsonl" >"$work/diff" || fail "$1: $(head -c 600 "$work/diff")"
}
same_figures "$work/out"

"$dump" all "$work/out/tensorboard" >"$work/all"
count() { grep -c "$1" "$work/all" || true; }
for name in response_length prompt_length critic/score critic/rewards critic/advantages actor/ratio; do
    [ "$(count "^[123] histograms $name ")" = 3 ] || fail "not one histogram of $name in each step"
done
# Every sample has a length, and every token of the loss a ratio, in each epoch: the
# first update's are exactly 1.
sum() { # FILE NAME: the count of all buckets in step 1
    grep "^1 histograms $2 " "$1" | awk '{ n = 0; for (i = 8; i <= NF; i += 3) n += $i; print n }'
}
[ "$(sum "$work/all" response_length)" = 32 ] || fail "$(sum "$work/all" response_length) lengths of 32 samples"
tokens=$(sum "$work/all" critic/advantages)
[ "$(sum "$work/all" actor/ratio)" = $((2 * tokens)) ] || fail "not two ratios for each of $tokens tokens"
one=$(grep '^1 histograms actor/ratio ' "$work/all" | grep -o ' 0.999[0-9]* 1.00[0-9]* [0-9]*' | awk '{ print $3 }')
[ "$one" -ge $((tokens / 2)) ] || fail "only $one of $((2 * tokens)) ratios are 1"
for sample in train/0 train/1 train/2 train/3; do
    [ "$(count "^[123] text samples/$sample \"score ")" = 3 ] || fail "no sample $sample"
done
# They are the first of each quarter of the step's samples, each with its own score.
for step in 1 2 3; do
    for k in 0 1 2 3; do
        line=$(sed -n "$((8 * k + 1))p" "$work/rollout/$step.jsonl")
        sample=$(sed -nE 's/.*"prompt":"(.*)","response":"(.+)","ground_truth":"(.*)","score":([-0-9.]+)\}/score \4\\n\\nprompt:\\n\\n    \1\\n\\nanswer:\\n\\n    \2\\n\\nground truth:\\n\\n    \3\\n/p' <<<"$line")
        [ -n "$sample" ] || fail "no answer: $line"
        [ "$(grep -cFx "$step text samples/train/$k \"$sample\"" "$work/all")" = 1 ] || fail "the text of sample $k is not \"$sample\""
    done
done
[ "$(count '^[023] text samples/validation/[01] ')" = 6 ] || fail "not two samples of each validation"
question=$(sed -n '1s/.*"question": *"\([^"]*\)".*/\1/p' "$work/task/val16.jsonl")
grep -qF "prompt:\\n\\n    $question" "$work/all" || fail "the first sample of validation is not of $question"
for setting in "actor.optim.lr n 0.001" "data.template s {question}" "reward.close.match_only b true"; do
    [ "$(count "^setting $setting")" = 1 ] || fail "no setting $setting: $(grep ^setting "$work/all")"
done
[ "$(count '^setting data.shuffle ')" = 0 ] || fail "a key that is not set is a setting"

# Of supervised tuning, with a folder of its own for the events.
"$XRAY_BIN" sft "$work/run.ini" --set "trainer.default_local_dir=$work/sft" --set sft.total_steps=2 --set sft.train_batch_size=4 \
    --set trainer.logger=tensorboard,jsonl --set "tracker.tensorboard.dir=$work/events/" >/dev/null 2>"$work/err" || fail "$(cat "$work/err")"
[ ! -e "$work/sft/tensorboard" ] || fail "the key dir is not heeded"
mv "$work/events" "$work/sft/tensorboard"
same_figures "$work/sft"
grep -q '"step":2.*"train/loss"' "$work/lines" || fail "no loss: $(cat "$work/lines")"

# With Workhorses, only the process that drives them tracks; ratios are those of one rank.
train "$work/ranks" "${tracked[@]}" --set run.ranks=2 >/dev/null 2>"$work/err" || fail "$(cat "$work/err")"
same_figures "$work/ranks"
"$dump" all "$work/ranks/tensorboard" >"$work/all.ranks"
[ "$(sum "$work/all.ranks" actor/ratio)" = $((2 * tokens)) ] || fail "ratios of ranks are missing"
[ "$(find "$work/ranks/tensorboard" -name 'events.*' | wc -l)" = 1 ] || fail "not one event file"

# A validation alone writes no metrics, so it leaves the events alone, too.
before=$(md5sum "$work"/out/tensorboard/events.*)
"$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$work/out" "${tracked[@]}" --set trainer.val_only=true >/dev/null 2>&1
[ "$before" = "$(md5sum "$work"/out/tensorboard/events.*)" ] || fail "val_only changed the events"
echo "run: ok"
