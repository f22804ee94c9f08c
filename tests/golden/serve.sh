#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Golden suite of engines: samples, log-probabilities and what the scheduler decided, for
# every architecture, option of sampling and option of an engine. The cases of a group
# differ in options that are to change no bit of a result.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/requests.sh"
golden_every=9
cat >"$work/run.ini" <<INI
[run]
reward = letters
threads = 1
[model]
init = random
[data]
max_prompt_length = 64
max_response_length = 16
train_batch_size = 2
[rollout]
n = 2
max_num_seqs = 8
[rollout.val]
n = 2
[actor]
ppo_max_token_len_per_gpu = 512
[trainer]
total_training_steps = 1
logger = jsonl
save_freq = -1
val_before_train = false
[reward.letters]
plugin = rule
grader = regex
pattern = "[aeiou].*[aeiou]"
match_only = true
INI
run_requests out,samples
