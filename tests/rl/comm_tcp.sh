#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that runs on several ranks give the same samples, metrics and
# checkpoints over TCP as over shared memory, with either backend.
. "$(dirname "$0")/lib.sh"
make_task
sed -i -E 's/("vocab_size"): *[0-9]+/\1: 128/; s/("num_key_value_heads"): *[0-9]+/\1: 4/' "$work/task/model/config.json"

compare() { # NAME [--set ...]
    local name=$1 comm
    shift
    for comm in shm tcp; do
        train "$work/$name.$comm" --set trainer.total_training_steps=2 --set run.threads=1 --set "run.comm=$comm" \
            --set "trainer.rollout_data_dir=$work/$name.$comm/rollout" --log info "$@" >/dev/null 2>"$work/$name.$comm.err" ||
            fail "$name over $comm: $(cat "$work/$name.$comm.err")"
    done
    same_checkpoint "$work/$name.shm/global_step_2" "$work/$name.tcp/global_step_2"
    cmp "$work/$name.shm/rollout/2.jsonl" "$work/$name.tcp/rollout/2.jsonl" || fail "$name samples otherwise over tcp"
    diff <(steady "$work/$name.shm/metrics.jsonl") <(steady "$work/$name.tcp/metrics.jsonl") ||
        fail "metrics of $name differ over tcp"
}

compare zero2 --set run.ranks=2
compare zero4 --set run.ranks=4
compare megatron2 --set run.ranks=2 --set run.train=megatron --set train.megatron.tensor_model_parallel_size=2 \
    --set train.megatron.sequence_parallel=true
compare megatron4 --set run.ranks=4 --set run.train=megatron --set train.megatron.tensor_model_parallel_size=2 \
    --set train.megatron.pipeline_model_parallel_size=2
# The log says where the ranks listen.
grep -q 'comm tcp: rank 0 listens at 127.0.0.1:[0-9]* (interface lo of ' "$work/zero2.tcp.err" ||
    fail "no line about the address: $(cat "$work/zero2.tcp.err")"
