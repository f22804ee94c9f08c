#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves the treatment of plugins that return invalid values during a run: NaN and
# Inf stop the run or skip the step, as the INI sets; broken promises always end it.
. "$(dirname "$0")/../rl/lib.sh"
make_task
export XRAY_PLUGIN_PATH=$XRAY_BUILD/tests/sick
sed -i 's/^plugin = rule/plugin = sick/; s/^val_before_train = .*/val_before_train = false/' "$work/run.ini"
sick=(--set run.train=sick --set run.infer=sick --set run.algo=sick --set trainer.total_training_steps=2)

# Without a fault, it behaves as the wrapped plugins: the weights are the same.
train "$work/plain" --set reward.close.plugin=rule --set trainer.total_training_steps=2 >/dev/null
train "$work/well" "${sick[@]}" >/dev/null
cmp "$work/plain/global_step_2/actor/model.safetensors" "$work/well/global_step_2/actor/model.safetensors"
train "$work/copied" "${sick[@]}" --set rollout.share_weights=off >/dev/null
cmp "$work/plain/global_step_2/actor/model.safetensors" "$work/copied/global_step_2/actor/model.safetensors"

# A backend for which micro-batches are filled up trains the same weights.
SICK=train-plan-multiples train "$work/padded" "${sick[@]}" >/dev/null
cmp "$work/plain/global_step_2/actor/model.safetensors" "$work/padded/global_step_2/actor/model.safetensors"

# Plans that the ranks of a role cannot keep are errors of a check.
refuses() { # FAULT SENTENCE
    local code=0
    SICK=$1 "$XRAY_BIN" check "$work/run.ini" "${sick[@]}" --set run.ranks=2 >/dev/null 2>"$work/err" || code=$?
    [ "$code" = 2 ] && grep -qxF "xray: $2" "$work/err" || fail "$1: exit $code: $(cat "$work/err"), expected: xray: $2"
}
refuses train-plan-apart "train.sick: plan: ranks 0 and 1 plan different axes: no axes and tp 3"
refuses train-plan-triple "--set: [run] ranks: actor: 2 ranks, but train.sick needs groups of 3 (tp 3)"
refuses train-plan-answers "train.sick: plan: rank 1 of a replica of 1 ranks is to answer"

# stops FAULT SENTENCE: exit 1, that one sentence, nothing saved. Digits that
# depend on the samples are replaced by #.
stops() {
    local code=0
    rm -rf "$work/ill"
    SICK=$1 train "$work/ill" "${sick[@]}" "${@:3}" >/dev/null 2>"$work/err" || code=$?
    [ "$code" = 1 ] || fail "$1: exit $code: $(cat "$work/err")"
    sed -E 's/^(xray: .*)(sample|token|row) [0-9]+( of (sample|row)) [0-9]+/\1\2 #\3 #/; s/\(prompt [0-9]+\)/(prompt #)/
        s/(id [0-9-]+ for token|sample) [0-9]+/\1 #/; s/of sample [0-9]+/of sample #/
        s/ is [0-9a-f]{16}/ is #/g; s/ with [0-9]+ tokens/ with # tokens/; s/request [0-9]+/request #/; s/sample [0-9]+ of request/sample # of request/
        s/norm -?nan/norm nan/; s/ -nan/ nan/' "$work/err" | grep -v ' warning: ' >"$work/said"
    [ "$(cat "$work/said")" = "xray: $2" ] || fail "$1: $(cat "$work/said"), expected: xray: $2"
    [ -z "$(ls "$work/ill" 2>&1 | grep global_step)" ] || fail "$1: a checkpoint was written"
}
finite="expected a finite number"
stops reward-nan "step 1: reward.close gave the score nan for sample #, $finite"
stops reward-inf "step 1: reward.close gave the score -inf for sample #, $finite"
stops reward-tokens "step 1: reward.close gave the score nan for token # of sample #, $finite"
stops infer-logp "step 1: infer.sick gave the log-prob nan for token # of sample #, $finite"
stops train-logp "step 1: train.sick gave the log-prob nan for token # of row # (prompt #), $finite"
stops train-shown-logp "step 1: train.sick gave the log-prob nan for token # of row # (prompt #), $finite"
stops algo-advantage "step 1: algo.sick gave the advantage inf for token # of row # (prompt #), $finite"
stops algo-gradient "step 1: algo.sick gave the gradient of the log-prob nan for token # of row # (prompt #), $finite"
stops train-gradient "step 1: train.sick gave the gradient norm nan, first in tensor model.embed_tokens.weight"
stops train-applied "train.sick gave the gradient norm nan, first in tensor unknown; it applied the update nevertheless, so the weights are corrupt"
# Promises broken in other ways.
stops reward-unknown "reward.close answered for sample #, which was not asked for"
stops reward-twice "reward.close answered twice for sample #"
stops reward-few "reward.close has no more answers, 31 of 32 are missing"
stops reward-more "reward.close gave more answers than the 32 asked for"
stops reward-values "reward.close gave 3 values for sample #, but no array of them"
stops reward-many "reward.close gave 2147483648 values for sample #, at most 1024 are allowed"
# A loss has no instance, but its component, status and sentence are reported.
stops algo-loss-says "actor: algo.sick: loss: the ratio is 1e9"
stops algo-loss-silent "actor: algo.sick: loss failed with status -101 (size or value out of range)"
stops algo-loss-odd "actor: algo.sick: loss failed with status 7 (a status this xray does not know)"
SICK=algo-loss-says train "$work/ill" "${sick[@]}" --set run.ranks=2 >/dev/null 2>"$work/err" && fail "two ranks: exit 0"
grep -q ': method gradients: algo.sick: loss: the ratio is 1e9$' "$work/err" || fail "two ranks: $(cat "$work/err")"
# Wrong sizes and counts.
stops algo-context-over "algo.sick: context says that it wrote 67108864 bytes where 4096 fit"
stops algo-context-grows "algo.sick: context says that it wrote 5001 bytes where 5000 fit"
stops algo-context-absurd "algo.sick: context asks for 9223372036854775807 bytes, at most 1073741824 are allowed"
stops algo-save-over "checkpoint of step 2: algo.sick: save says that it wrote 67108864 bytes where 8 fit"
stops algo-save-absurd "checkpoint of step 2: algo.sick: save asks for 18446744073709551614 bytes, at most 1073741824 are allowed"
stops algo-metric "algo.sick: prepare put a metric without a name"
# Finite as a double, but not as a float.
stops reward-huge "step 1: reward.close gave the score 1e+300 for sample #, times its weight 1: up to 8.50706e+37 is allowed"
stops reward-huge-tokens "step 1: reward.close gave the score 3e+38 for token # of sample #, times its weight 1: up to 8.50706e+37 is allowed"
stops reward-silent "reward.close gave no answer for 1 s ([run] plugin_timeout), 32 of 32 are missing" --set run.plugin_timeout=1
stops infer-id "infer.sick gave the id 1048576 for token # of sample #, which is outside the vocabulary of 15"
stops infer-negative "infer.sick gave the id -1 for token # of sample #, which is outside the vocabulary of 15"
stops infer-long "infer.sick gave sample # of request # with # tokens, which was not asked for"
stops infer-other "infer.sick gave sample # of request # with # tokens, which was not asked for"
stops infer-wraps "infer.sick gave sample # of request # with # tokens, which was not asked for"
stops infer-spans "infer.sick gave sample # with 1073741824 spans, but no array of them"
stops infer-finish "infer.sick gave sample # with finish 9, which is not a known reason"
stops infer-twice "infer.sick gave sample # of request # twice"
stops infer-null "infer.sick gave sample # without tokens or log-probs"
stops infer-idle "infer.sick is idle, but 32 samples are missing"
stops infer-more "infer.sick made no token for 1 s ([run] plugin_timeout), 32 samples are missing" --set run.plugin_timeout=1
# The same engines under xray generate, whose rows come from its input.
generates() { # FAULT SENTENCE
    local code=0
    printf '{"prompt":"1+2="}\n{"prompt":"3+4="}\n' |
        SICK=$1 "$XRAY_BIN" generate --model "$work/plain/global_step_2/actor" --infer sick --n 2 --max-tokens 3 \
            --set run.plugin_timeout=1 >/dev/null 2>"$work/err" || code=$?
    [ "$code" = 1 ] && [ "$(cat "$work/err")" = "xray: $2" ] || fail "generate, $1: exit $code: $(cat "$work/err")"
}
generates infer-more "infer.sick made no token for 1 s ([run] plugin_timeout), 4 samples are missing"
generates infer-idle "infer.sick is idle, but 4 samples are missing"
generates infer-twice "the engine returned a sample twice"
generates infer-raw "infer.sick gave sample 0 without tokens or log-probs"
generates infer-id "infer.sick gave the id 1048576 for token 2 of sample 0, which is outside the vocabulary of 15"
generates infer-long "infer.sick gave sample 0 with 100 tokens, at most 3 were asked for"
generates infer-spans "infer.sick gave sample 0 with 1073741824 spans, but no array of them"
generates infer-other "the engine returned a sample that was not requested"
# Weights in transit to the engine: before the first step and after each step.
stops infer-span "infer.sick generated sample # with weights of version 7, but version 0 was published"
copied=(--set rollout.share_weights=off)
for at in 1 3; do
    version=$((4 * (at - 1))) # two epochs of two mini-batches per step
    SICK_AT=$at stops infer-bit "weights of version $version: the checksum of tensor model.layers.1.input_layernorm.weight is # in infer.sick, that of the values from train.sick is #; they were damaged on the way" "${copied[@]}"
done
SICK_AT=2 stops infer-version "infer.sick says that its weights are of version 5, version 4 was published" "${copied[@]}"

# Tables of weights: of a trainer, of an export, of an engine.
limit="up to 1048576 of at least 168 are expected"
wrong="weights whose tensor 0 (model.embed_tokens.weight) is wrong:"
stops train-table-none "train.sick gave no table of weights"
for who in train export infer; do
    from=${who/export/train}.sick
    table() { stops "$who-table-$1" "$from gave a table of $2" "${copied[@]}"; }
    table header "weights without header, device or version"
    table many "4294967295 tensors of 168 bytes, $limit"
    table data "$wrong it has elements and no data"
done
table null "21 tensors of 168 bytes, $limit"
table stride "21 tensors of 4 bytes, $limit"
table name "weights whose tensor 0 () is wrong: it has no name"
table dims "$wrong it has more dimensions than its shape holds"
table shape "$wrong its shape has more elements than can be"
table shard "$wrong its box reaches outside of its shape"

# skips FAULT METRIC AT: the run continues, reports and counts the fault, and no
# NaN reaches weights or metrics.
skips() {
    rm -rf "$work/ill"
    SICK=$1 SICK_AT=$3 train "$work/ill" "${sick[@]}" --set trainer.on_nonfinite=skip >/dev/null 2>"$work/err" ||
        fail "$1: $(cat "$work/err")"
    grep -q "^xray: warning: left out: .* gave the .*\(nan\|inf\|e+\)" "$work/err" || fail "$1: not said: $(cat "$work/err")"
    [ "$(wc -l <"$work/ill/metrics.jsonl")" = 2 ] || fail "$1: not two steps"
    head -n 1 "$work/ill/metrics.jsonl" | grep -q "\"$2\":1[,}]" || fail "$1: not counted: $(cat "$work/ill/metrics.jsonl")"
    tail -n 1 "$work/ill/metrics.jsonl" | grep -q "\"$2\"" && fail "$1: counted twice"
    # Metrics without a value are null: there are as many as in a good run.
    [ "$(grep -c null "$work/ill/metrics.jsonl")" = 0 ] || fail "$1: $(cat "$work/ill/metrics.jsonl")"
    "$XRAY_BIN" eval "$work/run.ini" --set "model.path=$work/ill" --set model.init=load >/dev/null ||
        fail "$1: the weights are spoiled"
}
for fault in reward-nan reward-inf reward-huge reward-tokens reward-huge-tokens infer-logp train-logp algo-advantage; do
    skips $fault training/skipped_steps 1
done
for fault in train-shown-logp algo-gradient train-gradient; do
    skips $fault actor/skipped_updates 1
done

# A critic's update that is left out is counted as one of the critic.
SICK=train-gradient SICK_AT=1 train "$work/critic" "${sick[@]}" --set run.algo=ppo --set trainer.on_nonfinite=skip >/dev/null 2>"$work/err" ||
    fail "critic: $(cat "$work/err")"
[ "$(grep -o '"[a-z]*/skipped_[a-z]*":[^,}]*' "$work/critic/metrics.jsonl")" = '"critic/skipped_updates":1' ] ||
    fail "critic: $(cat "$work/critic/metrics.jsonl")"

# xray sft leaves the update out and counts it.
SICK=train-gradient SICK_AT=1 "$XRAY_BIN" sft "$work/run.ini" --set run.train=sick --set trainer.on_nonfinite=skip \
    --set sft.total_steps=2 --set sft.train_batch_size=4 --set "trainer.default_local_dir=$work/tuned" >/dev/null 2>"$work/err" ||
    fail "sft: $(cat "$work/err")"
[ "$(grep -o '^{"step":[0-9]*,\|"train/skipped_updates":[^,}]*\|"train/loss"' "$work/tuned/metrics.jsonl" | tr '\n' ' ')" = \
    '{"step":1, "train/skipped_updates":1 {"step":2, "train/loss" ' ] || fail "sft: $(cat "$work/tuned/metrics.jsonl")"

# A fault in the second micro-batch skips the same update as one in the first:
# nothing of the first micro-batch gets into a later update.
for at in 1 2; do
    SICK=algo-gradient SICK_AT=$at train "$work/micro$at" "${sick[@]}" --set trainer.on_nonfinite=skip \
        --set actor.ppo_max_token_len_per_gpu=64 >/dev/null 2>&1 || fail "micro-batch $at"
done
for file in model optim; do
    cmp "$work/micro1/global_step_2/actor/$file.safetensors" "$work/micro2/global_step_2/actor/$file.safetensors" ||
        fail "half of an update was applied"
done

# A skipped step changes no weight: with both steps skipped, the weights are the
# initial ones.
train "$work/none" "${sick[@]}" --set actor.optim.lr=0 --set trainer.total_training_steps=1 >/dev/null
for fault in reward-nan train-gradient; do
    rm -rf "$work/ill"
    SICK=$fault train "$work/ill" "${sick[@]}" --set trainer.on_nonfinite=skip >/dev/null 2>&1
    cmp "$work/none/global_step_1/actor/model.safetensors" "$work/ill/global_step_2/actor/model.safetensors" ||
        fail "$fault: a step that was left out changed the weights"
done

# A run that is stopped during the validation before its first step has a
# checkpoint to resume from, and then reaches the same weights.
code=0
SICK=reward-stops SICK_AT=1 train "$work/stopped" "${sick[@]}" --set trainer.val_before_train=true >/dev/null 2>&1 || code=$?
[ "$code" = 143 ] && [ -f "$work/stopped/global_step_0/state.json" ] || fail "stopped before its first step: exit $code: $(ls "$work/stopped")"
train "$work/stopped" "${sick[@]}" >/dev/null
cmp "$work/well/global_step_2/actor/model.safetensors" "$work/stopped/global_step_2/actor/model.safetensors"
echo "zoo.run: ok"
