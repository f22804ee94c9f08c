#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Golden suite of device-cuda, whose kernels run on the host: samples, log-probabilities and
# the first steps of runs, in odd shapes. In float32 a group has the bits of the cpu device;
# with bf16 products, a group shows that batches, cuts and engines change no bit.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/requests.sh"
golden_kinds+=('metrics=*metrics.jsonl' 'weights@=*.safetensors')
golden_values=(actor/pg_loss actor/grad_norm loss)
cuda_on_host
cat >"$work/run.ini" <<INI
[run]
reward = letters
threads = 1
comm_timeout = 120s
[model]
init = random
[data]
max_prompt_length = 280
max_response_length = 12
train_batch_size = 2
response_key = answer
[rollout]
n = 3
[actor]
ppo_max_token_len_per_gpu = 700
recompute_old_logp = 1
[actor.optim]
lr = 1e-2
[critic.optim]
lr = 1e-2
[sft]
train_batch_size = 4
max_token_len = 700
total_steps = 1
[sft.optim]
lr = 1e-2
[trainer]
total_training_steps = 1
logger = jsonl
val_before_train = false
[reward.letters]
plugin = rule
grader = regex
pattern = "^.{0,9}[eo]"
match_only = true
INI
# Starts a Workhorse on a host: this one, whose devices have other names to the fake NCCL.
cat >"$work/start" <<START
#!/bin/bash
export XRAY_FAKE_STREAMS=others XRAY_FAKE_DOMAIN=\$1
exec "$XRAY_BIN" workhorse "\$2"
START
chmod +x "$work/start"
run_requests out,samples,weights
