#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves the loops of train and sft by what they write: which rows a step takes,
# the totals of its metrics, when it validates, its schedules, and when it ends.
. "$(dirname "$0")/lib.sh"
make_task
sed -i 's/^shuffle = .*//; s/^train_batch_size = .*/&\nshuffle = false/' "$work/run.ini"

# value FILE STEP NAME: prints a value of a line of metrics; "none" if it is
# missing.
value() {
    sed -n "s/^{\"step\":$2,/,/p" "$1/metrics.jsonl" |
        awk -v name=",\"$3\":" '{ at = index($0, name); if (!at) next
            rest = substr($0, at + length(name)); sub(/[,}].*/, "", rest); print rest; found = 1 }
            END { if (!found) print "none" }'
}
# is FOLDER STEP NAME WANT: expects the value, up to rounding.
is() {
    local got
    got=$(value "$1" "$2" "$3")
    awk -v got="$got" -v want="$4" 'BEGIN { if (want == "none" || got == "none") exit got != want
        d = got - want; exit !(d <= 1e-5 && -d <= 1e-5) }' || fail "$1, step $2: $3 is $got, expected $4"
}
# validates FOLDER STEPS: expects these steps to have a validation.
validates() {
    local steps
    steps=$(sed -n 's/^{"step":\([0-9]*\),.*val-core.*/\1/p' "$1/metrics.jsonl" | tr '\n' ' ')
    [ "$steps" = "$2 " ] || fail "$1 validates at steps $steps, expected $2"
}

# ---- rows, scores and totals of a step
head -n 12 "$work/task/short.jsonl" >"$work/task/twelve.jsonl"
twelve=(--set "data.train_files=$work/task/twelve.jsonl" --set trainer.total_training_steps=3)
train "$work/a" "${twelve[@]}" --set "trainer.rollout_data_dir=$work/rolls" --set trainer.test_freq=2 >"$work/a.txt"
for step in 1 2 3; do
    roll=$work/rolls/$step.jsonl
    # Eight rows in their order, four samples each; the first row follows the
    # last.
    for i in 0 1 2 3 4 5 6 7; do
        sed -n "$(((8 * (step - 1) + i) % 12 + 1))p" "$work/task/twelve.jsonl" |
            sed 's/{"question": \("[^"]*"\), "answer": \("[^"]*"\)}/\1 \2/; p; p; p'
    done >"$work/want"
    sed 's/{"step":'"$step"',"prompt":\("[^"]*"\),"response":"[^"]*","ground_truth":\("[^"]*"\),.*/\1 \2/' "$roll" >"$work/got"
    diff "$work/want" "$work/got" || fail "step $step takes other rows"
    score=$(sed 's/.*"score":\([0-9.]*\)}/\1/' "$roll" | awk '{ sum += $1 } END { print sum / NR }')
    is "$work/a" "$step" critic/score/mean "$score"
    is "$work/a" "$step" reward.close/acc "$score"
    tokens=$(awk -v p="$(value "$work/a" "$step" prompt_length/mean)" -v r="$(value "$work/a" "$step" response_length/mean)" \
        'BEGIN { print 32 * (p + r) }')
    is "$work/a" "$step" perf/total_num_tokens "$tokens"
    seconds=$(value "$work/a" "$step" timing_s/step)
    is "$work/a" "$step" perf/time_per_step "$seconds"
    # These parts of a step follow one another.
    for part in gen reward old_log_prob adv update_actor update_weights; do value "$work/a" "$step" "timing_s/$part"; done |
        awk -v s="$seconds" '{ sum += $1 } END { exit !(NR == 6 && sum <= s) }' || fail "parts of step $step are longer than it"
    awk -v a="$(value "$work/a" "$step" perf/throughput)" -v n="$tokens" -v s="$seconds" \
        'BEGIN { exit !(a * s > 0.999 * n && a * s < 1.001 * n) }' || fail "throughput of step $step"
    is "$work/a" "$step" training/global_step "$step"
    is "$work/a" "$step" training/kept_groups "$(value "$work/a" 1 training/kept_groups)"
done
# Tokens of all steps per second of the run.
read -r seconds speed <<<"$(sed -n 's/^3 steps in \([0-9.]*\) s, \([0-9]*\) tokens\/s$/\1 \2/p' "$work/a.txt")"
awk -v s="$seconds" -v r="$speed" -v n="$(for step in 1 2 3; do value "$work/a" $step perf/total_num_tokens; done | awk '{ n += $1 } END { print n }')" \
    'BEGIN { d = n / r - s; exit !(r > 0 && d < 0.051 && d > -0.051) }' || fail "$(cat "$work/a.txt")"
# An epoch ends when the first row of the next one is taken.
is "$work/a" 1 training/epoch 0
is "$work/a" 2 training/epoch 1
is "$work/a" 3 training/epoch 1
validates "$work/a" "0 2 3"
[ "$(grep -c val-core "$work/a/metrics.jsonl")" = 3 ] || fail "a validation was written twice"
train "$work/v" "${twelve[@]}" --set trainer.val_after_train=false --set trainer.val_before_train=false --set trainer.test_freq=2 >/dev/null
validates "$work/v" "2"
train "$work/v1" "${twelve[@]}" --set trainer.val_after_train=false --set trainer.val_before_train=false \
    --set trainer.test_freq=1 --set trainer.save_freq=1 >/dev/null
validates "$work/v1" "1 2 3"
for step in 1 2 3; do
    [ -d "$work/v1/global_step_$step" ] || fail "save_freq = 1 leaves step $step out"
done
# A line is written before its checkpoint, whose time is in the next one.
for line in 1:none 2:taken 3:taken; do
    seconds=$(value "$work/v1" "${line%:*}" timing_s/save_checkpoint)
    awk -v s="$seconds" -v want="${line#*:}" 'BEGIN { exit want == "none" ? s != "none" : !(s + 0 > 0) }' ||
        fail "line ${line%:*}: the checkpoint took $seconds"
done

# ---- how a rollout samples: what leaves the likeliest token alone leaves one sample
for key in top_k=1 top_p=1e-6 min_p=1 temperature=0; do
    train "$work/cut" --set trainer.total_training_steps=1 --set "rollout.$key" --set trainer.val_before_train=false \
        --set "trainer.rollout_data_dir=$work/cut/rolls" >/dev/null
    [ "$(sort -u "$work/cut/rolls/1.jsonl" | wc -l)" = 8 ] || fail "rollout.$key cuts off nothing"
    rm -r "$work/cut"
done
train "$work/deaf" --set trainer.total_training_steps=1 --set rollout.ignore_eos=true >/dev/null
is "$work/deaf" 1 response_length/min 5
[ "$(sort -u "$work/rolls/1.jsonl" | wc -l)" -gt 16 ] || fail "samples of a prompt are the same"
train "$work/seed" "${twelve[@]}" --set run.seed=12 --set trainer.total_training_steps=1 \
    --set "trainer.rollout_data_dir=$work/seed/rolls" --set "model.path=$work/a" --set model.init=load >/dev/null
train "$work/same" "${twelve[@]}" --set trainer.total_training_steps=1 \
    --set "trainer.rollout_data_dir=$work/same/rolls" --set "model.path=$work/a" --set model.init=load >/dev/null
cmp -s "$work/seed/rolls/1.jsonl" "$work/same/rolls/1.jsonl" && fail "another seed draws the same samples"

# ---- groups that are dropped
filter=(--set algo.grpo.filter_groups=true --set trainer.total_training_steps=1 --set trainer.val_before_train=false)
train "$work/kept" "${filter[@]}" --set reward.close.pattern="^1" >/dev/null
grep -q '"position": "16"' "$work/kept/global_step_1/state.json" || fail "two rounds of eight prompts were expected"
is "$work/kept" 1 training/kept_groups 8
# Values are those of the newest samples only, like their scores.
is "$work/kept" 1 reward.close/acc "$(value "$work/kept" 1 critic/score/mean)"
# At most ten rollouts; each samples differently, even for the same prompts.
head -n 8 "$work/task/short.jsonl" >"$work/task/eight.jsonl"
eight=(--set "data.train_files=$work/task/eight.jsonl")
train "$work/none" "${filter[@]}" "${eight[@]}" --set reward.close.pattern="^x" --set "trainer.rollout_data_dir=$work/tenth" >/dev/null
is "$work/none" 1 training/kept_groups 0
is "$work/none" 1 training/epoch 9
train "$work/first" "${eight[@]}" --set trainer.total_training_steps=1 --set reward.close.pattern="^x" \
    --set algo.grpo.filter_groups=false --set "trainer.rollout_data_dir=$work/first" >/dev/null
is "$work/first" 1 training/kept_groups 8
cmp -s "$work/tenth/1.jsonl" "$work/first/1.jsonl" && fail "a round draws what the one before drew"

# ---- greedy baselines are what validation gives the same rows
train "$work/remax" "${eight[@]}" --set algo.grpo.preset=remax --set "data.val_files=$work/task/eight.jsonl" \
    --set trainer.total_training_steps=1 >/dev/null
is "$work/remax" 1 critic/baseline/mean "$(value "$work/remax" 0 val-core/default/reward/mean@1)"
is "$work/remax" 1 critic/baseline/max 1
is "$work/remax" 1 critic/baseline/min 0
[ "$(value "$work/remax" 1 timing_s/gen_max)" != none ] || fail "no time for the greedy samples"
is "$work/a" 1 critic/baseline/mean none

# ---- prompts go through the chat template, of a run and of a validation
printf '%s' '{{ messages[0].content }}1+' >"$work/chat.jinja"
chat=(--set data.apply_chat_template=always --set "data.chat_template=$work/chat.jinja")
train "$work/chat" "${eight[@]}" "${chat[@]}" --set trainer.total_training_steps=1 \
    --set "trainer.rollout_data_dir=$work/chat/rolls" --set "trainer.validation_data_dir=$work/chat/val" >/dev/null
"$XRAY_BIN" eval "$work/run.ini" "${chat[@]}" --set "trainer.validation_data_dir=$work/chat/eval" >/dev/null
for folder in rolls/1 val/0 eval/0; do
    [ "$(grep -c '"prompt":"[0-9]*[+][0-9]*=1+"' "$work/chat/$folder.jsonl")" = "$(wc -l <"$work/chat/$folder.jsonl")" ] ||
        fail "$folder: $(head -1 "$work/chat/$folder.jsonl")"
done
# Validation reads its own rows.
sed 's/{"question": \("[^"]*"\).*/\1/' "$work/task/val16.jsonl" >"$work/want"
"$XRAY_BIN" eval "$work/run.ini" --set "trainer.validation_data_dir=$work/eval" >/dev/null
sed 's/.*"prompt":\("[^"]*"\).*/\1/' "$work/eval/0.jsonl" | diff - "$work/want" || fail "eval reads other rows"
# Options that change the logits hold here, and not for training.
for key in repetition_penalty=0.5 frequency_penalty=-2 presence_penalty=-2 min_tokens=3; do
    "$XRAY_BIN" eval "$work/run.ini" --set "rollout.$key" --set "trainer.validation_data_dir=$work/$key" >/dev/null
    cmp -s "$work/eval/0.jsonl" "$work/$key/0.jsonl" && fail "rollout.$key changes nothing"
done

# ---- schedules: the policy's begins with its first update
train "$work/rates" --set run.algo=ppo --set trainer.total_training_steps=5 --set trainer.critic_warmup=3 \
    --set actor.optim.lr_warmup_steps=2 --set critic.optim.lr=2e-3 --set critic.optim.lr_warmup_steps=4 \
    --set trainer.val_before_train=false >/dev/null
for rate in 1:none:0 2:none:0.0005 3:0:0.001 4:0.0005:0.0015 5:0.001:0.002; do
    IFS=: read -r step actor critic <<<"$rate"
    is "$work/rates" "$step" actor/lr "$actor"
    is "$work/rates" "$step" critic/lr "$critic"
done

# ---- xray sft
sft() { # FOLDER STEPS BATCH [--set ...]
    local dir=$1
    "$XRAY_BIN" sft "$work/run.ini" --set "trainer.default_local_dir=$dir" --set "sft.total_steps=$2" \
        --set "sft.train_batch_size=$3" "${@:4}" >"$dir.txt" 2>"$dir.err" || fail "sft: $(cat "$dir.err")"
}
# At a rate of 0 the loss of two rows is the mean over their tokens: the digits
# of an answer and an end token each.
lines='{"question":"1+2=","answer":"3"}\n{"question":"3+4=","answer":"7777"}\n{"question":"5+5=","answer":"10"}\n'
printf "$lines" >"$work/task/three.jsonl"
three=(--set "data.train_files=$work/task/three.jsonl" --set sft.optim.lr=0)
sft "$work/s1" 3 1 "${three[@]}"
sft "$work/s2" 1 2 "${three[@]}"
is "$work/s2" 1 train/loss "$(awk -v a="$(value "$work/s1" 1 train/loss)" -v b="$(value "$work/s1" 2 train/loss)" \
    'BEGIN { print (2 * a + 5 * b) / 7 }')"
is "$work/s1" 3 training/epoch 0
awk -v s="$(value "$work/s1" 2 timing_s/step)" 'BEGIN { exit !(s + 0 > 0) }' || fail "a step of sft has no time"
# So is their gradient, whose norm is at most that of the parts, and at least the difference.
norm() { value "$1" "$2" train/grad_norm; }
awk -v a="$(norm "$work/s1" 1)" -v b="$(norm "$work/s1" 2)" -v both="$(norm "$work/s2" 1)" 'BEGIN {
    least = 5 * b - 2 * a; if (least < 0) least = -least
    exit !(a > 0 && b > 0 && both * 7 < 1.0001 * (2 * a + 5 * b) && both * 7 > 0.9999 * least) }' ||
    fail "the norm of two rows is $(norm "$work/s2" 1), of each $(norm "$work/s1" 1) and $(norm "$work/s1" 2)"
sft "$work/s3" 1 2 "${three[@]}" --set sft.train_on_prompt=true
[ "$(value "$work/s3" 1 train/loss)" != "$(value "$work/s2" 1 train/loss)" ] || fail "train_on_prompt changes nothing"
# Micro-batches change no bit; clipping does.
rate=(--set "data.train_files=$work/task/three.jsonl" --set sft.optim.lr=0.5 --set sft.optim.lr_warmup_steps=2)
sft "$work/s4" 3 2 "${rate[@]}"
sft "$work/s5" 3 2 "${rate[@]}" --set sft.max_token_len=17
cmp "$work/s4/global_step_3/actor/model.safetensors" "$work/s5/global_step_3/actor/model.safetensors"
sft "$work/s6" 3 2 "${rate[@]}" --set sft.grad_clip=1e-30
cmp -s "$work/s4/global_step_3/actor/model.safetensors" "$work/s6/global_step_3/actor/model.safetensors" &&
    fail "grad_clip clips nothing"
[ "$(norm "$work/s4" 1)" = "$(norm "$work/s6" 1)" ] || fail "the norm is not that before clipping"
for rate in 1:0 2:0.25 3:0.5; do is "$work/s4" "${rate%:*}" train/lr "${rate#*:}"; done
is "$work/s4" 3 training/epoch 1
validates "$work/s4" 3

# The run ends at the first validation that reaches the score, and a resumed run
# that has reached it does nothing.
always=(--set reward.close.pattern=. --set sft.test_freq=2)
sft "$work/until" 5 4 "${always[@]}" --set sft.stop_at=1
validates "$work/until" 2
[ "$(cat "$work/until/latest_checkpointed_iteration.txt")" = 2 ] || fail "it did not stop at step 2"
sft "$work/until" 5 4 "${always[@]}" --set sft.stop_at=1
[ "$(wc -l <"$work/until/metrics.jsonl")" = 2 ] || fail "it did not know that it was done"
sft "$work/on" 5 4 "${always[@]}"
validates "$work/on" "2 4 5"
sft "$work/short" 5 4 --set sft.test_freq=2 --set sft.stop_at=0.9
validates "$work/short" "2 4 5"
# Rows held out of the training files are validated on, too.
sed -i '/^val_files/d' "$work/run.ini"
sft "$work/split" 1 4 --set data.val_split=0.2
validates "$work/split" 1
# Without rows to validate on, no engine is needed, and there is no validation.
sft "$work/bare" 1 4
[ "$(grep -c val-core "$work/bare/metrics.jsonl")" = 0 ] || fail "a validation of nothing"
grep -q '^validation' "$work/bare.txt" && fail "a score of no validation: $(cat "$work/bare.txt")"
echo "loop: ok"
