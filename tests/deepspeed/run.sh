#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that a run with a DeepSpeed JSON gives the bits of the run whose INI has
# the same values, and that the INI it saves reads back without the JSON.
. "$(dirname "$0")/../rl/lib.sh"
make_task
sed -i '/^\[actor.optim\]/,/^lr/d; /^ppo_mini_batch_size/d; /^ppo_max_token/d' "$work/run.ini"
cp "$work/run.ini" "$work/plain.ini"
cat >>"$work/run.ini" <<'INI'
[train.zero3]
deepspeed_config = ds.json
INI
cat >"$work/ds.json" <<'JSON'
{
  "train_batch_size": 16,
  "train_micro_batch_size_per_gpu": 8,
  "gradient_accumulation_steps": "auto",
  "bf16": {"enabled": true},
  "gradient_clipping": 0.5,
  "optimizer": {"type": "AdamW",
    "params": {"lr": 1e-3, "betas": [0.8, 0.95], "eps": 1e-7, "weight_decay": 0.1}},
  "scheduler": {"type": "WarmupDecayLR",
    "params": {"warmup_max_lr": "auto", "warmup_num_steps": 8, "total_num_steps": 12, "warmup_type": "linear"}},
  "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 5e8,
    "zero_quantized_gradients": true}
}
JSON
# 16 sequences are 4 prompts of 4 samples; 4 updates form a step of the run.
sed -i 's/^total_training_steps = .*//' "$work/run.ini"
cat >>"$work/plain.ini" <<'INI'
[model]
dtype = bfloat16
[actor.optim]
lr = 1e-3
lr_warmup_steps = 2
lr_scheduler_type = linear
[train.zero3]
beta1 = 0.8
beta2 = 0.95
eps = 1e-7
weight_decay = 0.1
stage = 2
INI
said=$("$XRAY_BIN" check "$work/run.ini" 2>&1) || fail "check: $said"
warning="$work/ds.json: zero_optimization.zero_quantized_gradients: no effect here: values are sent uncompressed"
notes=("$work/ds.json: zero_optimization.overlap_comm: no effect here: the fixed plan determines what overlaps"
    "$work/ds.json: zero_optimization.reduce_bucket_size: no effect here: buckets are complete transformer blocks, laid out at the start")
for line in "xray: warning: $warning" "${notes[@]}"; do
    grep -qxF "$line" <<<"$said" || fail "check does not say: $line"$'\n'"$said"
done
"$XRAY_BIN" config print "$work/run.ini" --origins >"$work/print.ini"
for line in "lr = 0.001 ; $work/ds.json: optimizer.params.lr" \
    "ppo_mini_batch_size = 4 ; $work/ds.json: train_batch_size" \
    "ppo_max_token_len_per_gpu = 136 ; $work/ds.json: train_micro_batch_size_per_gpu" \
    "total_training_steps = 3 ; $work/ds.json: scheduler.params.total_num_steps"; do
    grep -qxF "$line" "$work/print.ini" || fail "config print lacks: $line"$'\n'"$(cat "$work/print.ini")"
done

train "$work/json" >/dev/null 2>"$work/log"
grep -qF "$warning" "$work/log" || fail "a run does not warn: $(cat "$work/log")"
for line in "${notes[@]}"; do
    grep -qF "$line" "$work/log" && fail "a run warns of what changes nothing: $line"
done
train "$work/info" --set run.log=info --set trainer.total_training_steps=1 >/dev/null 2>"$work/log"
for line in "$warning" "${notes[@]}"; do
    grep -qF "$line" "$work/log" || fail "a run at log = info does not say: $line"
done
cp "$work/plain.ini" "$work/run.ini"
train "$work/plain" --set trainer.total_training_steps=3 --set actor.ppo_mini_batch_size=4 \
    --set actor.grad_clip=0.5 >/dev/null
same_checkpoint "$work/plain/global_step_3" "$work/json/global_step_3"
cp "$work/print.ini" "$work/run.ini"
train "$work/print" >/dev/null
same_checkpoint "$work/plain/global_step_3" "$work/print/global_step_3"
echo "deepspeed.run: ok"
