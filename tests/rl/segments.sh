#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves [run] layout_segments: the samples, metrics and checkpoints of one rank
# on any number of replicas, with either backend, and what check refuses. With
# the argument `all` it does so for 20 steps of GRPO and of PPO, on up to 8
# ranks at every stage.
. "$(dirname "$0")/lib.sh"
make_task
sed -i -E 's/("vocab_size"): *[0-9]+/\1: 128/; s/("num_key_value_heads"): *[0-9]+/\1: 4/; s/("tie_word_embeddings"): false/\1: true/' "$work/task/model/config.json"
steps=2
[ "${1:-}" = all ] && steps=20

run() { # NAME [--set ...]
    local name=$1
    shift
    train "$work/$name" --set "trainer.total_training_steps=$steps" --set run.threads=1 \
        --set run.layout_segments=4 --set "trainer.rollout_data_dir=$work/$name/rollout" "$@" >/dev/null 2>"$work/$name.err" ||
        fail "$name: $(cat "$work/$name.err")"
}

same() { # NAME NAME
    local model
    for model in actor critic; do
        [ ! -d "$work/$1/global_step_$steps/$model" ] ||
            cmp "$work/$1/global_step_$steps/$model/model.safetensors" "$work/$2/global_step_$steps/$model/model.safetensors" ||
            fail "$2 has another $model than $1"
    done
    same_checkpoint "$work/$1/global_step_$steps" "$work/$2/global_step_$steps"
    cmp "$work/$1/rollout/$steps.jsonl" "$work/$2/rollout/$steps.jsonl" || fail "$2 samples otherwise than $1"
    diff <(steady "$work/$1/metrics.jsonl") <(steady "$work/$2/metrics.jsonl") || fail "metrics of $2 differ from those of $1"
}

# like NAME RANKS [--set ...]: expects the bits of NAME.
like() {
    local base=$1 ranks=$2
    shift 2
    run next --set "run.ranks=$ranks" "$@"
    same "$base" next
    rm -r "$work/next"
}

refused() { # TEXT [--set ...]
    local text=$1
    shift
    "$XRAY_BIN" check "$work/run.ini" "$@" >"$work/check.txt" 2>&1 && fail "check accepts $*"
    grep -qF "$text" "$work/check.txt" || fail "check says: $(cat "$work/check.txt"), expected: $text"
}

cut() { # TENSOR [STAGES [CONTEXT]]
    echo --set run.train=megatron --set "train.megatron.tensor_model_parallel_size=$1" \
        --set "train.megatron.pipeline_model_parallel_size=${2:-1}" --set "train.megatron.context_parallel_size=${3:-1}"
}
ppo=(--set run.algo=ppo --set algo.ppo.preset=verl --set algo.ppo.use_kl_in_reward=true)

run one
run apart --set run.layout_segments=0
! cmp -s "$work/one/global_step_$steps/actor/model.safetensors" "$work/apart/global_step_$steps/actor/model.safetensors" ||
    fail "segments change no bit, so that equal bits would prove nothing"
like one 2 --set train.zero3.stage=1
like one 4
# shellcheck disable=SC2046
like one 4 $(cut 2) --set actor.grad_offload=true --set actor.ppo_max_token_len_per_gpu=70
# The first of two stages has the look-ups of the tied embedding, the second its head.
# shellcheck disable=SC2046
like one 4 $(cut 1 2) --set actor.grad_offload=true
# shellcheck disable=SC2046
run context --set run.ranks=2 $(cut 1 1 2)
# shellcheck disable=SC2046
like context 4 $(cut 1 1 2)
run ppo "${ppo[@]}" --set actor.shuffle=true
like ppo 2 "${ppo[@]}" --set actor.shuffle=true

# A run goes on with other replicas as if it had had them all along.
run next --set trainer.total_training_steps=1
run next --set run.ranks=2
same_checkpoint "$work/one/global_step_$steps" "$work/next/global_step_$steps"
rm -r "$work/next"

# Five rows, of which three segments have one each and one has two.
for ranks in 1 2; do
    "$XRAY_BIN" sft "$work/run.ini" --set "trainer.default_local_dir=$work/sft$ranks" --set sft.total_steps=3 --set run.threads=1 \
        --set sft.train_batch_size=5 --set run.layout_segments=4 --set run.ranks=$ranks >/dev/null 2>"$work/sft.err" ||
        fail "sft: $(cat "$work/sft.err")"
done
same_checkpoint "$work/sft1/global_step_3" "$work/sft2/global_step_3"
diff <(steady "$work/sft1/metrics.jsonl") <(steady "$work/sft2/metrics.jsonl") || fail "metrics of sft differ on two ranks"

refused '[run] layout_segments: 6 is not a power of two' --set run.layout_segments=6
refused '[run] layout_segments: the 3 replicas of actor do not divide 8 segments, expected a power of two up to 8 of them' \
    --set run.layout_segments=8 --set run.ranks=3
refused '[actor] ppo_max_token_len_per_gpu 100 cannot hold one of 2 segments of the mini-batch, of up to 8 rows of 17 tokens, which train.zero3 computes at once; expected at least 136, or more layout_segments' \
    --set run.layout_segments=2 --set run.ranks=2 --set actor.ppo_max_token_len_per_gpu=100
"$XRAY_BIN" check "$work/run.ini" --set run.layout_segments=2 --set run.ranks=2 --set actor.ppo_max_token_len_per_gpu=100 \
    --set train.zero3.stage=1 >"$work/check.txt" 2>&1 || fail "check says: $(cat "$work/check.txt")"
[ "${1:-}" = all ] || exit 0

eight=(--set run.layout_segments=8 --set actor.ppo_mini_batch_size=8)
for algo in grpo ppo; do
    how=("${eight[@]}")
    [ $algo = grpo ] || how+=("${ppo[@]}")
    run $algo-8 "${how[@]}"
    for ranks in 2 4 8; do
        for stage in 0 1 2 3; do
            like $algo-8 $ranks "${how[@]}" --set train.zero3.stage=$stage
        done
        for slices in 1 2 '1 2'; do
            # shellcheck disable=SC2046,SC2086
            like $algo-8 $ranks "${how[@]}" $(cut $slices)
        done
    done
done

# The quickstart's own configurations, on fewer prompts for each step, from a
# checkpoint that gives some right answers.
quick=$XRAY_SOURCE/examples/quickstart
"$XRAY_BUILD/quickstart-task" "$work/quick" 1
sed -i -E 's/("tie_word_embeddings"): false/\1: true/' "$work/quick/model/config.json"
data=(--set run.seed=1 --set "data.train_files=$work/quick/train.jsonl" --set "data.val_files=$work/quick/val.jsonl")
"$XRAY_BIN" sft "$quick/sft.ini" "${data[@]}" --set "model.path=$work/quick/model" --set "trainer.default_local_dir=$work/sft" \
    >/dev/null 2>"$work/sft.err" || fail "sft: $(cat "$work/sft.err")"
for algo in grpo ppo-verl; do
    how=("${data[@]}" --set "model.path=$work/sft" --set data.train_batch_size=32 --set actor.ppo_mini_batch_size=16
        --set trainer.val_before_train=false --set trainer.logger=jsonl)
    [ $algo = grpo ] || how+=(--set critic.ppo_mini_batch_size=16 --set trainer.critic_warmup=2)
    cp "$quick/$algo.ini" "$work/run.ini"
    run quick-$algo "${how[@]}"
    grep -q '"critic/score/mean":0[.][0-9]*[1-9]' "$work/quick-$algo/metrics.jsonl" || fail "$algo gives no rewards, so nothing is learned"
    for ranks in 2 4; do
        like quick-$algo $ranks "${how[@]}"
        # shellcheck disable=SC2046
        like quick-$algo $ranks "${how[@]}" $(cut 1 2) --set train.megatron.decoder_first_pipeline_num_layers=1
    done
done
