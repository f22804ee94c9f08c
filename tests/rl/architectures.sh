#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves each architecture in a complete run: the log-probabilities of the
# rollout equal the trainer's, and the bits do not depend on cut and batch.
. "$(dirname "$0")/lib.sh"
make_task
steps="--set trainer.total_training_steps=2"

ids='"bos_token_id":0,"eos_token_id":1,"vocab_size":15,"initializer_range":0.08'
sizes="$ids"',"num_hidden_layers":3,"max_position_embeddings":32,"hidden_size":48,
    "intermediate_size":80,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":12'

check() {
    local name=$1
    echo "{\"model_type\":$2}" >"$work/task/model/config.json"
    # shellcheck disable=SC2086
    train "$work/$name" $steps >/dev/null
    grep -q '"training/rollout_probs_diff/max":0[,}]' "$work/$name/metrics.jsonl" ||
        fail "$name: the trainer's probabilities are not the rollout's"
    # shellcheck disable=SC2086
    train "$work/$name-cut" $steps --set actor.ppo_max_token_len_per_gpu=40 \
        --set rollout.max_num_seqs=3 --set train.zero3.gradient_checkpointing=true >/dev/null
    same_checkpoint "$work/$name/global_step_2" "$work/$name-cut/global_step_2"
}
check llama "\"llama\",$sizes,\"attention_bias\":true,\"mlp_bias\":true"
check mistral "\"mistral\",$sizes,\"sliding_window\":5"
check gemma "\"gemma\",$sizes"
check gemma2 "\"gemma2\",$sizes,\"sliding_window\":5,\"attn_logit_softcapping\":2.0,
    \"final_logit_softcapping\":3.0"
check gemma3 "\"gemma3_text\",$sizes,\"sliding_window\":5,\"sliding_window_pattern\":2"
check phi3 "\"phi3\",$sizes,\"pad_token_id\":0,\"partial_rotary_factor\":0.5"
check gpt2 "\"gpt2\",$ids,\"n_layer\":3,\"n_head\":4,\"n_embd\":48,\"n_positions\":32"
echo "architectures: ok"
