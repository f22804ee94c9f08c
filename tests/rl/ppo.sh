#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves PPO with a critic and with a value head of the policy's own: the bits
# are the same in a rerun, after a kill, and however the rows are cut. Also
# proves the critic's warm-up and what xray check reports.
. "$(dirname "$0")/lib.sh"
make_task
cat >>"$work/run.ini" <<INI
[critic]
ppo_mini_batch_size = 2
shuffle = true
[critic.optim]
lr = 2e-3
lr_warmup_steps = 2
INI
sed -i -e '/^\[run\]/a algo = ppo' -e 's/^total_training_steps = .*/total_training_steps = 8/' "$work/run.ini"

same_run() { # FOLDER FOLDER
    diff -r -x manifest.json -x run.ini -x history.json "$1/global_step_8" "$2/global_step_8" ||
        fail "checkpoints of $1 and $2 differ"
    diff <(steady "$1/metrics.jsonl") <(steady "$2/metrics.jsonl") || fail "metrics of $1 and $2 differ"
}
has() { grep -q "$2" "$1" || fail "$1 has no $2"; }
lines() { [ -f "$1/metrics.jsonl" ] && wc -l <"$1/metrics.jsonl" || echo 0; }

# KL controller, running moments and the divisor of scores are all in use.
verl=(--set algo.ppo.preset=verl --set algo.ppo.use_kl_in_reward=true --set algo.ppo.kl_ctrl=adaptive
    --set algo.ppo.horizon=50 --set algo.ppo.scale_reward=running --set algo.ppo.entropy_coeff=0.001)
trlx=(--set algo.ppo.preset=trlx --set algo.ppo.kl_ctrl=adaptive --set algo.ppo.horizon=50
    --set algo.ppo.scale_reward=ref --set actor.shuffle=true --set actor.trainable_from_layer=1)
for flow in verl trlx; do
    keys=("${verl[@]}")
    [ $flow = trlx ] && keys=("${trlx[@]}")
    whole=$work/$flow
    train "$whole" "${keys[@]}" >"$whole.txt"
    for name in critic/vf_loss critic/vf_clipfrac critic/vpred_mean critic/values/mean critic/returns/mean \
        critic/advantages/mean critic/vf_explained_var timing_s/values actor/pg_loss actor/lr \
        actor/reward_kl_penalty actor/reward_kl_penalty_coeff rollout_scores/running_std; do
        has "$whole/metrics.jsonl" "\"$name\":"
    done
    documented "$whole/metrics.jsonl"
    # The time from the start of the process, reported once.
    [ "$(grep -n '"timing_s/first_token":' "$whole/metrics.jsonl" | cut -d: -f1)" = 1 ] ||
        fail "timing_s/first_token is not in the first line alone"

    # A rerun with other threads and other micro-batches: the same bits.
    train "$whole.again" "${keys[@]}" --set run.threads=3 --set actor.ppo_max_token_len_per_gpu=40 \
        --set critic.ppo_max_token_len_per_gpu=23 >/dev/null
    same_run "$whole" "$whole.again"

    # The same with shared prompts computed once, for both models.
    if [ $flow = verl ]; then
        shared=("${keys[@]}" --set actor.share_prompts=true --set critic.shuffle=false)
        train "$whole.shared" "${shared[@]}" >/dev/null
        train "$whole.recut" "${shared[@]}" --set run.threads=3 --set actor.ppo_max_token_len_per_gpu=68 \
            --set critic.ppo_max_token_len_per_gpu=140 >/dev/null
        same_run "$whole.shared" "$whole.recut"
        cmp -s "$whole/global_step_8/critic/model.safetensors" \
            "$whole.shared/global_step_8/critic/model.safetensors" && fail "sharing changed nothing"
    fi

    # Killed at any moment, and resumed until it ends.
    for round in 1 2 3; do
        "$XRAY_BIN" train "$work/run.ini" "${keys[@]}" --set "trainer.default_local_dir=$whole.kill" \
            --set trainer.save_freq=1 >/dev/null 2>&1 &
        pid=$!
        while kill -0 $pid 2>/dev/null && [ "$(lines "$whole.kill")" -lt $((2 * round)) ]; do sleep 0.005; done
        kill -KILL $pid 2>/dev/null || true
        wait $pid 2>/dev/null || true
    done
    train "$whole.kill" "${keys[@]}" --set trainer.save_freq=1 >/dev/null 2>&1
    same_run "$whole" "$whole.kill"
done
for name in critic/lr critic/grad_norm timing_s/update_critic; do has "$work/verl/metrics.jsonl" "\"$name\":"; done
[ -f "$work/verl/global_step_8/critic/optim.safetensors" ] || fail "the checkpoint has no critic"
[ -e "$work/trlx/global_step_8/critic" ] && fail "one trunk has a critic"
for flow in verl trlx; do # what the state holds has moved
    coefs=$(grep -o '"actor/reward_kl_penalty_coeff":[^,]*' "$work/$flow/metrics.jsonl" | sort -u | wc -l)
    [ "$coefs" -ge 4 ] || fail "$flow: the KL coefficient took $coefs values"
done

# Until step 3 the critic learns alone; the policy's schedule begins there.
train "$work/warm" --set trainer.critic_warmup=3 --set trainer.save_freq=1 \
    --set trainer.total_training_steps=4 --set actor.optim.lr_warmup_steps=1 >/dev/null
model() { echo "$work/warm/global_step_$1/$2/model.safetensors"; }
cmp "$(model 1 actor)" "$(model 2 actor)" || fail "the policy moved in the critic's warm-up"
cmp -s "$(model 1 critic)" "$(model 2 critic)" && fail "the critic did not learn in its warm-up"
cmp -s "$(model 3 actor)" "$(model 4 actor)" && fail "the policy did not move behind the warm-up"
[ "$(grep -c '"actor/lr":' "$work/warm/metrics.jsonl")" = 2 ] || fail "the policy was not updated twice"
grep -q '"actor/lr":0,' "$work/warm/metrics.jsonl" || fail "the policy's schedule does not begin with its updates"

# The critic of another run is loaded with its value head; the policy of a run
# with a value head of its own is loaded without it.
train "$work/later" --set "critic.model.path=$work/verl" --set "model.path=$work/trlx" --set model.init=load \
    --set trainer.total_training_steps=1 >/dev/null
first() { grep -o '"critic/values/mean":[^,]*' "$1/metrics.jsonl" | head -n 1; }
[ "$(first "$work/verl")" = '"critic/values/mean":0' ] || fail "a new value head gives $(first "$work/verl")"
[ "$(first "$work/later")" != '"critic/values/mean":0' ] || fail "the critic's value head was not read"

# A run with a critic cannot resume from a checkpoint without one.
train "$work/grpo" --set run.algo=grpo --set trainer.total_training_steps=1 >/dev/null
if train "$work/grpo" --accept-changes 2>"$work/err.txt" >/dev/null; then fail "a critic came from nowhere"; fi
has "$work/err.txt" 'global_step_1/critic: the checkpoint has no critic'

# What check reports, each in one sentence with its location.
refused() { # SENTENCE [--set ...]
    local says=$1
    shift
    "$XRAY_BIN" check "$work/run.ini" --set "trainer.default_local_dir=$work/none" "$@" >"$work/check.txt" 2>&1 &&
        fail "check accepts $*"
    has "$work/check.txt" "$says"
}
refused '\[critic\] shuffle separates the samples' --set actor.share_prompts=true
refused '\[critic\] ppo_max_token_len_per_gpu 67 cannot hold a group of 4' --set actor.share_prompts=true \
    --set critic.shuffle=false --set critic.ppo_max_token_len_per_gpu=67
refused '\[critic\] ppo_mini_batch_size 3 does not divide' --set critic.ppo_mini_batch_size=3
refused '\[critic\] ppo_max_token_len_per_gpu 5 is below the longest row' --set critic.ppo_max_token_len_per_gpu=5
refused '\[trainer\] critic_warmup: algo.ppo has no critic' --set trainer.critic_warmup=2 "${trlx[@]}"
refused '\[critic.model\] path: .* is not a folder' --set "critic.model.path=$work/nowhere"
refused '\[algo.ppo\] kl_ctrl: adaptive needs' --set algo.ppo.kl_ctrl=adaptive
"$XRAY_BIN" check "$work/run.ini" --set "trainer.default_local_dir=$work/none" >"$work/check.txt"
has "$work/check.txt" 'memory of critic: '
has "$work/check.txt" 'updates of the critic per step: 2 epochs x 4 mini-batches of 8 rows'
"$XRAY_BIN" plan "$work/run.ini" >"$work/plan.txt"
has "$work/plan.txt" '^critic  .*FLOPs'
echo "ppo: ok"
